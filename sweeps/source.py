"""Where packs come from: cells that are known beforehand, or cells that a search proposes as results come in."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from sweeps.means import Mean
from sweeps.order import PackOrder
from sweeps.plan import Group, Plan, decide_sizes, orders, packed
from sweeps.sizing import Sizing
from sweeps.space import Cells, Space

if TYPE_CHECKING:
    from sweeps.search import Proposal, Search


class Source(Protocol):
    """Where packs come from."""

    def next(self) -> PackOrder | None:
        """A pack, or None where there is none now."""

    def ended(self, cell: str, mean: Mean) -> None:
        """All seeds of the cell have ended."""


class Listed:
    """Packs of cells that are known beforehand."""

    def __init__(self, plan: Plan) -> None:
        self._orders: Iterator[PackOrder] = orders(plan)

    def next(self) -> PackOrder | None:
        return next(self._orders, None)

    def ended(self, cell: str, mean: Mean) -> None:
        pass


class Asked:
    """Packs of cells that a search proposes as results come in."""

    def __init__(self, plan: Plan, search: "Search", sizing: Sizing) -> None:
        self.plan = plan
        self.search = search
        self.sizing = sizing
        self._ready: deque[PackOrder] = deque()
        self._pack(search.unfinished)
        budget = max(1, search.limit)
        # Enough rounds that the search can learn from its results, however large packs could be.
        self._at_once = max(1, budget // (10 * plan.workers))

    def next(self) -> PackOrder | None:
        if not self._ready:
            self._pack(self.search.ask(self._cells_per_pack()))
        return self._ready.popleft() if self._ready else None

    def ended(self, cell: str, mean: Mean) -> None:
        self.search.tell(cell, mean)

    def _cells_per_pack(self) -> int:
        sizes = [group.size for group in self.plan.groups.values()]
        seeds = self.plan.spec.seeds.count
        return max(1, min(self._at_once, max(sizes) // seeds if sizes else 1))

    def _pack(self, proposals: "Sequence[Proposal]") -> None:
        if not proposals:
            return
        cells = _cells_from(proposals, self.search.space)
        shapes = [name for name in self.plan.task.names("shape") if name in cells.columns]
        for i in range(len(cells)):
            shape = tuple(cells.columns[name][i] for name in shapes)
            if shape not in self.plan.groups:
                group = Group(cells.values(i), runs=max(1, self.search.limit) * self.plan.spec.seeds.count)
                self.plan.groups[shape] = group
        decide_sizes(self.plan, self.sizing)
        self._ready.extend(packed(self.plan, [cells]))


def _cells_from(proposals: "Sequence[Proposal]", space: Space) -> Cells:
    """Proposals as columns, ready to be packed."""
    columns = {name: [proposal.values[name] for proposal in proposals] for name in space.axes}
    common = {name: value for name, value in space.base.items() if name not in columns}
    return Cells([proposal.cell for proposal in proposals], common, columns)
