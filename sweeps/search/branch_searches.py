"""One search for each branch of a sweep, used in turn. A sweep without `grid: true` has one branch."""

from collections.abc import Callable, Sequence

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.search.search import Known, Proposal, Search
from mislabel.sweeps.search.warm_start import Earlier
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.store import SweepFiles


class Branches:
    """The searches of a sweep, with the interface of one search."""

    def __init__(self, space: Space, files: SweepFiles) -> None:
        task = space.task
        self.searches = [Search(b, files, cell_id(task, b.branch) if b.branch else "") for b in space.branches()]
        # Cells of different shape can't share a pack, so each batch comes from one branch.
        self._one_by_one = any(task.parameters[name].kind == "shape" for name in space.spec.branch_axes())
        self._turn = 0
        self._search_of: dict[str, Search] = {}

    @property
    def limit(self) -> int:
        return sum(search.limit for search in self.searches)

    @property
    def unfinished(self) -> list[Proposal]:
        return [proposal for search in self.searches for proposal in search.unfinished]

    @property
    def proposals(self) -> list[Proposal]:
        return [proposal for search in self.searches for proposal in search.proposals]

    def learn_from(self, earlier: Callable[[Space], Sequence[Earlier]]) -> None:
        for search in self.searches:
            search.learn_from(lambda space=search.space: earlier(space))  # type: ignore[misc]

    def restore(self, known: Known) -> None:
        for search in self.searches:
            search.restore(known)
        self._index_cells()

    def recover(self, lost: Callable[[Space], Sequence[Earlier]], known: Known) -> None:
        for search in self.searches:
            search.recover(lost(search.space), known)
        self._index_cells()

    def _index_cells(self) -> None:
        self._search_of = {proposal.cell: search for search in self.searches for proposal in search.proposals}

    def ask(self, count: int) -> list[Proposal]:
        """Propose at most `count` cells, from the branches in turn; none when all searches have ended."""
        asked: list[Proposal] = []
        share = count if self._one_by_one else -(-count // len(self.searches))
        for _ in self.searches:
            search = self.searches[self._turn % len(self.searches)]
            batch = search.ask(min(share, count - len(asked)))
            self._search_of |= {proposal.cell: search for proposal in batch}
            asked += batch
            self._turn += 1
            if len(asked) >= count or (asked and self._one_by_one):
                break
        return asked

    def tell(self, cell: str, mean: Mean, seeds: int) -> None:
        """Give a cell's mean to the search that proposed it. Other cells are ignored."""
        if cell in self._search_of:
            self._search_of[cell].tell(cell, mean, seeds)
