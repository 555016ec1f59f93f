"""Runs that another sweep has are taken over, not run again."""

from typing import Any

import pandas as pd
import torch

import analysis
from sweeps.adoption import adoptable
from sweeps.check import checked_spec
from sweeps.document import Document
from sweeps.inline import run_inline
from sweeps.launch import Launch, Machine, prepare
from sweeps.store import Store


def _run(store: Store, name: str, seeds: int, values: list[float], method: str = "grid") -> tuple[Launch, list[str]]:
    document: dict[str, Any] = {
        "name": name,
        "task": "xor_clusters",
        "method": method,
        "parameters": {
            "samples": 20,
            "dim": 5,
            "width": 4,
            "test_samples": 8,
            "steps": 5,
            "frames": 3,
            "snapshots": 1,
            "noise_rate": {"values": values},
        },
        "seeds": seeds,
    }
    spec, task = checked_spec(Document("test", document))
    said: list[str] = []
    launch = prepare(spec, task, store, said.append)
    launch.equip(Machine(1, 1 << 30, torch.device("cpu")))
    run_inline(launch.feed, launch.files, torch.device("cpu"), lambda: None)
    launch.finish()
    return launch, said


def test_a_sweep_takes_over_the_runs_that_another_has_and_runs_the_rest(store: Store) -> None:
    _run(store, "first", seeds=3, values=[0.0, 0.2])
    second, said = _run(store, "second", seeds=4, values=[0.2, 0.4])
    assert said == ["3 runs are the same as in first: taken over from there"]
    assert second.feed.progress.statuses == {"done": 5}
    ours, theirs = (analysis.load(store.address, name) for name in ("second", "first"))
    assert len(ours.runs) == 8
    for table in ("runs", "curves", "arrays"):
        both = {s.name: s.read(table, where={"noise_rate": 0.2, "seed": [0, 1, 2]}) for s in (ours, theirs)}
        assert len(both["first"])
        key = [name for name in ("run_id", "step", "metric") if name in both["first"]]
        first, second_ = (both[name].sort_values(key, ignore_index=True) for name in ("first", "second"))
        if table == "arrays":
            first, second_ = (f.assign(values=f["values"].map(tuple)) for f in (first, second_))
        pd.testing.assert_frame_equal(first, second_, check_like=True)


def test_there_is_nothing_to_take_over_from_other_settings_or_a_second_time(store: Store) -> None:
    _run(store, "first", seeds=2, values=[0.0, 0.2])
    _, said = _run(store, "other", seeds=2, values=[0.3, 0.4])
    assert said == []
    launch, said = _run(store, "second", seeds=2, values=[0.0, 0.2])
    assert launch.plan.missing == 0
    assert adoptable(launch.spec, launch.task, store) == {}


def test_the_plan_counts_what_can_be_taken_over(store: Store) -> None:
    from sweeps.launch import plan_sweep

    first, _ = _run(store, "first", seeds=2, values=[0.0, 0.2])
    spec = first.spec.model_copy(update={"name": "second"})
    plan = plan_sweep(spec, first.task, store, Machine(1, 1 << 30, torch.device("cpu")))
    assert plan.missing == 4
    assert plan.elsewhere == {"first": 4}
    assert not store.sweep("second").parts("runs"), "a plan writes nothing"
