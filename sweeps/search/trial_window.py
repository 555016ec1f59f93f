"""The trials of a study, of which samplers read a bounded part. So a proposal costs the same in a search of any length.

Optuna's samplers read all trials for every proposal. Here they read the best, the latest, and some of the others. The
models lose little: TPE builds its good density from at most 25 trials and weighs the others by age.
"""

import copy
import random
from collections.abc import Container, Iterable
from operator import attrgetter

import numpy as np
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_NUMBER = attrgetter("number")


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
        self._numbers: dict[int, int] = {}
        """By id."""
        self._ended: list[FrozenTrial] = []
        self._visible: list[FrozenTrial] = []
        """The ended trials, as samplers read them."""
        self._others: list[int] = []
        """Ids of the trials that had not ended at the last `update`."""

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id: int = super().create_new_trial(study_id, template_trial)
        self._others.append(trial_id)
        self._numbers[trial_id] = len(self._numbers)
        return trial_id

    @property
    def count(self) -> int:
        return len(self._numbers)

    def update(self, study_id: int, seed: int, pinned: Iterable[int] = ()) -> None:
        """Add the trials that have ended, and choose the window again. Trials with a `pinned` id stay in it."""
        trials = {trial_id: self.get_trial(trial_id) for trial_id in self._others}
        self._others = [i for i, trial in trials.items() if not trial.state.is_finished()]
        ended = [trial for trial in trials.values() if trial.state in _ENDED]
        self._ended = sorted([*self._ended, *ended], key=_NUMBER)
        signs = [1 if d == StudyDirection.MINIMIZE else -1 for d in self.get_study_directions(study_id)]
        surplus = len(self._ended) - self.size
        if surplus > 0:
            kept = {self._numbers[trial_id] for trial_id in pinned if trial_id in self._numbers}
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
    complete = [trial.values for trial in trials if trial.state is TrialState.COMPLETE]
    if not complete:
        return []
    worst = [float(value) for value in (np.array(complete) * signs).max(axis=0) * signs]
    visible = []
    for trial in trials:
        if trial.state is not TrialState.COMPLETE:
            trial = copy.copy(trial)
            trial.state = TrialState.COMPLETE
            trial.values = worst
        visible.append(trial)
    return visible
