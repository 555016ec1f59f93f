"""What a sweep has to run: its cells and seeds, minus the runs in the store, counted by shape."""

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mislabel.sweeps.cells.space import Cells, Space
from mislabel.sweeps.errors import Problem, SpecError
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.pack_size import Sizing
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Seeding
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task
from mislabel.tasks.training import measured_steps

if TYPE_CHECKING:
    from mislabel.sweeps.plan.stages import Expected

Shape = tuple[Value, ...]
"""The values of the shape parameters, in the order of the task. Runs of equal shape can share a pack."""


# Cells that are drawn to estimate the cost of a search, and how many of their shapes are measured.
_DRAWN, _MOST_SHAPES = 64, 9


def shape_of(task: Task[Any], values: Mapping[str, Value]) -> Shape:
    return tuple(values[name] for name in task.names("shape"))


def shapes_of(task: Task[Any], cells: Cells) -> Iterator[Shape]:
    names = task.names("shape")
    columns = [cells.columns.get(name) or itertools.repeat(cells.common.get(name)) for name in names]
    return itertools.islice(zip(*columns, strict=False), len(cells))


@dataclass(frozen=True)
class Group:
    """The runs of one shape."""

    values: Mapping[str, Value]
    """A cell of this shape."""
    runs: int = 0
    missing: int = 0
    copied: int = 0
    """How many of the missing runs are copied from other sweeps."""
    size: int = 1
    """Runs per pack."""
    seconds_per_run: float = 0.0
    lane_bytes: int = 0

    @property
    def to_train(self) -> int:
        return self.missing - self.copied

    @property
    def steps(self) -> int:
        return int(self.values["steps"])


@dataclass(frozen=True)
class Plan:
    """Counts of a sweep's cells, runs and packs. `Backlog` makes the packs, when a worker is free."""

    space: Space
    groups: Mapping[Shape, Group]
    retry: bool = False
    """Whether failed runs are run again."""
    cells: int = 0
    runs: int = 0
    missing: int = 0
    failed: int = 0
    """Runs that failed before and are not run again."""
    checkpoints: Mapping[str, str] = field(default_factory=dict)
    """Missing runs with a checkpoint, and the pack that it belongs to."""
    workers: int = 1
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """How many of the missing runs other sweeps of the store have."""
    data: Mapping[str, str] = field(default_factory=dict)
    """The data sets that runs read, with the checksums that they must have on every machine."""
    commit: str = ""
    """The commit of the task's code; see `provenance`."""
    expected: "Expected | None" = None
    """How long it takes, once pack sizes are known."""

    @property
    def spec(self) -> Spec:
        return self.space.spec

    @property
    def task(self) -> Task[Any]:
        return self.space.task

    @property
    def to_train(self) -> int:
        """The missing runs, without those that are copied from other sweeps."""
        return sum(group.to_train for group in self.groups.values())

    @property
    def resumed(self) -> list[str]:
        return sorted(set(self.checkpoints.values()))

    @property
    def packs(self) -> int:
        return max(len(self.resumed), sum(math.ceil(group.to_train / group.size) for group in self.groups.values()))

    @property
    def pack_bytes(self) -> int:
        return max((group.lane_bytes * group.size for group in self.groups.values()), default=0)

    @property
    def train_seconds(self) -> float:
        """Training of all runs, without early stops: the work divided by the workers, but at least the longest pack."""
        work = sum(group.to_train * group.seconds_per_run for group in self.groups.values())
        longest = max((min(g.size, g.to_train) * g.seconds_per_run for g in self.groups.values()), default=0.0)
        return max(work / self.workers, longest)


def make_plan(spec: Spec, task: Task[Any], index: RunIndex, files: SweepFiles, retry: bool = False) -> Plan:
    """Count what a sweep has to run. Raises SpecError if parameters conflict in one of its shapes."""
    space = Space(spec, task)
    checkpoints = {run: pack for pack, runs in files.checkpoints() for run in runs}
    count = _count_search if spec.method.learns else _count_cells
    plan = count(space, index, checkpoints, retry)
    conflicts = [text for group in plan.groups.values() for text in task.conflicts(task.settings(group.values))]
    if conflicts:
        raise SpecError(spec.name, [Problem("parameters", text) for text in dict.fromkeys(conflicts)])
    return plan


def _count_cells(space: Space, index: RunIndex, checkpoints: Mapping[str, str], retry: bool) -> Plan:
    spec, task = space.spec, space.task
    values: dict[Shape, Mapping[str, Value]] = {}
    cells_of: dict[Shape, int] = {}
    missing_of: dict[Shape, int] = {}
    held: dict[str, str] = {}
    failed, seeds, seeding = 0, set(spec.seed_range), Seeding(spec)
    for cells in space.cells():
        for i, (cell, shape) in enumerate(zip(cells.ids, shapes_of(task, cells), strict=True)):
            if shape not in values:
                values[shape], cells_of[shape], missing_of[shape] = cells.values(i), 0, 0
            missing = index.missing_seeds(cell, seeding.of(cell), retry)
            cells_of[shape] += 1
            missing_of[shape] += len(missing)
            failed += len(index.unwanted(retry).get(cell, set()) & seeds)
            if checkpoints:
                runs = (run_id(cell, seed) for seed in missing)
                held |= {run: checkpoints[run] for run in runs if run in checkpoints}
    groups = {s: Group(values[s], cells_of[s] * spec.seeds.count, missing_of[s]) for s in values}
    return Plan(
        space, groups, retry, cells=sum(cells_of.values()), runs=sum(group.runs for group in groups.values()),
        missing=sum(missing_of.values()), failed=failed, checkpoints=held,
    )  # fmt: skip


def _count_search(space: Space, index: RunIndex, checkpoints: Mapping[str, str], retry: bool) -> Plan:
    """Count a sweep whose cells a search will propose. Its shapes are not known yet, so we use a sample cell."""
    spec = space.spec
    cells = spec.budget.cells or 0
    runs = cells * spec.seeds.count
    # If a search proposes a cell again, the cell gets more seeds than the spec asks for, and these count. The
    # additional seeds of a race do not count: they are no part of the planned runs.
    seeds = range(spec.seeds.first, sys.maxsize) if spec.seeds.up_to is None else spec.seed_range
    settled = (*index.seeds.values(), *index.unwanted(retry).values())
    missing = max(0, runs - sum(seed in seeds for cell in settled for seed in cell))
    failed = sum(map(len, index.unwanted(retry).values()))
    sample = Group(space.sample_cell(), runs, missing)
    groups = {shape_of(space.task, sample.values): sample}
    return Plan(space, groups, retry, cells, runs, missing, failed, checkpoints)


def without_copied(plan: Plan, copied: Mapping[str, Sequence[str]], index: RunIndex) -> Plan:
    """The plan with the runs that will be copied: by sweep, their ids. They are added to the index."""
    if not copied:
        return plan
    elsewhere = {name: len(runs) for name, runs in copied.items()}
    pairs = [run.rpartition("-") for runs in copied.values() for run in runs]
    names = [f"{cell}-{seed}" for cell, _, seed in pairs]
    columns = {"run_id": names, "cell_id": [cell for cell, _, _ in pairs], "seed": [int(seed) for *_, seed in pairs]}
    index.add(pa.table({**columns, "status": ["done"] * len(names), "attempt": [1] * len(names)}))
    if plan.spec.method.learns:
        groups = {shape: replace(group, copied=min(len(names), group.missing)) for shape, group in plan.groups.items()}
    else:
        left = _count_cells(plan.space, index, {}, plan.retry).groups
        groups = {s: replace(group, copied=group.missing - left[s].missing) for s, group in plan.groups.items()}
    return replace(plan, groups=groups, elsewhere=elsewhere)


def sized_plan(plan: Plan, sizing: Sizing) -> Plan:
    """The plan with pack sizes and expected times for the workers that `sizing` is about."""
    groups = {shape: sized_group(plan.space, group, sizing) for shape, group in plan.groups.items()}
    return replace(plan, groups=groups, workers=sizing.workers)


def averaged_plan(plan: Plan, sizing: Sizing) -> Plan:
    """The sized plan of a search with the mean cost of the shapes that it may propose, from cells drawn at random.

    A launch does not need this: it measures each shape when the search proposes it.
    """
    branches = plan.space.branches()
    drawn = (cells for branch in branches for cells in branch.drawn(max(1, _DRAWN // len(branches))))
    cells = {shape: values for each in drawn for shape, values in _cells_by_shape(plan.task, each)}
    if not plan.spec.method.learns or len(cells) < 2 or not plan.missing:
        return plan
    chosen = list(cells.values())[:: math.ceil(len(cells) / _MOST_SHAPES)]
    (shape, group), *_ = plan.groups.items()
    found = [sized_group(plan.space, replace(group, values=values), sizing) for values in chosen]
    seconds = sum(each.seconds_per_run for each in found) / len(found)
    return replace(plan, groups={shape: replace(group, seconds_per_run=seconds)})


def _cells_by_shape(task: Task[Any], cells: Cells) -> Iterator[tuple[Shape, Mapping[str, Value]]]:
    return ((shape, cells.values(i)) for i, shape in enumerate(shapes_of(task, cells)))


def sized_group(space: Space, group: Group, sizing: Sizing) -> Group:
    """The group with its pack size and, if runs are missing, its expected time and memory."""
    size = sizing.size(group.values, group.runs, space.spec.resources.pack)
    rule, seeds = space.spec.early_terminate, space.spec.seeds.count
    if rule is not None and rule.per == "cell" and size >= seeds:
        size -= size % seeds  # the rule compares cells, so packs contain whole cells
    if not group.missing:
        return replace(group, size=size)
    speed = sizing.speed(group.values, size)
    settings = space.task.settings(group.values)
    seconds = speed.run_seconds(size, settings.steps, len(measured_steps(settings)))
    return replace(group, size=size, seconds_per_run=seconds, lane_bytes=speed.lane_bytes)
