"""Proposes cells with Optuna, and learns from the mean over each cell's seeds.

Proposals depend on the search's seed, the number of the batch and the results before it. To keep that order fixed,
results reach the sampler only when a batch is asked for, sorted by trial number. Batches are in the journal, results in
the store. A restart rebuilds the study from both, and runs unfinished proposals before it asks for new ones.

A cell that is proposed again gets the same number of seeds once more. The new trial's value is the mean over all seeds.

Each branch of a sweep has a search, and they are used in turn. A sweep without `grid: true` has one branch.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.search.journal import Batch, EarlierCell, Journal, StoredTrial
from mislabel.sweeps.search.optuna_study import CellStudy
from mislabel.sweeps.search.warm_start import Earlier
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value

_log = logging.getLogger(__name__)
# A model may propose excluded cells, or its best cell again and again. After this many rejected proposals, propose a
# random cell.
_TRIES = 10
# A cell that is proposed again and again gets at most this many times its first seeds.
_MOST_REPEATS = 4

Known = Callable[[str, int], Mean | None]
"""The mean of a cell over this many seeds; None if not all of them have ended."""


@dataclass(frozen=True)
class Proposal:
    cell: str
    values: dict[str, Value]
    number: int
    """Optuna's number of the trial."""
    seeds: int
    """How many seeds the cell has with this proposal."""
    request: int = -1
    """The proposals of one request share packs, also after a restart: see `Branches.unfinished`."""
    turn: int = -1
    """Counts the batches of all branches."""


class Search:
    """The search of a sweep, or of one of its branches."""

    def __init__(self, space: Space, files: SweepFiles, branch: str = "") -> None:
        spec = space.spec
        self.space = space
        self.limit = spec.budget.cells or 0
        self.unfinished: list[Proposal] = []
        """Proposals of earlier launches without a result."""
        self.proposals: list[Proposal] = []
        self._of_cell: dict[str, list[Proposal]] = defaultdict(list)
        self._pending: dict[int, Proposal] = {}
        """Proposals without a result, by trial number."""
        # With `seeds.up_to`, the seed race gives cells more seeds, and the search does not.
        self._most_repeats = 1 if spec.seeds.up_to else _MOST_REPEATS
        self.study = CellStudy(space)
        self._branch = branch
        self._journal = Journal(files, branch)
        self._results: dict[int, tuple[Mean, int]] = {}
        """Results that the study does not have yet: by trial number, the mean and its number of seeds."""
        self._learned: list[tuple[int, int]] = []
        """Results that the study has, but not the journal: trial number, and number of seeds."""
        self._baselines = [(cells.ids[0], cells.values(0)) for cells in space.baselines()]
        self._tried_first = 0
        self._exhausted = False
        self._request, self._turn = -1, -1
        self._random_cells = (chunk.values(i) for chunk in space.drawn(self.limit) for i in range(len(chunk)))

    # Proposing

    def ask(self, count: int, request: int = -1, turn: int = -1) -> list[Proposal]:
        """Propose at most `count` cells, none excluded; fewer at the end of the budget or the space."""
        self._request, self._turn = request, turn
        if self._exhausted or len(self.proposals) >= self.limit:
            return []
        asked: list[Proposal] = []
        self._learn_results()
        self.study.begin_batch(self._journal.next_number)
        rejected: list[int] = []
        while len(asked) < count and len(self.proposals) < self.limit:
            proposal = self._baseline() or self._first_cell() or self._model_cell(rejected)
            proposal = proposal or self._random_cell() or self._known_cell()
            if proposal is None:
                self._exhausted = True
                break
            asked.append(proposal)
        for number in rejected:
            self.study.reject(number)
        if asked:
            self._write_batch(asked)
        return asked

    def _baseline(self) -> Proposal | None:
        """The next cell of `baselines` that was not proposed yet."""
        for cell, values in self._baselines:
            if not self._of_cell[cell]:
                return self._add(cell, *self.study.suggest(values))
        return None

    def _first_cell(self) -> Proposal | None:
        """The next cell of `try_first`. The sampler chooses the axes that it leaves open."""
        for given in self.space.spec.try_first[self._tried_first :]:
            self._tried_first += 1
            number, values = self.study.suggest(given)
            if proposal := self._proposed(number, values):
                return proposal
            self.study.reject(number)
        return None

    def _model_cell(self, rejected: list[int]) -> Proposal | None:
        for _ in range(_TRIES):
            number, values = self.study.suggest()
            if proposal := self._proposed(number, values):
                return proposal
            # The trial counts as running until the end of the batch, so that the model proposes other cells.
            rejected.append(number)
        return None

    def _proposed(self, number: int, values: dict[str, Value]) -> Proposal | None:
        """Propose the cell of a trial; None if it is excluded or has its most seeds."""
        cell = self._cell_id(values)
        if self.space.excludes(values) or not self._may_repeat(cell):
            return None
        return self._add(cell, number, values)

    def _may_repeat(self, cell: str) -> bool:
        return len(self._of_cell[cell]) < self._most_repeats

    def _add(self, cell: str, number: int, values: dict[str, Value]) -> Proposal:
        seeds = (len(self._of_cell[cell]) + 1) * self.space.spec.seeds.count
        proposal = Proposal(cell, values, number, seeds, self._request, self._turn)
        self._pending[number] = proposal
        self._of_cell[cell].append(proposal)
        self.proposals.append(proposal)
        return proposal

    def _random_cell(self) -> Proposal | None:
        """A random cell that was never proposed; None if there is none."""
        for values in self._random_cells:
            cell = self._cell_id(values)
            if not self._of_cell[cell]:
                return self._add(cell, *self.study.suggest(values))
        return None

    def _known_cell(self) -> Proposal | None:
        """The cell with the fewest seeds that may have more; None if there is none, and the search ends."""
        for known in sorted(self.proposals, key=lambda p: len(self._of_cell[p.cell])):
            if self._may_repeat(known.cell) and not self.space.excludes(known.values):
                return self._add(known.cell, *self.study.suggest(known.values))
        return None

    def _write_batch(self, asked: Sequence[Proposal]) -> None:
        found = [(proposal, self.study.trial(proposal.number)) for proposal in asked]
        trials = [StoredTrial(p.values, p.number, trial.params, dict(trial.system_attrs)) for p, trial in found]
        notes, digest = self.study.new_notes(), self.study.dimensions.digest
        results, where = tuple(self._learned), (self._request, self._turn)
        self._journal.append(Batch(trials, results, notes, digest, self._tried_first, *where))
        self._learned = []

    # Learning

    def tell(self, cell: str, mean: Mean, seeds: int) -> None:
        """Give the mean of each objective over this many seeds; a cell without a mean ranks below all others.

        It is the result of the cell's proposals for at most this many seeds. Cells of other searches are ignored.
        """
        for proposal in self._of_cell.get(cell, ()):
            if proposal.seeds <= seeds and proposal.number in self._pending:
                del self._pending[proposal.number]
                self._results[proposal.number] = (mean, seeds)

    def _learn_results(self) -> None:
        for number, (mean, seeds) in sorted(self._results.items()):
            self.study.finish(number, mean)
            self._learned.append((number, seeds))
        self._results.clear()

    def learn_from(self, earlier: Callable[[Space], Sequence[Earlier]]) -> None:
        """Learn from cells of other sweeps before the first proposal. A resumed search uses the same cells again."""
        stored = self._journal.earlier()
        if stored is None:
            stored = [EarlierCell(values=dict(v), mean=mean.values) for v, mean in earlier(self.space)]
            self._journal.write_earlier(stored)
        self.study.begin_batch(0)
        for cell in stored:
            self.study.add_earlier(cell.values, Mean(cell.mean))

    # Resuming

    def adopt(self, files: SweepFiles) -> list[str]:
        """Start with the proposals of another sweep, whose search is the same; returns their cells.

        Proposals depend on the order of results, and so on time. A search that proposed other cells could not reuse the
        other sweep's runs. Nothing is adopted if this search has proposals already.
        """
        if self._journal.next_number or self.space.spec.start_from:
            return []
        trials = self._journal.adopt(Journal(files, self._branch), self.limit)
        return [self._cell_id({**self.space.task.earlier, **trial.values}) for trial in trials]

    def restore(self, known: Known) -> None:
        """Restore the proposals of the journal. Those without a known mean are `unfinished`, and run first."""
        for number, batch in self._journal.batches():
            for trial, seeds in batch.results:
                self._learn_again(trial, seeds, known)
            self._request, self._turn = batch.request, batch.turn
            self.study.begin_batch(number)
            self.study.restore_notes(batch.notes)
            for stored in batch.trials:
                values = {**self.space.task.earlier, **stored.values}
                same_axes = batch.space == self.study.dimensions.digest
                added = self.study.add_stored(replace(stored, values=values), same_axes)
                if added is not None:
                    self._add(self._cell_id(values), added, values)
            self._tried_first = batch.tried_first
        self.study.new_notes()  # the journal has them
        for proposal in list(self._pending.values()):
            self._use_mean(proposal, known)

    def recover(self, lost: Callable[[Space], Sequence[Earlier]], known: Known) -> None:
        """Restore proposals from the store's runs, for batches that were lost."""
        recovered = 0
        for values, _ in lost(self.space):
            cell = self._cell_id(values)
            if not self._of_cell[cell] and (number := self.study.add(values)) is not None:
                self._use_mean(self._add(cell, number, dict(values)), known)
                recovered += 1
        if recovered:
            _log.warning("batches of proposals are missing: %d cells are recovered from the stored runs", recovered)

    def _use_mean(self, proposal: Proposal, known: Known) -> None:
        mean = known(proposal.cell, proposal.seeds)
        if mean is None:
            self.unfinished.append(proposal)
        else:
            self.tell(proposal.cell, mean, proposal.seeds)

    def _learn_again(self, number: int, seeds: int, known: Known) -> None:
        proposal = self._pending.get(number)
        # The spec may have got more seeds since.
        if proposal and (mean := known(proposal.cell, max(seeds, proposal.seeds))):
            del self._pending[number]
            self.study.finish(number, mean)

    def _cell_id(self, values: Mapping[str, Value]) -> str:
        return cell_id(self.space.task, values)


class Branches:
    """The searches of a sweep, with the interface of one search."""

    def __init__(self, space: Space, files: SweepFiles) -> None:
        task = space.task
        self.searches = [Search(b, files, cell_id(task, b.branch) if b.branch else "") for b in space.branches()]
        # Cells of different shape can't share a pack, so each batch comes from one branch.
        self._one_by_one = any(task.parameters[name].kind == "shape" for name in space.spec.branch_axes())
        self._turn = 0
        self._request = 0
        self.limit = sum(search.limit for search in self.searches)

    @property
    def unfinished(self) -> list[list[Proposal]]:
        """The proposals without a result, by request and in the order in which they were proposed.

        Each request is packed alone, as before the restart: in other packs, its runs would be rounded differently.
        """
        waiting = [proposal for search in self.searches for proposal in search.unfinished]
        waiting.sort(key=lambda proposal: (proposal.request, proposal.turn, proposal.number))
        return [list(group) for _, group in groupby(waiting, key=lambda proposal: proposal.request)]

    @property
    def proposals(self) -> list[Proposal]:
        return [proposal for search in self.searches for proposal in search.proposals]

    def learn_from(self, earlier: Callable[[Space], Sequence[Earlier]]) -> None:
        for search in self.searches:
            search.learn_from(earlier)

    def adopt(self, files: SweepFiles) -> list[str]:
        return [cell for search in self.searches for cell in search.adopt(files)]

    def restore(self, known: Known) -> None:
        for search in self.searches:
            search.restore(known)
        self._turn = 1 + max((proposal.turn for proposal in self.proposals), default=-1)
        self._request = 1 + max((proposal.request for proposal in self.proposals), default=-1)

    def recover(self, lost: Callable[[Space], Sequence[Earlier]], known: Known) -> None:
        for search in self.searches:
            search.recover(lost, known)

    def ask(self, count: int) -> list[Proposal]:
        """Propose at most `count` cells, from the branches in turn; none when all searches have ended."""
        asked: list[Proposal] = []
        share = count if self._one_by_one else -(-count // len(self.searches))
        for _ in self.searches:
            search = self.searches[self._turn % len(self.searches)]
            asked += search.ask(min(share, count - len(asked)), self._request, self._turn)
            self._turn += 1
            if len(asked) >= count or (asked and self._one_by_one):
                break
        self._request += 1
        return asked

    def tell(self, cell: str, mean: Mean, seeds: int) -> None:
        for search in self.searches:
            search.tell(cell, mean, seeds)
