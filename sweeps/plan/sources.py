"""Where packs come from: cells that are known beforehand, or cells that a search proposes as results arrive."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Protocol

from mislabel.sweeps.cells.space import Cells, Space
from mislabel.sweeps.plan.backlog import Backlog
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.plan import Shape, shapes_of
from mislabel.sweeps.plan.seed_race import Race, cells_by_branch
from mislabel.sweeps.store.cell_means import Mean, Means
from mislabel.tasks.parameters import Value

if TYPE_CHECKING:
    from mislabel.sweeps.search.search import Branches, Proposal

# Keep packs small enough that each worker gets this many; else the search learns too late.
_PACKS_PER_WORKER = 10
# How long a free worker waits for a batch of proposals that is being prepared. Meanwhile no report is handled.
_PATIENCE_SECONDS = 0.2


class Source(Protocol):
    def next(self) -> PackOrder | None:
        """A pack, or None if there is none now."""

    def ended(self, cell: str, mean: Mean) -> None:
        """All seeds of the cell have ended."""


class GridSource:
    def __init__(self, backlog: Backlog) -> None:
        self._orders = backlog.orders(backlog.plan.space.cells)

    def next(self) -> PackOrder | None:
        return next(self._orders, None)

    def ended(self, cell: str, mean: Mean) -> None:
        pass


class SearchSource:
    """Packs of cells that a search proposes as results arrive.

    With `ahead`, the search has its own thread, which prepares the next batch while packs train. The thread handles
    results and requests in the order of the calls, so that proposals depend on that order alone.
    """

    def __init__(self, backlog: Backlog, search: "Branches", means: Means, ahead: bool = False) -> None:
        self.backlog = backlog
        self.plan = backlog.plan
        self.search = search
        self._means = means
        self._ready: deque[PackOrder] = deque()
        self._running: set[str] = set()
        """Cells with runs that were handed out and have not ended."""
        self._at_once = max(1, search.limit // (_PACKS_PER_WORKER * self.plan.workers))
        self._thread = ThreadPoolExecutor(1, "search") if ahead else None
        self._batch: Future[list[Proposal]] | None = None
        self._tells: deque[Future[None]] = deque()
        self._over = False
        for proposals in search.unfinished:
            self._pack(proposals)

    def next(self) -> PackOrder | None:
        while not self._ready and not self._over:
            proposals = self._proposals()
            if proposals is None:
                return None
            self._over = not proposals
            self._pack(proposals)
        if self._thread and not self._over and not self._batch and len(self._ready) <= 1:
            self._batch = self._thread.submit(self.search.ask, self._cells_per_pack())
        return self._ready.popleft() if self._ready else None

    def ended(self, cell: str, mean: Mean) -> None:
        self._running.discard(cell)
        seeds = len(self.backlog.seeding.of(cell))
        if self._thread is None:
            self.search.tell(cell, mean, seeds)
            return
        self._tells.append(self._thread.submit(self.search.tell, cell, mean, seeds))
        while self._tells and self._tells[0].done():
            self._tells.popleft().result()

    def _proposals(self) -> "list[Proposal] | None":
        """The next batch, empty at the end; None while it is being prepared and other packs are running."""
        if self._thread is None:
            return self.search.ask(self._cells_per_pack())
        self._batch = self._batch or self._thread.submit(self.search.ask, self._cells_per_pack())
        wait([self._batch], _PATIENCE_SECONDS if self._running else None)
        if not self._batch.done():
            return None
        batch, self._batch = self._batch, None
        return batch.result()

    def _cells_per_pack(self) -> int:
        largest = max((group.size for group in self.backlog.groups.values()), default=0)
        return max(1, min(self._at_once, largest // self.plan.spec.seeds.count))

    def _pack(self, proposals: "Sequence[Proposal]") -> None:
        missing: dict[str, Proposal] = {}
        for proposal in proposals:
            self.backlog.seeding.want(proposal.cell, proposal.seeds)
        copy_missing([proposal.cell for proposal in proposals], self.backlog, self._means)
        for proposal in proposals:
            mean = self._means.of(proposal.cell)
            if mean is None:
                missing[proposal.cell] = proposal
            else:  # the store already has its runs
                self.ended(proposal.cell, mean)
        if not missing:
            return
        self._running |= missing.keys()
        cells = cells_from({cell: proposal.values for cell, proposal in missing.items()}, self.plan.space)
        runs = max(1, self.search.limit) * self.plan.spec.seeds.count
        new = {shape: runs for shape in shapes_of(self.plan.task, cells) if shape not in self.backlog.groups}
        self.backlog.expect(cells, new)
        self._ready.extend(self.backlog.orders(lambda: [cells]))


class SeedRaceSource:
    """The packs of another source; once all its cells have ended, the packs of a race between them."""

    def __init__(self, source: Source, backlog: Backlog, means: Means) -> None:
        self.backlog = backlog
        self.plan = backlog.plan
        self._means = means
        self._race: Race | None = None
        self._source = source
        self._ready: deque[PackOrder] = deque()
        self._running: set[str] = set()
        """Cells with runs that were handed out and have not ended."""
        self._axes = list(self.plan.spec.axes())
        self._cells = backlog.index.cells(self._axes)
        """Every cell, with the values of its axes."""

    def next(self) -> PackOrder | None:
        order = self._source.next()
        if order is None:
            if not self._ready and not self._running:
                self._ready.extend(self._round())
            order = self._ready.popleft() if self._ready else None
        if order is not None:
            self._running.update(order.cells)
            for lane, cell in enumerate(order.cells):
                if cell not in self._cells:
                    values = order.values(lane)
                    self._cells[cell] = {name: values[name] for name in self._axes}
        return order

    def ended(self, cell: str, mean: Mean) -> None:
        self._running.discard(cell)
        self._source.ended(cell, mean)

    def _round(self) -> Iterator[PackOrder]:
        spec = self.plan.spec
        if self._race is None:
            # Cells that were copied from other sweeps have been in no pack.
            self._cells = {**self.backlog.index.cells(self._axes), **self._cells}
            self._race = Race(spec, self._means, cells_by_branch(spec, self._cells))
        while contenders := self._race.next_round():
            copy_missing(contenders, self.backlog, self._means)
            contenders = [cell for cell in contenders if self._means.of(cell) is None]
            if contenders:
                break
        else:
            return
        parameters = self.plan.task.parameters
        values = {
            cell: {name: parameters[name].typed(value) for name, value in self._cells[cell].items()}
            for cell in sorted(contenders)
        }
        cells = cells_from(values, self.plan.space)
        runs: Counter[Shape] = Counter()
        for cell, shape in zip(cells.ids, shapes_of(self.plan.task, cells), strict=True):
            runs[shape] += len(self.backlog.missing_seeds(cell))
        self.backlog.expect(cells, runs)
        yield from self.backlog.orders(lambda: [cells])


def copy_missing(cells: Iterable[str], backlog: Backlog, means: Means) -> None:
    """Copy the missing runs of these cells that other sweeps have, and add them to the means."""
    missing = [cell for cell in cells if means.of(cell) is None]
    for outcome in backlog.copy_from_other_sweeps(missing, means.names):
        means.add(outcome)


def cells_from(values: Mapping[str, Mapping[str, Value]], space: Space) -> Cells:
    """Cells, given by id with the values of their axes, as columns that are ready to be packed."""
    columns = {name: [cell[name] for cell in values.values()] for name in space.axes}
    common = {name: value for name, value in space.base.items() if name not in columns}
    return Cells(list(values), common, columns)
