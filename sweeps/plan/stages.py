"""How long a launch takes, stage by stage: expected before it starts, and measured when it has ended.

Most stages other than training import libraries and start processes. How long that takes depends on the machine and on
what else it does, as much as the start of this process did. Expected times are therefore multiples of the time from the
start of this process to the plan. The multiples are those of the last launch in the store on this machine, or defaults.
"""

import math
import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field, TypeAdapter

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.plan.plan import Plan
from mislabel.sweeps.process import age_seconds
from mislabel.sweeps.stopping.rules import expected_shares
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.training import measured_steps

FILE = "stages.json"
# A process that is older at its first launch is a notebook or a server: its age says nothing about start-up.
_LONGEST_START_SECONDS = 90.0
_USUAL_START_SECONDS = 3.0
# An earlier launch may have been disturbed: its multiples count within these bounds.
_LARGEST_MULTIPLE, _SLOWDOWNS = 20.0, (0.7, 3.0)
# Sweeps whose last launch is looked at.
_MOST_SWEEPS = 100

_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Stages:
    """Seconds of each stage of a launch."""

    start: _Seconds
    """From the start of the process to the plan."""
    machine: _Seconds = 0.0
    """Start Ray, or join it."""
    measure: _Seconds = 0.0
    """Measure pack sizes."""
    workers: _Seconds = 0.0
    """From the first pack to the first step of training."""
    train: _Seconds = 0.0
    """From then to the end of the last pack, with the writing of rows."""
    merge: _Seconds = 0.0
    """Merge the parts of the tables."""
    view: _Seconds = 0.0
    """Wait for MLflow, which is written beside training."""

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))


@dataclass(frozen=True)
class Measured:
    """The stages of a launch that has ended, as they are stored."""

    host: str
    on_ray: bool
    at: str
    seconds: Stages
    slowdown: _Seconds
    """Seconds of training over those that the trial of each shape and `contention` predicted."""
    pack_seconds: _Seconds
    """Seconds of a worker per pack that it did not train."""
    new_view: bool
    """Whether MLflow's database was created."""
    is_whole: bool = True
    """False if the process had started earlier, so that the launch imported little and did not start Ray."""


_MEASURED = TypeAdapter(Measured)


@dataclass(frozen=True)
class Pace:
    """The stages around training as multiples of `Stages.start`, and how much longer training takes than its trial."""

    machine: float
    workers: float
    merge: float
    pack: float
    view: float
    """MLflow's work, from the start of its process, if its database exists."""
    new_view: float
    slowdown: float


_INLINE = Pace(machine=0.0, workers=0.03, merge=0.06, pack=0.03, view=2.5, new_view=4.5, slowdown=1.05)
_ON_RAY = Pace(machine=1.8, workers=1.3, merge=0.05, pack=0.1, view=2.5, new_view=4.5, slowdown=1.15)


@dataclass(frozen=True)
class Expected:
    """The expected time of a launch."""

    stages: Stages
    """With the usual number of early stops, and without further seeds."""
    most_train: float
    """Seconds of training if all cells that were not stopped get all further seeds of a race."""
    basis: str

    @property
    def seconds(self) -> float:
        return self.stages.total

    @property
    def most_seconds(self) -> float:
        return self.stages.total - self.stages.train + self.most_train

    @property
    def seconds_left(self) -> tuple[float, float]:
        """At least and at most, once the machine is there and pack sizes are known."""
        before = self.stages.start + self.stages.machine + self.stages.measure
        return self.seconds - before, self.most_seconds - before


def contention(workers: int) -> float:
    """How much longer training takes because other processes want the same cores.

    The trial of a shape does not show it, because it is short and its fastest repetition counts.
    """
    if not hasattr(os, "getloadavg"):
        return 1.0
    others = max(0.0, os.getloadavg()[0] - 1)  # one of them is this process
    return max(1.0, (others + workers) / max(workers, os.cpu_count() or 1))


@cache
def start_seconds() -> float:
    """Seconds from the start of this process to the first call."""
    age = age_seconds()
    return age if age < _LONGEST_START_SECONDS else _USUAL_START_SECONDS


def expected_time(plan: Plan, store: Store, files: SweepFiles, on_ray: bool, measure_seconds: float) -> Expected:
    """The expected time of a launch of this plan, whose pack sizes were measured in `measure_seconds`."""
    start, earlier = start_seconds(), _last_launch(store, files, on_ray)
    pace = _pace_from(earlier) if earlier else _ON_RAY if on_ray else _INLINE
    least, most = _train_seconds(plan, pace, start)
    around = Stages(
        start=start, machine=pace.machine * start, measure=measure_seconds, workers=pace.workers * start,
        merge=pace.merge * start,
    )  # fmt: skip
    view = (pace.new_view if _has_no_view(store) else pace.view) * start - (around.workers + least + around.merge)
    shown = store.folder is not None
    stages = Stages(**{**asdict(around), "train": least, "view": max(0.2 * start, view) if shown else 0.0})
    basis = "a trial of each shape"
    return Expected(stages, most, f"{basis} and the last launch" if earlier else basis)


def _train_seconds(plan: Plan, pace: Pace, start: float) -> tuple[float, float]:
    """Seconds of training, with the writing of rows: at least and at most."""
    spec, rule = plan.spec, plan.spec.early_terminate
    extra = 0 if spec.seeds.up_to is None else spec.seeds.up_to - spec.seeds.count
    work, most_work, packs, most_packs, longest = 0.0, 0.0, 0.0, 0.0, 0.0
    for group in plan.groups.values():
        share, finished = 1.0, 1.0
        cells = group.runs / spec.seeds.count
        if rule is not None:
            settings = plan.task.settings(group.values)
            at_once = max(1.0, group.size / spec.seeds.count)
            share, finished = expected_shares(rule, measured_steps(settings), cells, at_once)
        runs = group.to_train
        race = extra * finished * cells
        work += share * runs * group.seconds_per_run
        most_work += (share * runs + race) * group.seconds_per_run
        packs += math.ceil(runs / group.size)
        most_packs += math.ceil((runs + race) / group.size)
        longest = max(longest, min(group.size, runs) * group.seconds_per_run)
    overhead, slowdown = pace.pack * start, pace.slowdown * contention(plan.workers)
    found = [
        max((slowdown * seconds + overhead * count) / plan.workers, slowdown * longest)
        for seconds, count in ((work, packs), (most_work, most_packs))
    ]
    wall = spec.budget.wall or math.inf
    return min(found[0], wall), min(found[1], wall)


def note_stages(files: SweepFiles, measured: Measured) -> None:
    """Store how long the launch took. Nothing depends on it but expected times."""
    with suppress(StoreError):
        if measured.is_whole or files.read_value(FILE, _MEASURED) is None:
            files.write_json(FILE, asdict(measured))


class StageClock:
    """Measures the stages of a launch."""

    _launches: ClassVar[int] = 0
    """Launches in this process. Only the first one starts Ray and imports libraries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._new_view = _has_no_view(store)
        self._stages = Stages(start=start_seconds())
        self._last = time.monotonic()
        self._contention = 1.0
        self._is_first = StageClock._launches == 0
        StageClock._launches += 1

    def end(self, stage: str, at: float | None = None) -> None:
        """The stage has ended, now or at this moment, and the next one begins."""
        now, before = time.monotonic() if at is None else at, asdict(self._stages)
        self._stages = Stages(**{**before, stage: before[stage] + max(0.0, now - self._last)})
        self._last = now

    def begin_training(self, workers: int) -> None:
        self._contention = contention(workers)

    def note(self, plan: Plan, on_ray: bool, packs: int, train_seconds: float, expected_seconds: float | None) -> None:
        """Store the stages with the sweep.

        `train_seconds` is the sum over all packs; `expected_seconds` is what the trials of their shapes predicted.
        """
        idle = max(0.0, self._stages.train * plan.workers - train_seconds)
        slowdown = train_seconds / (expected_seconds * self._contention) if expected_seconds else 1.0
        measured = Measured(
            platform.node(), on_ray, datetime.now(UTC).isoformat(timespec="seconds"), self._stages, slowdown,
            idle / packs, self._new_view, self._is_first,
        )  # fmt: skip
        note_stages(self._store.sweep(plan.spec.name), measured)


def _has_no_view(store: Store) -> bool:
    return store.folder is not None and not Path(store.folder, "mlflow.db").exists()


def _last_launch(store: Store, files: SweepFiles, on_ray: bool) -> Measured | None:
    """The last launch of this kind on this machine: of the sweep itself, or else of any sweep of the store."""
    own = files.read_value(FILE, _MEASURED)
    found = [own] if own is not None and _is_like(own, on_ray) else list(_launches(store, on_ray))
    return max(found, key=lambda each: each.at, default=None)


def _launches(store: Store, on_ray: bool) -> Iterator[Measured]:
    for name in store.names()[:_MOST_SWEEPS]:
        with suppress(StoreError):
            found = store.sweep(name).read_value(FILE, _MEASURED)
            if found is not None and _is_like(found, on_ray):
                yield found


def _is_like(measured: Measured, on_ray: bool) -> bool:
    return measured.is_whole and (measured.host, measured.on_ray) == (platform.node(), on_ray)


def _pace_from(measured: Measured) -> Pace:
    usual, seconds = _ON_RAY if measured.on_ray else _INLINE, measured.seconds
    start = max(seconds.start, 0.1)

    def multiple(part: float) -> float:
        return min(part / start, _LARGEST_MULTIPLE)

    # If nobody waited for MLflow, it was faster than training, and its time is not known.
    view = multiple(seconds.workers + seconds.train + seconds.merge + seconds.view) if seconds.view > 0.5 else None
    return Pace(
        multiple(seconds.machine) or usual.machine, multiple(seconds.workers), multiple(seconds.merge),
        multiple(measured.pack_seconds),
        view=usual.view if view is None or measured.new_view else view,
        new_view=usual.new_view if view is None or not measured.new_view else view,
        slowdown=min(max(measured.slowdown, _SLOWDOWNS[0]), _SLOWDOWNS[1]),
    )  # fmt: skip
