"""Optuna proposes cells and is told the mean over each cell's seeds; the only module that knows Optuna.

The study lives in memory. Proposals are kept in the store as they are made, results are there anyway, so after a
restart the study is rebuilt from both and proposals that were not finished are run before new ones are asked for.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from sweeps.identity import cell_id
from sweeps.space import Cells, Space
from sweeps.store import SweepFiles
from tasks.parameters import Value

# So many proposals in a row that were made before end the search: the space is discrete and used up.
_REPEATS = 100


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
        method = spec.method
        self.limit = spec.budget.cells or 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=method.seed, n_startup_trials=method.startup, multivariate=True, group=True, constant_liar=True
            )
        self.study = optuna.create_study(sampler=sampler, directions=[objective.goal for objective in spec.metric])
        self.proposals: dict[str, Proposal] = {}
        self.unfinished: list[Proposal] = []
        self.exhausted = False
        self._batches = 0

    def restore(self, means: dict[str, list[float] | None]) -> None:
        """Take up earlier proposals: tell those whose mean is known, and keep the others to be run first."""
        while (batch := self.files.read_json(f"proposals/{self._batches:05}.json")) is not None:
            self._batches += 1
            for values in batch:
                cell = self._cell_id(values)
                if cell in self.proposals:
                    continue
                try:
                    self._take_up(cell, values, cell in means, means.get(cell))
                except ValueError:
                    continue  # the spec's space no longer has this cell

    def _take_up(self, cell: str, values: dict[str, Value], known: bool, mean: Sequence[float] | None) -> None:
        free = {name: values[name] for name in self._free_axes(values)}
        distributions = {name: self._distribution(name) for name in free}
        state, told = self._told(mean)
        trial = optuna.trial.create_trial(state=state, values=told, params=free, distributions=distributions)
        if known:
            self.study.add_trial(trial)
            self.proposals[cell] = Proposal(cell, values, len(self.study.get_trials(deepcopy=False)) - 1)
            return
        self.study.enqueue_trial(free)
        running = self.study.ask()
        self._suggested(running)
        self.proposals[cell] = Proposal(cell, values, running.number)
        self.unfinished.append(self.proposals[cell])

    def ask(self, count: int) -> list[Proposal]:
        """New cells, at most `count`, none twice, none excluded; fewer when the budget or the space ends."""
        asked: list[Proposal] = []
        repeats = 0
        while len(asked) < count and len(self.proposals) < self.limit and not self.exhausted:
            trial = self.study.ask()
            cell = self._suggested(trial)
            identity = self._cell_id(cell)
            if identity in self.proposals or self.space.excludes(cell):
                self.study.tell(trial, state=TrialState.FAIL)
                repeats += 1
                self.exhausted = repeats >= _REPEATS
                continue
            repeats = 0
            asked.append(Proposal(identity, cell, trial.number))
            self.proposals[identity] = asked[-1]
        if asked:
            self.files.write_json(f"proposals/{self._batches:05}.json", [proposal.values for proposal in asked])
            self._batches += 1
        return asked

    def tell(self, cell: str, means: Sequence[float] | None) -> None:
        """The mean of each objective over the cell's seeds; None where it has none, which ranks below all others."""
        state, told = self._told(means)
        self.study.tell(self.proposals[cell].number, told, state=state)

    def _told(self, means: Sequence[float] | None) -> tuple[TrialState, list[float] | None]:
        if means is not None and all(map(math.isfinite, means)):
            return TrialState.COMPLETE, list(means)
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


def cells_from(proposals: Sequence[Proposal], space: Space) -> Cells:
    """Proposals as columns, ready to be packed."""
    columns = {name: [proposal.values[name] for proposal in proposals] for name in space.axes}
    common = {name: value for name, value in space.base.items() if name not in columns}
    return Cells([proposal.cell for proposal in proposals], common, columns)
