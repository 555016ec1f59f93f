"""Optuna proposes cells, and is told the mean over each cell's seeds.

Proposals follow from the search's seed, the number of the batch and what was told before it: results are taken in only
when a batch is asked for, in the order of their proposals, and the sampler is made anew for each batch. Batches are
kept in the store, results are there anyway; so after a restart the study is rebuilt from both, and proposals that have
not ended are run before new ones are asked for.

A cell that is proposed again is to have as many seeds more; the new trial is told the mean over all of them.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import optuna
from optuna.samplers import BaseGASampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.search.journal import Batch, KeptTrial, Proposals
from mislabel.sweeps.search.optuna_space import Dimensions
from mislabel.sweeps.search.samplers import is_trusted, knows_conditions, pinned, ranks_pruned, sampler_of, shown
from mislabel.sweeps.search.trial_window import History
from mislabel.sweeps.search.warm_start import Earlier
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value

# A model may propose excluded cells, or its best cell over and over. So often it may; then chance has its turn.
_TRIES = 10
# How many times its first seeds a cell gets at most by being proposed again.
_MOST_REPEATS = 4

Known = Callable[[str, int], Mean | None]
"""The mean of a cell over so many seeds, or None where not all of them have ended."""


@dataclass(frozen=True)
class Proposal:
    cell: str
    values: dict[str, Value]
    number: int
    """Optuna's own number of the trial that is to be told."""
    seeds: int
    """That the cell is to have from now on."""


class Search:
    """Asks for cells, is told how they did."""

    def __init__(self, space: Space, files: SweepFiles, branch: str = "") -> None:
        spec = space.spec
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = space
        self.limit = spec.budget.cells or 0
        self.proposals: list[Proposal] = []
        self.unfinished: list[Proposal] = []
        """Proposals of earlier launches that have not ended."""
        self._method = spec.method
        self._seeds = spec.seeds.count
        # Where the best cells race for more seeds, the search itself gives none.
        self._most_seeds = self._seeds * (1 if spec.seeds.up_to else _MOST_REPEATS)
        self._dimensions = Dimensions(space, conditional=knows_conditions(spec.method))
        self._history = History(shown(spec.method), ranks_pruned(spec))
        self.study = optuna.create_study(
            study_name=spec.name, storage=self._history, directions=[objective.goal for objective in spec.metric]
        )
        self._id = self._history.get_study_id_from_name(spec.name)
        self._numbers: dict[str, list[int]] = {}
        """The trials of each cell that was proposed."""
        self._pending: dict[int, Proposal] = {}
        """Proposals that were not told, by number."""
        self._results: dict[int, tuple[Mean, int]] = {}
        """Told, but not taken in yet: by number of the trial, the mean and the seeds it is over."""
        self._taken: list[tuple[int, int]] = []
        """Taken in since the last batch was kept."""
        self._kept = Proposals(files, branch)
        self._batches = 0
        self._noted = 0
        self._source: list[FrozenTrial] = []
        self._first = [dict(given) for given in spec.try_first]
        self._given = 0
        self._exhausted = False
        self._chance = (chunk.values(i) for chunk in space.drawn(self.limit) for i in range(len(chunk)))

    # Asking

    def ask(self, count: int) -> list[Proposal]:
        """At most `count` proposals, none excluded; fewer when the budget or the space ends."""
        asked: list[Proposal] = []
        if self._exhausted or len(self.proposals) >= self.limit:
            return asked
        self._take_in()
        self._begin_batch(self._batches)
        refused: list[int] = []
        while len(asked) < count and len(self.proposals) < self.limit:
            proposal = self._from_given() or self._from_model(refused) or self._from_chance() or self._from_known()
            if proposal is None:
                self._exhausted = True
                break
            asked.append(proposal)
        for number in refused:
            self.study.tell(number, state=TrialState.FAIL)
        if asked:
            self._keep(asked)
        return asked

    def _begin_batch(self, batch: int) -> None:
        seed = zlib.crc32(f"{self._method.seed}/{batch}".encode())
        self.study.sampler = sampler_of(self._method, seed, self._source)
        notes = self._history.get_study_system_attrs(self._id)
        self._history.settle(self._id, seed, pinned(self.study.sampler, notes))

    def _from_given(self) -> Proposal | None:
        """The next of the cells to try first; what it leaves open is sampled."""
        while self._given < len(self._first):
            given = self._first[self._given]
            self._given += 1
            if any(self.space.base[name] != value for name, value in given.items() if name not in self.space.axes):
                continue  # it is for another branch
            trial = self._begun(given)
            values = self._dimensions.suggested(trial)
            cell = self._cell_id(values)
            if self._may_propose(cell, values):
                return self._proposed(cell, values, trial.number)
            self.study.tell(trial, state=TrialState.FAIL)
        return None

    def _from_model(self, refused: list[int]) -> Proposal | None:
        for _ in range(_TRIES):
            trial = self.study.ask()
            values = self._dimensions.suggested(trial)
            cell = self._cell_id(values)
            if self._may_propose(cell, values):
                return self._proposed(cell, values, trial.number)
            # Until the end of the batch it counts as running: so the model looks elsewhere.
            refused.append(trial.number)
        return None

    def _from_chance(self) -> Proposal | None:
        """A cell drawn at random that was never proposed; None when there is none."""
        for values in self._chance:
            cell = self._cell_id(values)
            if not self._times(cell):
                trial = self._begun(values)
                return self._proposed(cell, self._dimensions.suggested(trial), trial.number)
        return None

    def _from_known(self) -> Proposal | None:
        """The cell with the fewest seeds that may have more; None when there is none, and the search is over."""
        for proposal in sorted(self.proposals, key=lambda p: self._times(p.cell)):
            if self._may_propose(proposal.cell, proposal.values):
                trial = self._begun(proposal.values)
                return self._proposed(proposal.cell, self._dimensions.suggested(trial), trial.number)
        return None

    def _begun(self, values: Mapping[str, Value]) -> Trial:
        self.study.enqueue_trial(self._dimensions.parameters({n: v for n, v in values.items() if n in self.space.axes}))
        return self.study.ask()

    def _times(self, cell: str) -> int:
        """How often the cell was proposed."""
        return len(self._numbers.get(cell, ()))

    def _may_propose(self, cell: str, values: Mapping[str, Value]) -> bool:
        seeds = (1 + self._times(cell)) * self._seeds
        return seeds <= self._most_seeds and not self.space.excludes(values)

    def _proposed(self, cell: str, values: dict[str, Value], number: int) -> Proposal:
        self._numbers.setdefault(cell, []).append(number)
        proposal = Proposal(cell, values, number, self._times(cell) * self._seeds)
        self.proposals.append(proposal)
        self._pending[number] = proposal
        return proposal

    # Telling

    def tell(self, cell: str, mean: Mean, seeds: int | None = None) -> None:
        """The mean of each objective over so many seeds; where it has none, the cell ranks below all others.

        It answers the proposals that asked for no more seeds than these.
        """
        for number in self._numbers[cell]:
            proposal = self._pending.get(number)
            if proposal and (seeds is None or proposal.seeds <= seeds):
                del self._pending[number]
                self._results[number] = (mean, seeds or proposal.seeds)

    def _take_in(self) -> None:
        for number in sorted(self._results):
            mean, seeds = self._results.pop(number)
            self._tell(number, mean)
            self._taken.append((number, seeds))

    def _tell(self, number: int, mean: Mean) -> None:
        # By way of the storage: `study.tell` copies the whole trial.
        trial_id = self._trial_id(number)
        if mean.comparable:
            self._history.set_trial_state_values(trial_id, TrialState.COMPLETE, list(mean.values))
            return
        if mean.stopped_at is not None and len(mean.values) == 1:
            self._history.set_trial_intermediate_value(trial_id, mean.stopped_at, mean.values[0])
        self._history.set_trial_state_values(trial_id, TrialState.PRUNED)

    def trial(self, number: int) -> FrozenTrial:
        """What the study has of a proposal."""
        return self._history.get_trial(self._trial_id(number))

    def _trial_id(self, number: int) -> int:
        return int(self._history.get_trial_id_from_study_id_trial_number(self._id, number))

    # Keeping and continuing

    def _keep(self, asked: Sequence[Proposal]) -> None:
        notes = self._history.get_study_system_attrs(self._id)
        trials = [
            KeptTrial(p.values, p.number, trial.params, dict(trial.system_attrs))
            for p, trial in ((p, self.trial(p.number)) for p in asked)
        ]
        fresh = dict(list(notes.items())[self._noted :])
        batch = Batch(trials, tuple(self._taken), fresh, self._dimensions.digest, self._given)
        self._kept.keep(self._batches, batch)
        self._batches += 1
        self._noted = len(notes)
        self._taken = []

    def learn_from(self, earlier: Callable[[], Sequence[Earlier]]) -> None:
        """Learn from cells of other sweeps before the first proposal; when resumed, from the same ones as then."""
        kept = self._kept.earlier
        if kept is None:
            kept = [{"values": dict(cell.values), "mean": cell.mean.values} for cell in earlier()]
            self._kept.keep_earlier(kept)
        self._begin_batch(0)
        for cell in kept:
            number = self._added(cell["values"])
            if number is not None:
                self._tell(number, Mean(tuple(cell["mean"])))
                self._source.append(self.trial(number))

    def restore(self, known: Known) -> None:
        """Take up earlier proposals: tell those whose mean is known, and keep the others to be run first."""
        for number, batch in self._kept.batches():
            for told, seeds in batch.told:
                self._tell_again(told, seeds, known)
            self._begin_batch(number)
            for key, value in batch.notes.items():
                self._history.set_study_system_attr(self._id, key, value)
            for kept in batch.trials:
                self._take_up(kept, same_axes=batch.space == self._dimensions.digest)
            self._given = batch.given
        self._batches = self._kept.count
        self._noted = len(self._history.get_study_system_attrs(self._id))
        for proposal in list(self._pending.values()):
            self._settle(proposal, known(proposal.cell, proposal.seeds))

    def recover(self, cells: Sequence[Earlier], known: Known) -> None:
        """Count these cells, which the store has runs of, as proposed: the batches that did so were lost."""
        for cell in cells:
            name = self._cell_id(cell.values)
            if not self._times(name):
                number = self._added(cell.values)
                if number is not None:
                    proposal = self._proposed(name, dict(cell.values), number)
                    self._settle(proposal, known(proposal.cell, proposal.seeds))

    def _settle(self, proposal: Proposal, mean: Mean | None) -> None:
        if mean is None:
            self.unfinished.append(proposal)
        else:
            self.tell(proposal.cell, mean, proposal.seeds)

    def _tell_again(self, number: int, seeds: int, known: Known) -> None:
        proposal = self._pending.get(number)
        if proposal is None:
            return
        # The spec may give cells more seeds by now.
        mean = known(proposal.cell, max(seeds, proposal.seeds))
        if mean is not None:
            del self._pending[number]
            self._tell(number, mean)

    def _take_up(self, kept: KeptTrial, same_axes: bool) -> None:
        values = {**self.space.task.earlier, **kept.values}
        cell = self._cell_id(values)
        if kept.number is None and self._times(cell):
            return  # the first layout had a cell once
        while kept.number is not None and self._history.count < kept.number:
            self.study.add_trial(create_trial(state=TrialState.FAIL))
        number = self._added(values, kept if same_axes else None)
        if number is not None:
            self._proposed(cell, values, number)

    def _added(self, values: Mapping[str, Value], kept: KeptTrial | None = None) -> int | None:
        """The number of a new trial of this cell; None where the space does not have it."""
        try:
            parameters = (kept and kept.parameters) or self._dimensions.parameters(
                {name: values[name] for name in self.space.axes}, dormant=True
            )
            distributions = {name: self._dimensions.distributions[name] for name in parameters}
            notes = kept.notes if kept and is_trusted(kept.notes) else {}
            trial = create_trial(
                state=TrialState.RUNNING, params=parameters, distributions=distributions, system_attrs=notes
            )
        except (ValueError, KeyError):
            return None
        number = self._history.count
        self.study.add_trial(trial)
        if isinstance(self.study.sampler, BaseGASampler) and not notes:
            self.study.sampler.get_trial_generation(self.study, self.trial(number))
        return number

    def _cell_id(self, cell: Mapping[str, Value]) -> str:
        return cell_id(self.space.task, cell)
