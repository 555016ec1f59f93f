"""Optuna proposes cells and is told the mean over each cell's seeds; the only module that knows Optuna.

The study lives in memory. Proposals are kept in the store as they are made, results are there anyway, so after a
restart the study is rebuilt from both and proposals that were not finished are run before new ones are asked for.
"""

import warnings
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from sweeps.identity import cell_id
from sweeps.means import Mean
from sweeps.space import Space
from sweeps.store import SweepFiles
from tasks.parameters import Value

# A model likes to propose its best cells again, or cells that are excluded. So often it may; then chance has its turn.
_REPEATS = 10


@dataclass
class Proposal:
    cell: str
    values: dict[str, Value]
    number: int
    """Optuna's own number of the trial that is to be told."""


class Search:
    """Asks for cells, is told how they did."""

    def __init__(self, space: Space, files: SweepFiles) -> None:
        self.space = space
        self.files = files
        spec = space.spec
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.limit = spec.budget.cells or 0
        self.study = optuna.create_study(
            sampler=self._sampler(0), directions=[objective.goal for objective in spec.metric]
        )
        self.proposals: dict[str, Proposal] = {}
        self.unfinished: list[Proposal] = []
        self._batches = 0
        self._chance = (chunk.values(i) for chunk in space.drawn(self.limit) for i in range(len(chunk)))

    def restore(self, means: Mapping[str, Mean]) -> None:
        """Take up earlier proposals: tell those whose mean is known, and keep the others to be run first."""
        while (batch := self.files.read_json(f"proposals/{self._batches:05}.json")) is not None:
            self._batches += 1
            for values in batch:
                cell = self._cell_id(values)
                if cell in self.proposals:
                    continue
                try:
                    self._take_up(cell, values, means.get(cell))
                except ValueError:
                    continue  # the spec's space no longer has this cell
        # The sampler's random numbers start anew: with the same seed, it would draw the same cells again.
        self.study.sampler = self._sampler(self._batches)

    def _take_up(self, cell: str, values: dict[str, Value], mean: Mean | None) -> None:
        free = {name: values[name] for name in self._free_axes(values)}
        distributions = {name: self._distribution(name) for name in free}
        state, told = self._told(mean)
        trial = optuna.trial.create_trial(state=state, values=told, params=free, distributions=distributions)
        if mean is not None:
            self.study.add_trial(trial)
            self.proposals[cell] = Proposal(cell, values, len(self.study.get_trials(deepcopy=False)) - 1)
            return
        self.proposals[cell] = Proposal(cell, values, self._begun(values))
        self.unfinished.append(self.proposals[cell])

    def _begun(self, values: dict[str, Value]) -> int:
        """The number of a trial of this cell, to be told later."""
        self.study.enqueue_trial({name: values[name] for name in self._free_axes(values)})
        trial = self.study.ask()
        self._suggested(trial)
        return int(trial.number)

    def ask(self, count: int) -> list[Proposal]:
        """New cells, at most `count`, none twice, none excluded; fewer when the budget or the space ends."""
        asked: list[Proposal] = []
        while len(asked) < count and len(self.proposals) < self.limit:
            proposal = self._from_model() or self._from_chance()
            if proposal is None:
                break
            asked.append(proposal)
            self.proposals[proposal.cell] = proposal
        if asked:
            self.files.write_json(f"proposals/{self._batches:05}.json", [proposal.values for proposal in asked])
            self._batches += 1
        return asked

    def _from_model(self) -> Proposal | None:
        for _ in range(_REPEATS):
            trial = self.study.ask()
            values = self._suggested(trial)
            cell = self._cell_id(values)
            if cell not in self.proposals and not self.space.excludes(values):
                return Proposal(cell, values, trial.number)
            self.study.tell(trial, state=TrialState.FAIL)
        return None

    def _from_chance(self) -> Proposal | None:
        """A cell drawn at random; None when all of the space has been proposed."""
        for values in self._chance:
            cell = self._cell_id(values)
            if cell not in self.proposals:
                return Proposal(cell, values, self._begun(values))
        return None

    def tell(self, cell: str, mean: Mean) -> None:
        """The mean of each objective over the cell's seeds; where it has none, it ranks below all others."""
        state, told = self._told(mean)
        self.study.tell(self.proposals[cell].number, told, state=state)

    def _sampler(self, batches: int) -> optuna.samplers.BaseSampler:
        method = self.space.spec.method
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.samplers.TPESampler(
                seed=zlib.crc32(f"{method.seed}/{batches}".encode()),
                n_startup_trials=method.startup,
                multivariate=True,
                group=True,
                constant_liar=True,
            )

    def _told(self, mean: Mean | None) -> tuple[TrialState, list[float] | None]:
        if mean is not None and mean.comparable:
            return TrialState.COMPLETE, list(mean.values)
        # A pruned trial without values ranks last in a study of one objective; of several, Optuna knows none such.
        return TrialState.PRUNED if len(self.study.directions) == 1 else TrialState.FAIL, None

    def _suggested(self, trial: Any) -> dict[str, Value]:
        """A full cell: axes are suggested in an order in which each condition's own parameters come first."""
        cell = dict(self.space.base)
        for name in self.space.order:
            when = self.space.when.get(name)
            if when is None or when.holds(cell):
                cell[name] = self.space.task.parameters[name].typed(self._suggest(trial, name))
        return cell

    def _suggest(self, trial: Any, name: str) -> Value:
        d = self._distribution(name)
        if isinstance(d, CategoricalDistribution):
            return trial.suggest_categorical(name, d.choices)  # type: ignore[no-any-return]
        if isinstance(d, IntDistribution):
            return trial.suggest_int(name, d.low, d.high, log=d.log)  # type: ignore[no-any-return]
        assert isinstance(d, FloatDistribution)
        return trial.suggest_float(name, d.low, d.high, log=d.log)  # type: ignore[no-any-return]

    def _distribution(self, name: str) -> BaseDistribution:
        axis = self.space.axes[name]
        if axis.values is not None:
            return CategoricalDistribution(axis.values)
        assert axis.min is not None
        assert axis.max is not None
        log = axis.scale == "log"
        if self.space.task.parameters[name].type is int:
            return IntDistribution(int(axis.min), int(axis.max), log=log)
        return FloatDistribution(axis.min, axis.max, log=log)

    def _free_axes(self, cell: dict[str, Value]) -> list[str]:
        return [name for name in self.space.axes if name not in self.space.when or self.space.when[name].holds(cell)]

    def _cell_id(self, cell: dict[str, Value]) -> str:
        return cell_id(self.space.task.name, self.space.task.version, cell)
