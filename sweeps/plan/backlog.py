"""The runs of a launch that are still to be begun, as packs.

A plan never changes. Whatever changes while a sweep runs is here: which runs have begun, how many seeds each cell gets,
and the shapes that a search proposes.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mislabel.sweeps.cells.space import Cells
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.pack_size import Sizing
from mislabel.sweeps.plan.plan import Group, Plan, Shape, shape_of, shapes_of, sized_group
from mislabel.sweeps.plan.reuse import Copied, Reuse
from mislabel.sweeps.store.cell_means import Seeding
from mislabel.sweeps.store.outcome import Outcome
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.tasks.parameters import Value

Row = tuple[Cells, int, int]
"""A run to be packed: a chunk of cells, the cell's position in it, and the seed."""
# Parked packs at different steps are merged once they have enough lanes for this many full packs.
_MOST_PACKS = 2


class Backlog:
    """Makes the packs of one launch. Every run is begun at most once per launch."""

    def __init__(self, plan: Plan, index: RunIndex, sizing: Sizing, reuse: Reuse | None = None) -> None:
        self.plan = plan
        self._reuse = reuse
        self.copied: deque[Copied] = deque()
        """Rows that were copied from other sweeps and that the driver has not seen."""
        self.index = index
        self.seeding = Seeding(plan.spec)
        self._sizing = sizing
        self.groups = dict(plan.groups)
        """The runs of each shape, with their pack size."""
        self._begun: dict[str, set[int]] = defaultdict(set)
        """By cell, the seeds that this launch has begun."""
        missing = {shape: group for shape, group in plan.groups.items() if group.missing}
        known = all(group.seconds_per_run for group in missing.values())
        self._step_seconds = {s: group.seconds_per_run / group.steps for s, group in missing.items()} if known else {}
        """Seconds of a run-step by shape, including its part of the measurements; empty unless all shapes are known."""

    def expect(self, cells: Cells, runs: Mapping[Shape, int]) -> None:
        """Choose pack sizes for the shapes of these cells, from the number of runs that are expected of each."""
        values = {shape: i for i, shape in enumerate(shapes_of(self.plan.task, cells)) if shape in runs}
        for shape, i in values.items():
            group = Group(cells.values(i), runs[shape], missing=runs[shape])
            self.groups[shape] = group = sized_group(self.plan.space, group, self._sizing)
            if self._step_seconds and group.seconds_per_run:
                self._step_seconds[shape] = group.seconds_per_run / group.steps
        self._sizing.keep()

    @property
    def has_costs(self) -> bool:
        """Whether work is counted in seconds; else in steps."""
        return bool(self._step_seconds)

    @property
    def work(self) -> float:
        """The work of all runs that were missing at the start: seconds of one worker, or steps if no cost is known."""
        groups = self.plan.groups.values()
        return sum(group.missing * group.steps * self.step_work(group.values) for group in groups)

    def step_work(self, values: Mapping[str, Value] | None) -> float:
        """The work of one step of a run with these values; the mean over all shapes if its shape is not known."""
        costs = self._step_seconds
        if not costs:
            return 1.0
        known = None if values is None else costs.get(shape_of(self.plan.task, values))
        return sum(costs.values()) / len(costs) if known is None else known

    def missing_seeds(self, cell: str) -> list[int]:
        """The cell's seeds that are missing in the store and that this launch has not begun."""
        missing = self.index.missing_seeds(cell, self.seeding.of(cell), self.plan.retry)
        begun = self._begun.get(cell)
        return [seed for seed in missing if seed not in begun] if begun else missing

    def copy_from_other_sweeps(self, cells: Iterable[str], objectives: Sequence[str]) -> list[Outcome]:
        """Copy those of the cells' missing runs that other sweeps of the store have; returns how they ended."""
        runs = [run_id(cell, seed) for cell in cells for seed in self.missing_seeds(cell)]
        copied = self._reuse.copy(runs, self.index) if self._reuse else []
        self.copied.extend(copied)
        return [outcome for each in copied for outcome in each.outcomes(objectives)]

    def orders(self, cells: Callable[[], Iterable[Cells]]) -> Iterator[PackOrder]:
        """The missing runs of these cells as packs: one pack per checkpoint, then packs of the planned sizes."""
        if self.plan.checkpoints:
            yield from self._resumed(cells())
        with_gaps = self._with_gaps(cells) if self.index.count else set()
        for _, pack in self._cut(cells(), with_gaps):
            if pack.rows:
                yield self._order(pack.rows)

    def _resumed(self, chunks: Iterable[Cells]) -> Iterator[PackOrder]:
        """The runs with a checkpoint, together with the other runs of that checkpoint."""
        checkpoints = self.plan.checkpoints
        held: dict[str, list[Row]] = defaultdict(list)
        for cells in chunks:
            for i, cell in enumerate(cells.ids):
                for seed in self.missing_seeds(cell):
                    if (run := run_id(cell, seed)) in checkpoints:
                        held[checkpoints[run]].append((cells, i, seed))
        for pack, rows in sorted(held.items()):
            yield self._order(rows, resume=(pack,))

    def _with_gaps(self, cells: Callable[[], Iterable[Cells]]) -> set[Shape]:
        """The shapes whose packs are cut as if nothing were stored: lanes of ended runs stay empty.

        A run is rounded differently in other packs. If a pack lost a lane before a crash, because the run diverged, the
        runs of all following packs would else move up. But if a pack has both finished and missing runs, the sweep was
        widened. Then packs are filled, which needs fewer of them.
        """
        shapes = set(self.groups)
        for shape, pack in self._cut(cells(), self.groups):
            if pack.rows and pack.has_finished:
                shapes.discard(shape)
        return shapes

    def _cut(self, chunks: Iterable[Cells], with_gaps: Container[Shape]) -> Iterator[tuple[Shape, "_Filled"]]:
        """Packs of one shape each. If a rule compares cells, a cell that does not fit into a pack starts a new one."""
        rule = self.plan.spec.early_terminate
        whole_cells = rule is not None and rule.per == "cell"
        filling: dict[Shape, _Filled] = defaultdict(_Filled)
        for cells in chunks:
            for i, shape in enumerate(shapes_of(self.plan.task, cells)):
                cell, size = cells.ids[i], self.groups[shape].size
                missing = self.missing_seeds(cell)
                finished = self.index.finished_seeds(cell) if len(missing) < len(self.seeding.of(cell)) else ()
                seeds = self.seeding.of(cell) if shape in with_gaps else missing
                if whole_cells and filling[shape].lanes and len(seeds) <= size < filling[shape].lanes + len(seeds):
                    yield shape, filling.pop(shape)
                wanted = set(missing)
                for seed in seeds:
                    pack = filling[shape]
                    pack.lanes += 1
                    if seed in wanted:
                        pack.rows.append((cells, i, seed))
                    pack.has_finished |= seed in finished
                    if pack.lanes == size:
                        yield shape, filling.pop(shape)
        yield from filling.items()

    def _order(self, rows: list[Row], resume: tuple[str, ...] = ()) -> PackOrder:
        first, task = rows[0][0], self.plan.task
        cells = [chunk.ids[i] for chunk, i, _ in rows]
        seeds = [seed for _, _, seed in rows]
        columns = {name: [chunk.columns[name][i] for chunk, i, _ in rows] for name in first.columns}
        shared = {name: column[0] for name, column in columns.items() if task.parameters[name].kind == "shape"}
        attempts = [self.index.attempts.get(cell, {}).get(seed, 0) for cell, seed in zip(cells, seeds, strict=True)]
        for cell, seed in zip(cells, seeds, strict=True):
            self._begun[cell].add(seed)
        return PackOrder(
            self.plan.spec.name,
            task.name,
            {**first.common, **shared},
            {name: column for name, column in columns.items() if name not in shared},
            cells,
            seeds,
            attempt=1 + max(attempts),
            resume=resume,
            keep_weights=self.plan.spec.keep == "weights",
            data=self.plan.data,
            commit=self.plan.commit,
        )


@dataclass
class _Filled:
    """A pack that is being filled."""

    rows: list[Row] = field(default_factory=list)
    lanes: int = 0
    """The runs, and gaps for runs that need not be run."""
    has_finished: bool = False
    """Whether a gap belongs to a run that was trained to its last step."""


class Parked(NamedTuple):
    order: PackOrder
    step: int


class RefillQueue:
    """Packs emptied by early stopping wait here to be merged with others at the same step.

    Lanes of a pack share each operation, so a step of a nearly empty pack costs almost as much as a step of a full one.
    Runs that survive a rung are therefore checkpointed there and continue together with the survivors of other packs.
    In the meantime, workers begin other runs. If parked packs are at different steps, those behind catch up first.
    """

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._parked: dict[Shape, list[Parked]] = defaultdict(list)
        self._most: dict[Shape, int] = {}
        """The largest number of lanes, for shapes whose packs did not fit into memory."""

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def put(self, order: PackOrder, step: int) -> None:
        """Park the rest of a pack, which is at this step."""
        self._parked[self._shape(order)].append(Parked(order, step))

    def holds(self, order: PackOrder) -> bool:
        return bool(self._parked[self._shape(order)])

    def full(self) -> PackOrder | None:
        """A full pack of runs at the same step; if very many wait, a pack of those furthest behind."""
        for shape, parked in self._parked.items():
            size = self._size(parked[0].order) if parked else 0
            lanes: dict[int, int] = defaultdict(int)
            for pack in parked:
                lanes[pack.step] += len(pack.order)
            for step in sorted(lanes, reverse=True):
                if lanes[step] >= size:
                    return self._joined(shape, [pack for pack in parked if pack.step == step], size)
            if sum(lanes.values()) >= _MOST_PACKS * size > 0:
                return self._joined(shape, parked, size)
        return None

    def next(self) -> PackOrder | None:
        """Parked packs of one shape as one order, even if that is not a full pack."""
        shape, parked = next(((shape, parked) for shape, parked in self._parked.items() if parked), ((), []))
        return self._joined(shape, parked, self._size(parked[0].order)) if parked else None

    def filled(self, order: PackOrder) -> PackOrder:
        """The order, merged with parked packs of its shape that fit into it."""
        shape = self._shape(order)
        room = self._size(order) - len(order)
        fitting = [pack for pack in self._parked[shape] if len(pack.order) <= room]
        return order.joined(self._joined(shape, fitting, room)) if fitting else order

    def limit(self, order: PackOrder, lanes: int) -> None:
        """From now on, packs of the order's shape have at most this many lanes."""
        shape = self._shape(order)
        self._most[shape] = min(lanes, self._most.get(shape, lanes))

    def fitting(self, order: PackOrder) -> list[PackOrder]:
        """The order, split if its shape has a limit."""
        most = self._most.get(self._shape(order), len(order))
        return [order.select(range(i, min(i + most, len(order)))) for i in range(0, len(order), most)]

    def _joined(self, shape: Shape, among: list[Parked], size: int) -> PackOrder:
        """Merge these packs, those behind first, until the size is reached; the first one always fits."""
        joined: PackOrder | None = None
        for pack in sorted(among, key=lambda pack: pack.step):
            if joined is None or len(joined) + len(pack.order) <= size:
                joined = pack.order if joined is None else joined.joined(pack.order)
                self._parked[shape].remove(pack)
        assert joined is not None
        return joined

    def _size(self, order: PackOrder) -> int:
        """The planned size of packs of the order's shape."""
        shape = self._shape(order)
        size = self._backlog.groups[shape].size if shape in self._backlog.groups else len(order)
        return min(size, self._most.get(shape, size))

    def _shape(self, order: PackOrder) -> Shape:
        return shape_of(self._backlog.plan.task, order.common)
