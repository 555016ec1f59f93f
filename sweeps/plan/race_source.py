"""After all cells have ended, the best of them race for more seeds: the packs of the rounds in `seed_race`."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

import pyarrow.compute as pc

from mislabel.sweeps.cells.space import Cells, branch_of, branching_axes
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.pack_size import Sizing
from mislabel.sweeps.plan.plan import Group, Plan, Shape, decide_sizes, packed
from mislabel.sweeps.plan.seed_race import Race
from mislabel.sweeps.plan.sources import Source
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Mean, Means
from mislabel.sweeps.store.ended_runs import Ended
from mislabel.sweeps.store.store import SweepFiles


class SeedRaceSource:
    """The packs of another source, and when all its cells have ended, those of a race between them."""

    def __init__(self, source: Source, plan: Plan, files: SweepFiles, means: Means, sizing: Sizing) -> None:
        self.plan = plan
        self.files = files
        self.race = Race(plan.spec, means)
        self._source = source
        self._sizing = sizing
        self._ready: deque[PackOrder] = deque()
        self._out: set[str] = set()
        """Cells that were handed out and have not ended."""

    def next(self) -> PackOrder | None:
        order = self._source.next()
        if order is None:
            if not self._ready and not self._out:
                self._ready.extend(self._round())
            order = self._ready.popleft() if self._ready else None
        if order is not None:
            self._out.update(order.cells)
        return order

    def ended(self, cell: str, mean: Mean) -> None:
        self._out.discard(cell)
        self._source.ended(cell, mean)

    def _round(self) -> Iterator[PackOrder]:
        self.race.begin(cells_by_branch(self.plan.spec, self.files))
        contenders = self.race.go_on()
        if not contenders:
            return
        self.plan.ended = Ended(self.plan.spec, self.files)
        cells = self._cells(contenders)
        self._note_groups(cells)
        decide_sizes(self.plan, self._sizing)
        yield from packed(self.plan, [cells])

    def _cells(self, contenders: Sequence[str]) -> Cells:
        """The contenders with their parameters, which their first runs have in the store."""
        parameters = self.plan.task.parameters
        chosen = pc.field("cell_id").isin(list(contenders)) & (pc.field("seed") == self.plan.spec.seeds.first)
        rows = self.files.read("runs", ["cell_id", *parameters], chosen).sort_by("cell_id").to_pylist()
        axes = self.plan.spec.axes()
        columns = {name: [parameters[name].typed(row[name]) for row in rows] for name in axes}
        common = {name: p.typed(rows[0][name]) for name, p in parameters.items() if name not in axes}
        return Cells([row["cell_id"] for row in rows], common, columns)

    def _note_groups(self, cells: Cells) -> None:
        """How many runs there are of each shape, as far as is known now."""
        shapes = [name for name in self.plan.task.names("shape") if name in cells.columns]
        runs: dict[Shape, int] = defaultdict(int)
        for i, cell in enumerate(cells.ids):
            shape = tuple(cells.columns[name][i] for name in shapes)
            runs[shape] += len(self.plan.seeding.of(cell)) - len(self.plan.ended.seeds.get(cell, ()))
            self.plan.groups.setdefault(shape, Group(cells.values(i)))
        for shape, group in self.plan.groups.items():
            group.runs = group.missing = runs.get(shape, 0)


def race_is_on(spec: Spec, files: SweepFiles, retry: bool) -> bool:
    """Whether cells of a sweep whose runs have all ended are still to get more seeds."""
    if spec.seeds.up_to is None:
        return False
    race = Race(spec, Means(spec, files, retry))
    race.begin(cells_by_branch(spec, files))
    return bool(race.go_on())


def cells_by_branch(spec: Spec, files: SweepFiles) -> list[list[str]]:
    """All cells in the store, branch by branch, in an order that does not depend on when they ended."""
    axes = branching_axes(spec)
    branches: dict[str, dict[str, None]] = defaultdict(dict)
    for row in files.read("runs", ["cell_id", *axes]).sort_by("cell_id").to_pylist():
        branches[branch_of(row, axes)][row["cell_id"]] = None
    return [list(cells) for _, cells in sorted(branches.items())]
