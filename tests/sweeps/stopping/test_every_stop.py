"""Whole sweeps with every stopping rule, run inline: which runs stop, what is recorded and what is saved."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store
from tests.bowls import curves_of, run, runs_of

pytestmark = pytest.mark.long

STEPS = 27
# The final loss is lower the closer x is to 3.
PARAMETERS: dict[str, Any] = {
    "x": {"values": [3, 4, 2, 1, 5, -1, -3, -5, 10]}, "steps": STEPS, "frames": 10, "spacing": "linear", "rate": 0.3,
}  # fmt: skip
RULES: dict[str, dict[str, Any]] = {
    "asha": {"type": "asha", "min_steps": 3, "eta": 3},
    "hyperband": {"type": "hyperband", "min_steps": 3, "eta": 3},
    "median": {"type": "median", "min_steps": 6, "min_cells": 2},
    "patience": {"type": "patience", "min_steps": 6, "patience": 6, "min_gain": 0.001},
}
every_rule = pytest.mark.parametrize("kind", RULES)
every_way = pytest.mark.parametrize("per", ["cell", "run"])


def swept(
    store: Store, kind: str, per: str = "cell", show: Callable[[Launch], None] | None = None, **changes: Any
) -> Launch:
    values = {"parameters": PARAMETERS, "seeds": 3, "resources": {"pack": 9}, **changes}
    return run(store, show, **values, early_terminate={**RULES[kind], "per": per})


def assert_consistent(launch: Launch, runs: int = 27) -> None:
    """Every run has ended once, and its curve ends at its last step."""
    table, curves = runs_of(launch.files), curves_of(launch.files)
    assert len(table) == table["run_id"].nunique() == runs
    assert not curves.duplicated(["run_id", "step"]).any()
    measured = curves.groupby("run_id")["step"].agg(["max", "count"]).reindex(table["run_id"])
    trained = table["status"] != "failed"
    assert (measured["max"].to_numpy() == table["step"])[trained].all()
    assert (measured["count"].to_numpy() == table["step"] // 3 + 1)[trained].all()
    stopped = table[table["status"] == "stopped"]
    least = launch.plan.spec.early_terminate.min_steps if launch.plan.spec.early_terminate else 0
    assert ((stopped["step"] >= least) & (stopped["step"] < STEPS)).all()
    assert (table[table["status"] == "done"]["step"] == STEPS).all()
    assert list(launch.files.checkpoints()) == []


@every_rule
@every_way
def test_stopped_runs_have_their_curves_and_train_no_further_steps(store: Store, kind: str, per: str) -> None:
    launch = swept(store, kind, per)
    assert_consistent(launch)
    table = runs_of(launch.files)
    assert 0 < (table["status"] == "stopped").sum() < 27
    assert launch.driver.progress.statuses == Counter(table["status"])
    assert launch.driver.progress.steps_done == table["step"].sum() < 27 * STEPS
    assert launch.driver.progress.work == pytest.approx(launch.driver.progress.work_done), (
        "stopped steps do not count as missing work"
    )
    assert launch.driver.progress.running == 0
    if per == "cell":
        assert (table.groupby("cell_id")["status"].nunique() == 1).all()
    again = swept(store, kind, per)
    assert again.plan.missing == 0


@every_rule
@every_way
def test_curves_are_the_same_as_without_a_rule(
    store: Store, tmp_path_factory: pytest.TempPathFactory, kind: str, per: str
) -> None:
    full = run(Store(str(tmp_path_factory.mktemp("full"))), parameters=PARAMETERS, seeds=3, resources={"pack": 9})
    launch = swept(store, kind, per)
    common = curves_of(launch.files).merge(curves_of(full.files), on=["run_id", "step"], suffixes=("", "_full"))
    assert len(common) == len(curves_of(launch.files))
    np.testing.assert_allclose(common["loss"], common["loss_full"], rtol=1e-4, atol=1e-6)


@every_rule
def test_the_same_sweep_stops_the_same_runs(store: Store, tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    first, second = swept(store, kind), swept(Store(str(tmp_path_factory.mktemp("other"))), kind)
    pd.testing.assert_frame_equal(runs_of(first.files), runs_of(second.files))


@every_rule
@every_way
@pytest.mark.parametrize("reports", [3, 14])
def test_a_sweep_stopped_half_way_and_continued_ends_every_run_once(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str, per: str, reports: int
) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    seen: list[int] = []

    def stop(launch: Launch) -> None:
        seen.append(1)
        if len(seen) == reports:
            launch.driver.stop(INTERRUPTED)

    first = swept(store, kind, per, stop)
    before = runs_of(first.files) if first.files.parts("runs") else pd.DataFrame({"run_id": []})
    rest = swept(store, kind, per)
    assert_consistent(rest)
    after = runs_of(rest.files)
    kept = after[after["run_id"].isin(before["run_id"])].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, before, check_dtype=False) if len(before) else None
    assert sum(first.driver.progress.statuses.values()) + sum(rest.driver.progress.statuses.values()) == 27


@every_rule
@every_way
def test_runs_that_diverge_or_fail_do_not_affect_the_others(store: Store, kind: str, per: str) -> None:
    parameters = {**PARAMETERS, "trouble": {"values": [0, 1, 2], "when": "x == 1"}}
    launch = swept(store, kind, per, parameters=parameters, budget={"failures": 20})
    assert_consistent(launch, runs=33)
    table = runs_of(launch.files)
    ends = table[table["trouble"] == 1]["status"]
    assert set(ends) <= {"failed", "stopped"}
    assert set(table[table["trouble"] == 2]["status"]) <= {"diverged", "stopped"}
    assert "stopped" in set(table[table["trouble"] == 0]["status"]) <= {"done", "stopped"}


def test_asha_in_one_pack_keeps_the_best_cell_at_every_rung(store: Store) -> None:
    launch = swept(store, "asha", resources={"pack": 27})
    table = runs_of(launch.files)
    at_rungs = {3: 9, 9: 3}
    for step, cells in at_rungs.items():
        assert table[table["step"] >= step]["cell_id"].nunique() == cells
    assert set(table[table["status"] == "done"]["x"]) == {3.0}


def test_packs_contain_whole_cells_if_cells_are_compared(store: Store) -> None:
    launch = swept(store, "patience", resources={"pack": 8})
    assert {group.size for group in launch.plan.groups.values()} == {6}
    packs = launch.files.read("runs", ["pack_id", "cell_id"]).to_pandas()
    assert (packs.groupby("cell_id")["pack_id"].nunique() == 1).all()


def test_packs_that_lost_lanes_are_filled_with_waiting_runs(store: Store) -> None:
    launch = swept(store, "asha", resources={"pack": 9})
    lanes = launch.files.read("runs", ["pack_lanes", "step", "cell_id", "status"]).to_pandas()
    assert lanes["pack_lanes"].max() <= 9
    # The few runs left after the last rung were trained together with others.
    assert (lanes[lanes["status"] == "done"]["pack_lanes"] > 3).all()


def test_without_the_rule_stopped_runs_are_trained_to_the_end(
    store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    swept(store, "asha")
    values: dict[str, Any] = {"parameters": PARAMETERS, "seeds": 3, "resources": {"pack": 9}}
    rest = run(store, **values)
    table = runs_of(rest.files)
    assert len(table) == 27
    assert set(table["status"]) == {"done"}
    assert not curves_of(rest.files).duplicated(["run_id", "step"]).any()
    full = run(Store(str(tmp_path_factory.mktemp("full"))), **values)
    np.testing.assert_allclose(table["loss"], runs_of(full.files)["loss"], rtol=1e-4, atol=1e-6)
    assert swept(store, "asha").plan.missing == 0, "runs that are done stay done"


def test_new_seeds_of_a_stopped_cell_stop_at_min_steps(store: Store) -> None:
    first = runs_of(swept(store, "asha", resources={"pack": 27}).files)
    gone = set(first[first["status"] == "stopped"]["cell_id"])
    table = runs_of(swept(store, "asha", seeds=4, resources={"pack": 36}).files)
    new = table[(table["seed"] == 3) & table["cell_id"].isin(gone)]
    assert len(new) == len(gone)
    assert set(new["step"]) == {3}
