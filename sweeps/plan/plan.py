"""What a sweep still has to run: its cells and seeds, minus what the store has, cut into packs of equal shape."""

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mislabel.sweeps.cells.seeds import Seeding
from mislabel.sweeps.cells.space import Cells, Space
from mislabel.sweeps.errors import Problem, SpecError
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.pack_size import Sizing
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task
from mislabel.tasks.training import measured_steps

Shape = tuple[Value, ...]
Row = tuple[Cells, int, int]
"""A run to be packed: the chunk of cells it is of, its place there, its seed."""


@dataclass
class Group:
    """Runs of one shape."""

    values: Mapping[str, Value]
    """A cell of this shape."""
    runs: int = 0
    missing: int = 0
    size: int = 1
    seconds_per_run: float = 0.0

    @property
    def packs(self) -> int:
        return -(-self.missing // self.size)


@dataclass
class Plan:
    """Counts, and the packs to run. Making the packs is left to the moment when a worker is free."""

    spec: Spec
    task: Task[Any]
    groups: dict[Shape, Group]
    index: RunIndex
    resumed: list[PackOrder]
    """Packs that go on from a checkpoint."""
    retry: bool
    seeding: Seeding
    workers: int = 1
    cells: int = 0
    runs: int = 0
    missing: int = 0
    failed: int = 0
    """Runs that failed before and are not run again."""
    pack_bytes: int = 0
    """Memory of the largest pack."""
    begun: dict[str, set[int]] = field(default_factory=dict)
    """Seeds that this launch has begun, of cells that may be wanted again from more seeds."""
    checkpoints: dict[str, str] = field(default_factory=dict)
    """Runs of a search that are in a checkpoint, and the pack that it is of."""
    elsewhere: dict[str, int] = field(default_factory=dict)
    """Of the missing runs, how many other sweeps of the store have."""
    data: dict[str, str] = field(default_factory=dict)
    """The data sets that runs read, by name, with the checksums that they must have wherever they are read."""

    @property
    def packs(self) -> int:
        return max(len(self.resumed), sum(group.packs for group in self.groups.values()))

    @property
    def expected_seconds(self) -> float:
        """Time to the end: the work shared by all workers, but no less than the longest pack."""
        work = sum(group.missing * group.seconds_per_run for group in self.groups.values())
        longest = max((min(g.size, g.missing) * g.seconds_per_run for g in self.groups.values()), default=0.0)
        return max(work / self.workers, longest)

    @property
    def run_steps(self) -> int:
        """Steps of all missing runs."""
        return sum(group.missing * int(group.values["steps"]) for group in self.groups.values())

    @property
    def work(self) -> float:
        """Of all missing runs, in steps where nothing is known of their cost, else in seconds of one worker."""
        return sum(g.missing * int(g.values["steps"]) * self.step_work(g.values) for g in self.groups.values())

    def step_work(self, values: Mapping[str, Value] | None) -> float:
        """What a step of a run with these shapes counts for; the mean of all where they are not known."""
        costs = self._step_seconds
        if not costs:
            return 1.0
        known = costs.get(self._shape_of(values)) if values is not None else None
        return sum(costs.values()) / len(costs) if known is None else known

    @cached_property
    def space(self) -> Space:
        return Space(self.spec, self.task)

    @cached_property
    def _step_seconds(self) -> dict[Shape, float]:
        """Of a run-step by shape, with its part of measuring; empty unless all are known. Sizes are decided before."""
        missing = [group for group in self.groups.values() if group.missing]
        if not all(group.seconds_per_run for group in missing):
            return {}
        return {self._shape_of(group.values): group.seconds_per_run / int(group.values["steps"]) for group in missing}

    def _shape_of(self, values: Mapping[str, Value]) -> Shape:
        return tuple(values[name] for name in self.task.names("shape"))

    def to_begin(self, cell: str) -> list[int]:
        """The cell's seeds that are missing and that this launch has not begun."""
        begun = self.begun.get(cell, ())
        missing = self.index.missing_seeds(cell, self.seeding.of(cell), self.retry)
        return [seed for seed in missing if seed not in begun]

    def note_begun(self, order: PackOrder) -> None:
        for cell, seed in zip(order.cells, order.seeds, strict=True):
            self.begun.setdefault(cell, set()).add(seed)


def make_plan(spec: Spec, task: Task[Any], index: RunIndex, files: SweepFiles, retry: bool = False) -> Plan:
    """Count what a sweep has to run. `decide_sizes` then says how it is packed."""
    if spec.method.learns:
        return _open_plan(spec, task, index, files, retry)
    plan = Plan(spec, task, {}, index, [], retry, Seeding(spec))
    shapes = task.names("shape")
    checkpoints = _held(files)
    held: dict[str, list[Row]] = defaultdict(list)
    seeds = set(spec.seed_range)
    for cells in plan.space.cells():
        for i, shape in enumerate(_shapes(cells, shapes)):
            group = plan.groups.get(shape)
            if group is None:
                group = plan.groups[shape] = Group(cells.values(i))
            missing = index.missing_seeds(cells.ids[i], plan.seeding.of(cells.ids[i]), retry)
            plan.cells += 1
            group.runs += spec.seeds.count
            group.missing += len(missing)
            plan.failed += len(index.unwanted(retry).get(cells.ids[i], set()) & seeds)
            if checkpoints:
                for seed in missing:
                    if (run := run_id(cells.ids[i], seed)) in checkpoints:
                        held[checkpoints[run]].append((cells, i, seed))
    plan.runs = sum(group.runs for group in plan.groups.values())
    plan.missing = sum(group.missing for group in plan.groups.values())
    _refuse_conflicts(spec, task, plan)
    plan.resumed = [_order(plan, rows, resume=(pack,)) for pack, rows in sorted(held.items())]
    return plan


def _open_plan(spec: Spec, task: Task[Any], index: RunIndex, files: SweepFiles, retry: bool) -> Plan:
    """Count a sweep whose cells a search will propose. Shapes are not known yet: one sample cell stands for all."""
    plan = Plan(spec, task, {}, index, [], retry, Seeding(spec), cells=spec.budget.cells or 0)
    plan.runs = plan.cells * spec.seeds.count
    plan.missing = max(0, plan.runs - _counted(spec, index, retry))
    plan.failed = sum(map(len, index.unwanted(retry).values()))
    plan.checkpoints = _held(files)
    sample = Group(plan.space.sample_cell(), plan.runs, plan.missing)
    plan.groups[_sample_shape(sample.values, spec, task)] = sample
    _refuse_conflicts(spec, task, plan)
    return plan


def _held(files: SweepFiles) -> dict[str, str]:
    """Runs that are in a checkpoint, and the pack that it is of."""
    return {run: pack for pack, runs in files.checkpoints() for run in runs}


def _counted(spec: Spec, index: RunIndex, retry: bool) -> int:
    """Runs of a search that need not be run again.

    A cell that is proposed again has more seeds than the spec gives it, and these count; those of a race come on top.
    """
    seeds = range(spec.seeds.first, sys.maxsize) if spec.seeds.up_to is None else spec.seed_range
    settled = (*index.seeds.values(), *index.unwanted(retry).values())
    return sum(seed in seeds for cell in settled for seed in cell)


def decide_sizes(plan: Plan, sizing: Sizing) -> None:
    """Say how many runs of each shape go into a pack, and how long they will take."""
    plan.workers = sizing.workers
    wanted = plan.spec.resources.pack
    for group in plan.groups.values():
        group.size = _of_whole_cells(plan.spec, sizing.size(group.values, group.runs, wanted))
        if group.missing:
            speed = sizing.speed(group.values, group.size)
            settings = plan.task.settings(group.values)
            group.seconds_per_run = speed.run_seconds(group.size, settings.steps, len(measured_steps(settings)))
            plan.pack_bytes = max(plan.pack_bytes, speed.lane_bytes * group.size)


def _of_whole_cells(spec: Spec, size: int) -> int:
    """The size rounded down so that packs hold whole cells, where a rule compares cells and one fits in."""
    rule, seeds = spec.early_terminate, spec.seeds.count
    return size - size % seeds if rule is not None and rule.per == "cell" and size >= seeds else size


def orders(plan: Plan) -> Iterator[PackOrder]:
    """The packs of the plan: those with a checkpoint first, then the rest, shape by shape."""
    yield from plan.resumed
    resumed = {run for order in plan.resumed for run in order.run_ids}
    yield from packed(plan, plan.space.cells(), resumed)


def packed(plan: Plan, chunks: Iterable[Cells], without: set[str] = frozenset()) -> Iterator[PackOrder]:  # type: ignore[assignment]
    """Cells with their missing seeds as packs of the planned sizes; a pack holds one shape.

    Where a stopping rule compares cells, a cell that does not fit into what is left of a pack starts the next one.
    """
    shapes = plan.task.names("shape")
    rule = plan.spec.early_terminate
    whole = rule is not None and rule.per == "cell"
    filling: dict[Shape, list[Row]] = defaultdict(list)
    for cells in chunks:
        for i, shape in enumerate(_shapes(cells, shapes)):
            seeds = plan.to_begin(cells.ids[i])
            if without:
                seeds = [seed for seed in seeds if run_id(cells.ids[i], seed) not in without]
            size = plan.groups[shape].size
            if whole and filling[shape] and len(seeds) <= size < len(filling[shape]) + len(seeds):
                yield _order(plan, filling.pop(shape))
            for seed in seeds:
                filling[shape].append((cells, i, seed))
                if len(filling[shape]) == size:
                    yield _order(plan, filling.pop(shape))
    for runs in filter(None, filling.values()):
        yield _order(plan, runs)


def _order(plan: Plan, runs: list[Row], resume: tuple[str, ...] = ()) -> PackOrder:
    first = runs[0][0]
    cells = [chunk.ids[i] for chunk, i, _ in runs]
    seeds = [seed for _, _, seed in runs]
    columns = {name: [chunk.columns[name][i] for chunk, i, _ in runs] for name in first.columns}
    shared = {name: column[0] for name, column in columns.items() if plan.task.parameters[name].kind == "shape"}
    if plan.checkpoints and not resume:
        runs_held = (plan.checkpoints.get(run_id(c, s)) for c, s in zip(cells, seeds, strict=True))
        resume = tuple(dict.fromkeys(pack for pack in runs_held if pack))
    attempts = [plan.index.attempts.get(c, {}).get(s, 0) for c, s in zip(cells, seeds, strict=True)]
    return PackOrder(
        plan.spec.name,
        plan.task.name,
        {**first.common, **shared},
        {name: column for name, column in columns.items() if name not in shared},
        cells,
        seeds,
        attempt=1 + max(attempts),
        resume=resume,
        keep_weights=plan.spec.keep == "weights",
    )


def _shapes(cells: Cells, shapes: list[str]) -> Iterator[Shape]:
    """The shape of each cell, as the values of its shape parameters."""
    varying = [cells.columns[name] for name in shapes if name in cells.columns]
    if not varying:
        return iter([()] * len(cells))
    return zip(*varying, strict=True)


def _sample_shape(values: Mapping[str, Value], spec: Spec, task: Task[Any]) -> Shape:
    return tuple(values[name] for name in task.names("shape") if name in spec.axes())


def _refuse_conflicts(spec: Spec, task: Task[Any], plan: Plan) -> None:
    """Rules between parameters, for every combination of shapes that the sweep has."""
    found: dict[str, None] = {}
    for group in plan.groups.values():
        found |= dict.fromkeys(task.conflicts(task.settings(group.values)))
    if found:
        raise SpecError(spec.name, [Problem("parameters", text) for text in found])
