"""The Optuna sampler of each learning method, the trials that it reads, and the Optuna distribution of an axis.

Every batch has a new sampler, created from the search's seed. It keeps nothing that a proposal depends on: results and
notes are in the study. So a search that was killed and resumed proposes the same cells as an uninterrupted one.

Optuna's samplers read all trials for every proposal. Here they read the best, the latest, and some of the others, so
that a proposal costs the same in a search of any length. The models lose little: TPE builds its good density from at
most 25 trials and weighs the others by age.
"""

import copy
import math
import random
import warnings
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from mislabel.sweeps.search.optuna_private import draw_values_with, tpe_sampler
from mislabel.sweeps.spec.model import Axis, Method

# The most ended trials that a sampler reads. The cost of gp grows with their cube.
_WINDOW_SIZES = {"tpe": 300, "gp": 120, "cmaes": 300}
_GENERATIONS = 4
_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_NUMBER = attrgetter("number")


@contextmanager
def quietly() -> Iterator[None]:
    """Suppress Optuna's log messages and its warnings about experimental features."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)


@quietly()
def sampler_of(method: Method, seed: int, earlier: Sequence[FrozenTrial] = ()) -> BaseSampler:
    """The sampler of the method. CMA-ES starts from `earlier`, the trials of other sweeps."""
    # The seeds differ: otherwise both samplers would use the same random numbers.
    independent = optuna.samplers.RandomSampler(seed=seed ^ 1)
    model: Any = {"seed": seed, "n_startup_trials": method.startup, "independent_sampler": independent}
    model["warn_independent_sampling"] = False
    match method.name:
        case "tpe":
            return tpe_sampler(seed, method.startup)
        case "gp":
            return optuna.samplers.GPSampler(**model)
        case "cmaes":
            return optuna.samplers.CmaEsSampler(**model, source_trials=[*map(_numeric_part, earlier)] or None)
    kinds = {"nsga2": optuna.samplers.NSGAIISampler, "nsga3": optuna.samplers.NSGAIIISampler}
    nsga: BaseSampler = kinds[method.name](seed=seed, population_size=method.population)
    draw_values_with(nsga, independent)
    return nsga


def _numeric_part(trial: FrozenTrial) -> FrozenTrial:
    """The trial with the parameters that CMA-ES can use: numbers that vary."""
    axes = trial.distributions.items()
    known = {name: d for name, d in axes if not isinstance(d, CategoricalDistribution) and not d.single()}
    return create_trial(params={n: trial.params[n] for n in known}, distributions=known, values=trial.values)


def window_size(method: Method) -> int:
    return _WINDOW_SIZES.get(method.name) or max(300, _GENERATIONS * method.population)


class TrialWindow(InMemoryStorage):
    """All trials of one study. Samplers read at most `size` that ended, and a third as many that have not.

    The best quarter and the latest half of the ended trials are always in the window. A pruned trial stands for a cell
    that was stopped, diverged or failed. A sampler with `ranks_pruned` reads it as it is; the others read it as a
    complete trial with the worst values of all.
    """

    def __init__(self, size: int, ranks_pruned: bool) -> None:
        super().__init__()
        self.size = size
        self.ranks_pruned = ranks_pruned
        self.numbers: dict[int, int] = {}
        """The number of each trial, by id."""
        self._ended: list[FrozenTrial] = []
        self._visible: list[FrozenTrial] = []
        """The ended trials, as samplers read them."""
        self._others: list[int] = []
        """Ids of the trials that had not ended at the last `update`."""

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id: int = super().create_new_trial(study_id, template_trial)
        self._others.append(trial_id)
        self.numbers[trial_id] = len(self.numbers)
        return trial_id

    def update(self, study_id: int, seed: int, pinned: Iterable[int] = ()) -> None:
        """Add the trials that have ended, and choose the window again. Trials with a `pinned` id stay in it."""
        trials = {trial_id: self.get_trial(trial_id) for trial_id in self._others}
        self._others = [i for i, trial in trials.items() if not trial.state.is_finished()]
        ended = [trial for trial in trials.values() if trial.state in _ENDED]
        self._ended = sorted([*self._ended, *ended], key=_NUMBER)
        signs = [1 if d == StudyDirection.MINIMIZE else -1 for d in self.get_study_directions(study_id)]
        surplus = len(self._ended) - self.size
        if surplus > 0:
            kept = {self.numbers[trial_id] for trial_id in pinned if trial_id in self.numbers}
            kept |= {self._ended[i].number for i in _ranked(self._ended, signs)[: self.size // 4]}
            kept |= {trial.number for trial in self._ended[-(self.size // 2) :]}
            left = [t.number for t in self._ended if t.number not in kept]
            dropped = set(random.Random(seed).sample(left, min(surplus, len(left))))
            self._ended = [trial for trial in self._ended if trial.number not in dropped]
        self._visible = self._ended if self.ranks_pruned else _with_worst(self._ended, signs)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if states == (TrialState.WAITING,):
            return list(super().get_all_trials(study_id, deepcopy, states))
        others = [self.get_trial(trial_id) for trial_id in self._others]
        visible = [trial for trial in others if trial.state is TrialState.RUNNING][-(self.size // 3) :]
        visible += [trial for trial in others if trial.state is TrialState.COMPLETE]
        if states is None or any(state in states for state in _ENDED):
            visible = sorted([*self._visible, *visible], key=_NUMBER)
        if states is not None:
            visible = [trial for trial in visible if trial.state in states]
        return copy.deepcopy(visible) if deepcopy else visible


def _ranked(trials: list[FrozenTrial], signs: list[int]) -> list[int]:
    """Indices of the trials, best first: by the number of trials that dominate them. Pruned trials come last."""
    complete = [i for i, trial in enumerate(trials) if trial.state is TrialState.COMPLETE]
    values = np.array([trials[i].values for i in complete], dtype=float).reshape(len(complete), len(signs)) * signs
    # Row by row: with thousands of results at once, all pairs would fill the memory.
    better = [int(((values <= row).all(axis=1) & (values < row).any(axis=1)).sum()) for row in values]
    pruned = [i for i, trial in enumerate(trials) if trial.state is not TrialState.COMPLETE]
    ranked = [complete[i] for i in np.argsort(better, kind="stable")]
    return ranked + sorted(pruned, key=lambda i: -(trials[i].last_step or 0))


def _with_worst(trials: list[FrozenTrial], signs: list[int]) -> list[FrozenTrial]:
    """The trials, with the worst value of each objective for pruned ones; empty if no trial is complete."""
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
    if not complete:
        return []
    worst = [float(value) for value in (np.array([t.values for t in complete]) * signs).max(axis=0) * signs]
    pruned = [copy.copy(trial) for trial in trials if trial.state is not TrialState.COMPLETE]
    for trial in pruned:
        trial.state, trial.values = TrialState.COMPLETE, worst
    return sorted([*complete, *pruned], key=_NUMBER)


def distribution(axis: Axis, integer: bool) -> BaseDistribution:
    """The values of the axis; `integer` means that its parameter is a whole number."""
    if axis.values is not None:
        return CategoricalDistribution(axis.values)
    (low, high), log = axis.ends, axis.scale == "log"
    if axis.step is not None:
        # If steps do not fill the range, end it at the last step. Optuna would do the same, with a warning.
        high = low + math.floor((high - low) / axis.step + 1e-9) * axis.step
    if integer:
        return IntDistribution(int(low), int(high), log=log, step=int(axis.step or 1))
    return FloatDistribution(low, min(high, axis.ends[1]), log=log, step=axis.step)


def contains(d: BaseDistribution, value: Any) -> bool:
    try:  # Optuna's only public check
        create_trial(state=TrialState.RUNNING, params={"value": value}, distributions={"value": d})
    except ValueError:
        return False
    return True
