"""Numbers: tasks at the limits of their parameters, lanes that diverge, and packs of any size.

A parameter at a limit is refused, or its runs end as done or diverged. A lane that diverges changes no bit of its
neighbours. Packs of another size change a run by rounding at most. After a kill, packs are the same as before, and so
are their bits.
"""

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.run import worker
from mislabel.sweeps.run.launch import inline_host, run_sweep
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.store.store import Store
from mislabel.tasks.conformance import MOST_ROUNDING, rounding_of
from mislabel.tasks.data.images import AbsentData, DataError
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.parameters import Parameter, Value, values_of
from mislabel.tasks.registry import find_task, task_names
from mislabel.tasks.task import Task
from tests.faults.bowl_sweeps import assert_same_table, table_of
from tests.faults.forks import forked
from tests.faults.suite import Case

OWN = "bowl"
"""The tasks of the tests, which are not part of the product."""
SLOW = ("clean_priority.images", "label_noise_sgd.lazy_rich", "self_labeling.sane")
LARGE = (1e3, 1e10, 1e30, 3.5e38, 1e300)
TINY = (5e-324, 1e-300, 1e-45, 1e-20)
SIZES = (2, 3, 6, 8, 17)
POISON = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf, "1e38": 1e38}
_KILLED = 9
FEW: dict[str, Value] = {"frames": 4, "snapshots": 1}


# Sweeps of a task that is rounded differently in packs of other sizes.
_SMALL = {"samples": 52, "dim": 7, "width": 22, "test_samples": 40, "steps": 40, "frames": 6}
_RATES = [0.01, 0.02, 0.03, 0.05, 0.1]
_RANGE = {"min": 0.001, "max": 0.5, "scale": "log"}
KILLED: dict[str, dict[str, Any]] = {
    "grid": {"parameters": {**_SMALL, "step_size": {"values": _RATES}}, "seeds": 3},
    "grid with lanes that diverge": {"parameters": {**_SMALL, "step_size": {"values": [3e38, *_RATES]}}, "seeds": 3},
    "search": {
        "parameters": {**_SMALL, "step_size": _RANGE},
        "method": {"name": "tpe", "startup": 2}, "budget": {"cells": 8}, "seeds": 3,
    },
    "race": {"parameters": {**_SMALL, "step_size": {"values": _RATES}}, "seeds": {"count": 2, "up_to": 6}},
}  # fmt: skip


def cases(full: bool) -> Iterator[Case]:
    with tempfile.TemporaryDirectory() as shared:
        for name in KILLED if full else ("grid with lanes that diverge", "search"):
            for checkpoints in (False, True) if full else (False,):
                for reports in range(1, 16) if full else (5,):
                    yield _killed(name, reports, checkpoints, Path(shared) / f"{name}-{checkpoints}")
    names = [name for name in task_names() if not name.startswith(OWN)]
    for at, name in enumerate(names if full else [name for name in names if name not in SLOW]):
        task = find_task(name)
        limits = [case for parameter in task.parameters.values() if (case := _limits(task, parameter))]
        wild = [_wild(task, knob, value) for knob in _float_knobs(task) for value in (1e10, 1e38)]
        wild += [_poisoned(task, word) for word in POISON]
        yield from limits if full else limits[at % 3 :: 9]
        if task.largest_pack != 1:
            yield from wild if full else wild[at % 3 :: 5]
            for precision in ("float32", "float64") if full else ("float32",):
                yield _rounding(task, precision, SIZES if full else (3, 17), 8 if full else 1)


# Parameters at their limits


def _limits(task: Task[Any], parameter: Parameter) -> Case | None:
    values = _limit_values(task, parameter)

    def run(folder: Path) -> None:
        for value in values:
            try:
                _train_with(task, parameter, value)
            except Exception as error:
                raise AssertionError(f"{parameter.name} = {value!r} raised {type(error).__name__}") from error

    what = "parameter at its limits"
    return Case(what, f"{task.name}: {parameter.name}", run, count=len(values)) if values else None


def _limit_values(task: Task[Any], parameter: Parameter) -> list[Value]:
    p = parameter
    if p.name in ("steps", "frames"):
        return [1, 2, 3] if p.name == "steps" else [2, 3, 1000]
    if p.choices is not None or p.type is bool:
        return list(p.choices or (True, False))
    if p.type is str:
        return ["", "no such thing", ",", "0", "every 0", "a, b, c"]
    low = p.above if p.at_least is None else p.at_least
    high = p.below if p.at_most is None else p.at_most
    if p.type is int:
        small = int(task.small.get(p.name, p.default))
        wanted = [low, None if low is None else low + 1, 2 * small + 1, *((2**31, 2**53) if p.kind == "knob" else ())]
        return [int(value) for value in wanted if value is not None]
    ends = [float(end) for end in (low, high) if end is not None]
    inside_and_outside = [math.nextafter(end, way) for end in ends for way in (-math.inf, math.inf)]
    return list(dict.fromkeys((*ends, *inside_and_outside, 0.0, *TINY, *LARGE)))


def _train_with(task: Task[Any], parameter: Parameter, value: Value) -> None:
    """Train two runs with this value, or one beside a tame one if it is a knob. They end as done or diverged."""
    steps: dict[str, Value] = {"steps": min(task.block + 1, 20), **FEW}
    given = {**task.small, **steps, parameter.name: value}
    try:
        checked_spec(Document("limits.yaml", {"name": "limits", "task": task.name, "parameters": given}))
    except SpecError:
        return
    defaults = values_of(task.params())
    wild = task.settings({**defaults, **given})
    try:
        task.data(wild)
    except (AbsentData, DataError):  # planning refuses it
        return
    tame = task.settings({**defaults, **task.small, **steps}) if parameter.kind == "knob" else wild
    params = [wild] if task.largest_pack == 1 else [wild, tame]
    pack = Pack(task, Lanes(params, range(len(params))))
    frames = _frames(pack)
    assert pack.finished
    ended = {label for frame in frames for label in frame.labels[frame.diverged].tolist()} | set(pack.labels.tolist())
    assert ended == set(range(len(params))), f"only lanes {ended} ended as done or diverged"
    if parameter.kind == "knob" and len(params) == 2:
        assert 1 in pack.labels.tolist(), "the tame lane diverged"


# Diverging lanes


def _wild(task: Task[Any], knob: str, value: float) -> Case:
    """A lane with a knob far too large, between two tame lanes.

    It is compared with a lane that has a small value. A task may have faster code for lanes whose knob is 0.
    """

    def run(folder: Path) -> None:
        tame = _tame(task)
        wild = task.settings({**values_of(tame), knob: value})
        small = task.settings({**values_of(tame), knob: float(getattr(tame, knob)) or 1e-3})
        if task.parameters[knob].problem(value) or list(task.conflicts(wild)) or list(task.conflicts(small)):
            return
        frames = _frames(Pack(task, Lanes([tame, wild, tame], range(3))))
        _assert_same_neighbours(Pack(task, Lanes([tame, small, tame], range(3))), frames)

    return Case("lane that diverges", f"{task.name}: {knob} = {value:g}", run)


def _poisoned(task: Task[Any], word: str) -> Case:
    """A lane whose state is not finite after the first frames, between two tame lanes."""

    def run(folder: Path) -> None:
        tame = _tame(task)
        pack = Pack(task, Lanes([tame] * 3, range(3)))
        frames = _frames(pack, 2)
        state = {name: tensor.clone() for name, tensor in pack.state.items()}
        for tensor in state.values():
            if tensor.is_floating_point():
                tensor[1] = POISON[word]
        pack.state = state
        _assert_same_neighbours(Pack(task, Lanes([tame] * 3, range(3))), frames + _frames(pack))

    return Case("lane that diverges", f"{task.name}: a state of {word}", run)


def _assert_same_neighbours(reference: Pack[Any], frames: Sequence[Frame]) -> None:
    """Lanes 0 and 2 have the same bits beside the reference's lane 1, which leaves its pack at the same frame."""
    gone = [frame.step for frame in frames if 1 in frame.labels[frame.diverged]]

    def judge(frame: Frame) -> list[int]:
        return [1] if frame.step in gone else []

    expected: list[Frame] = []
    while not reference.finished:
        expected += reference.advance(0, judge)
    assert [frame.step for frame in frames] == [frame.step for frame in expected]
    for found, wanted in zip(frames, expected, strict=True):
        for lane in (0, 2):
            assert lane in found.labels, f"lane {lane} ended at step {found.step}"
            i, j = found.labels.tolist().index(lane), wanted.labels.tolist().index(lane)
            for name, values in {**found.metrics, **found.arrays}.items():
                other = {**wanted.metrics, **wanted.arrays}[name]
                same = np.array_equal(values[i], other[j], equal_nan=True)
                assert same, f"step {found.step}, lane {lane}, {name}: {values[i]} instead of {other[j]}"


# Packs of any size


def _rounding(task: Task[Any], precision: str, sizes: Sequence[int], times: int) -> Case:
    def run(folder: Path) -> None:
        steps = times * (6 * task.block + 7)
        found = rounding_of(task, sizes, runs=3 if times > 1 else 2, precision=precision, steps=steps)
        (size, name), worst = max(found.items(), key=lambda item: item[1])
        assert worst < MOST_ROUNDING, f"{size} lanes change {name} {worst:.1e} times as much as rounding does"

    return Case("pack of another size", f"{task.name}: {precision}", run, count=len(sizes), seconds=1800)


# Kills


def _killed(name: str, reports: int, checkpoints: bool, undisturbed: Path) -> Case:
    def run(folder: Path) -> None:
        values = {"name": "rounded", "task": "xor_clusters", "resources": {"pack": 6}, **KILLED[name]}
        values["metric"] = {"name": "train_loss", "goal": "minimize"}
        whole, killed = str(undisturbed), str(folder / "killed")
        if not undisturbed.exists():
            forked(train, values, whole, 0, checkpoints, folder=folder / "logs").expect(0)
        forked(train, values, killed, reports, checkpoints, folder=folder / "logs").expect(0, _KILLED)
        forked(train, values, killed, 0, checkpoints, folder=folder / "logs").expect(0)
        for table in ("runs", "curves"):
            ours, theirs = (_settled(table_of(store, table, "rounded"), whole) for store in (killed, whole))
            assert_same_table(ours, theirs)

    return Case("kill", f"{name}, report {reports}{', with checkpoints' if checkpoints else ''}", run)


def _settled(table: pd.DataFrame, store: str) -> pd.DataFrame:
    """The table without the runs of packs that lost a lane: those may be rounded differently."""
    packs = Store(store).sweep("rounded").read("runs").to_pandas()
    lossy = set(packs.loc[packs["status"] != "done", "pack_id"])
    keep = set(packs.loc[~packs["pack_id"].isin(lossy), "run_id"])
    return table[table["run_id"].isin(keep)].reset_index(drop=True)


def train(values: dict[str, Any], store: str, reports: int, checkpoints: bool) -> None:
    """Run the sweep in this process, which ends at once after this many reports; 0: at the end of the sweep."""
    worker.STRETCH_SECONDS = 0.0
    worker.CHECKPOINT_SECONDS, worker.CHECKPOINT_SHARE = (0.0, math.inf) if checkpoints else (math.inf, 1.0)
    seen = 0

    def end() -> None:
        nonlocal seen
        seen += 1
        if seen == reports:
            os._exit(_KILLED)

    spec, task = checked_spec(Document("rounded.yaml", values))
    run_sweep(spec, task, Store(store), inline_host, observer=lambda plan, files, driver: nullcontext(end))


def _float_knobs(task: Task[Any]) -> list[str]:
    return [name for name in task.names("knob") if task.parameters[name].type is float]


def _tame(task: Task[Any]) -> Any:
    steps: dict[str, Value] = {"steps": 2 * task.block + 3, "frames": 6, "snapshots": 3}
    return task.settings({**values_of(task.params()), **task.small, **steps})


def _frames(pack: Pack[Any], count: float = math.inf) -> list[Frame]:
    frames: list[Frame] = []
    with torch.no_grad():
        while not pack.finished and len(frames) < count:
            frames += pack.advance(seconds=0)
    return frames
