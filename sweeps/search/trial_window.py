"""What a sampler sees of a search: a bounded part of its trials, so that a proposal costs the same at any length.

Optuna's samplers go through all trials for every proposal. They are shown the best, the latest, and some of the others.
The models lose little by it: TPE forms its good density from 25 trials at most and weighs the others by their age.
"""

import copy
import random
from collections.abc import Container
from operator import attrgetter

import numpy as np
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

_ENDED = (TrialState.COMPLETE, TrialState.PRUNED)
_NUMBER = attrgetter("number")


class History(InMemoryStorage):
    """All trials of one study. Samplers are shown so many that ended at most, and a third as many that have not.

    Of those that ended, the best quarter and the latest half are always shown. A pruned trial, which stands for a cell
    that was stopped, diverged or failed, is shown as it is to a sampler that ranks such below all others
    (`ranks_pruned`), and else as one that ended with the worst values of all.
    """

    def __init__(self, shown: int, ranks_pruned: bool) -> None:
        super().__init__()
        self.shown = shown
        self.ranks_pruned = ranks_pruned
        self.count = 0
        self._ended: list[FrozenTrial] = []
        self._seen: list[FrozenTrial] = []
        """Those that ended, as they are shown."""
        self._others: list[int] = []
        """Ids of the trials that had not ended when the history was last settled."""

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id: int = super().create_new_trial(study_id, template_trial)
        self._others.append(trial_id)
        self.count += 1
        return trial_id

    def settle(self, study_id: int, seed: int, pinned: Container[int] = ()) -> None:
        """Take in what has ended, and choose anew what is shown. Trials that are pinned stay, by their id."""
        trials = {trial_id: self.get_trial(trial_id) for trial_id in self._others}
        self._others = [i for i, trial in trials.items() if not trial.state.is_finished()]
        ended = [trial for trial in trials.values() if trial.state in _ENDED]
        self._ended = sorted([*self._ended, *ended], key=_NUMBER)
        signs = [1 if d == StudyDirection.MINIMIZE else -1 for d in self.get_study_directions(study_id)]
        surplus = len(self._ended) - self.shown
        if surplus > 0:
            kept = {self._ended[i].number for i in _ranked(self._ended, signs)[: self.shown // 4]}
            kept |= {trial.number for trial in self._ended[-(self.shown // 2) :]}
            left = [t.number for t in self._ended if t.number not in kept and t._trial_id not in pinned]
            dropped = set(random.Random(seed).sample(left, min(surplus, len(left))))
            self._ended = [trial for trial in self._ended if trial.number not in dropped]
        self._seen = self._ended if self.ranks_pruned else _with_worst(self._ended, signs)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if states == (TrialState.WAITING,):
            waiting: list[FrozenTrial] = super().get_all_trials(study_id, deepcopy, states)
            return waiting
        others = [self.get_trial(trial_id) for trial_id in self._others]
        shown = [trial for trial in others if trial.state is TrialState.RUNNING][-(self.shown // 3) :]
        shown += [trial for trial in others if trial.state is TrialState.COMPLETE]
        if states is None or any(state in states for state in _ENDED):
            shown = sorted([*self._seen, *shown], key=_NUMBER)
        if states is not None:
            shown = [trial for trial in shown if trial.state in states]
        return copy.deepcopy(shown) if deepcopy else shown


def _ranked(trials: list[FrozenTrial], signs: list[int]) -> list[int]:
    """Places of the trials from the best to the worst: by how many others are better, pruned ones last."""
    complete = [i for i, trial in enumerate(trials) if trial.state is TrialState.COMPLETE]
    values = np.array([trials[i].values for i in complete], dtype=float).reshape(len(complete), len(signs)) * signs
    # Row by row: all pairs at once would fill the memory where thousands of results come in together.
    better = [int(((values <= row).all(axis=1) & (values < row).any(axis=1)).sum()) for row in values]
    pruned = [i for i, trial in enumerate(trials) if trial.state is not TrialState.COMPLETE]
    ranked = [complete[i] for i in np.argsort(better, kind="stable")]
    return ranked + sorted(pruned, key=lambda i: -(trials[i].last_step or 0))


def _with_worst(trials: list[FrozenTrial], signs: list[int]) -> list[FrozenTrial]:
    """The trials, the pruned ones with the worst value of each objective; without them where there is none."""
    complete = [trial.values for trial in trials if trial.state is TrialState.COMPLETE]
    if not complete:
        return []
    worst = [float(value) for value in (np.array(complete) * signs).max(axis=0) * signs]
    seen = []
    for trial in trials:
        if trial.state is not TrialState.COMPLETE:
            trial = copy.copy(trial)
            trial.state = TrialState.COMPLETE
            trial.values = worst
        seen.append(trial)
    return seen
