"""Where packs come from: cells that are known beforehand, or cells that a search proposes as results come in."""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Protocol

from mislabel.sweeps.cells.space import Cells, Space
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.pack_size import Sizing
from mislabel.sweeps.plan.plan import Group, Plan, decide_sizes, orders, packed
from mislabel.sweeps.store.cell_means import Mean, Means

if TYPE_CHECKING:
    from mislabel.sweeps.search.branch_searches import Branches
    from mislabel.sweeps.search.search import Proposal

# A worker trains this many packs at least, so that the search can learn from its results, however large packs could be.
_ROUNDS = 10
# How long a worker may wait for a batch that is being prepared before others are attended to.
_PATIENCE_SECONDS = 0.2


class Source(Protocol):
    """Where packs come from."""

    def next(self) -> PackOrder | None:
        """A pack, or None where there is none now."""

    def ended(self, cell: str, mean: Mean) -> None:
        """All seeds of the cell have ended."""


class GridSource:
    """Packs of cells that are known beforehand."""

    def __init__(self, plan: Plan) -> None:
        self._orders: Iterator[PackOrder] = orders(plan)

    def next(self) -> PackOrder | None:
        return next(self._orders, None)

    def ended(self, cell: str, mean: Mean) -> None:
        pass


class SearchSource:
    """Packs of cells that a search proposes as results come in.

    With `ahead`, the search lives in a thread of its own, which prepares the next batch while packs train. It takes in
    results and is asked in the order in which it was called, so that what it proposes depends on that order alone.
    """

    def __init__(self, plan: Plan, search: "Branches", sizing: Sizing, means: Means, ahead: bool = False) -> None:
        self.plan = plan
        self.search = search
        self.sizing = sizing
        self._means = means
        self._space = plan.space
        self._ready: deque[PackOrder] = deque()
        self._out: set[str] = set()
        """Cells that were handed out and have not ended."""
        self._at_once = max(1, search.limit // (_ROUNDS * plan.workers))
        self._thread = ThreadPoolExecutor(1, "search") if ahead else None
        self._batch: Future[list[Proposal]] | None = None
        self._tells: deque[Future[None]] = deque()
        self._over = False
        self._pack(search.unfinished)

    def next(self) -> PackOrder | None:
        while not self._ready and not self._over:
            proposals = self._asked()
            if proposals is None:
                return None
            self._over = not proposals
            self._pack(proposals)
        if self._thread and not self._over and not self._batch and len(self._ready) <= 1:
            self._batch = self._thread.submit(self.search.ask, self._cells_per_pack())
        return self._ready.popleft() if self._ready else None

    def ended(self, cell: str, mean: Mean) -> None:
        self._out.discard(cell)
        seeds = len(self.plan.seeding.of(cell))
        if self._thread is None:
            self.search.tell(cell, mean, seeds)
            return
        self._tells.append(self._thread.submit(self.search.tell, cell, mean, seeds))
        while self._tells and self._tells[0].done():
            self._tells.popleft().result()

    def _asked(self) -> "list[Proposal] | None":
        """The next batch, none at the end; None while it is being prepared and other packs are running."""
        if self._thread is None:
            return self.search.ask(self._cells_per_pack())
        self._batch = self._batch or self._thread.submit(self.search.ask, self._cells_per_pack())
        wait([self._batch], _PATIENCE_SECONDS if self._out else None)
        if not self._batch.done():
            return None
        batch, self._batch = self._batch, None
        return batch.result()

    def _cells_per_pack(self) -> int:
        sizes = [group.size for group in self.plan.groups.values()]
        seeds = self.plan.spec.seeds.count
        return max(1, min(self._at_once, max(sizes) // seeds if sizes else 1))

    def _pack(self, proposals: "Sequence[Proposal]") -> None:
        missing: dict[str, Proposal] = {}
        for proposal in proposals:
            if proposal.seeds > len(self.plan.seeding.of(proposal.cell)):
                self.plan.seeding.want(proposal.cell, proposal.seeds)
            mean = self._means.of(proposal.cell)
            if mean is None:
                missing[proposal.cell] = proposal
            else:  # the store has its runs, for whatever reason
                self.ended(proposal.cell, mean)
        if not missing:
            return
        self._out |= missing.keys()
        cells = _cells_from(list(missing.values()), self._space)
        shapes = [name for name in self.plan.task.names("shape") if name in cells.columns]
        for i in range(len(cells)):
            shape = tuple(cells.columns[name][i] for name in shapes)
            if shape not in self.plan.groups:
                group = Group(cells.values(i), runs=max(1, self.search.limit) * self.plan.spec.seeds.count)
                self.plan.groups[shape] = group
        decide_sizes(self.plan, self.sizing)
        for order in packed(self.plan, [cells]):
            self.plan.note_begun(order)
            self._ready.append(order)


def _cells_from(proposals: "Sequence[Proposal]", space: Space) -> Cells:
    """Proposals as columns, ready to be packed."""
    columns = {name: [proposal.values[name] for proposal in proposals] for name in space.axes}
    common = {name: value for name, value in space.base.items() if name not in columns}
    return Cells([proposal.cell for proposal in proposals], common, columns)
