import math

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from mislabel.sweeps.search.samplers import TrialWindow

D = {"x": FloatDistribution(0, 1)}


def window_of(
    values: list[float | None], size: int = 20, ranks_pruned: bool = True
) -> tuple[TrialWindow, optuna.Study]:
    """A study with a trial for each value; None stands for a cell that was stopped."""
    window = TrialWindow(size, ranks_pruned)
    study = optuna.create_study(study_name="s", storage=window)
    for i, value in enumerate(values):
        state = TrialState.PRUNED if value is None else TrialState.COMPLETE
        study.add_trial(create_trial(state=state, value=value, params={"x": i / len(values)}, distributions=D))
    return window, study


def visible(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    trials: list[FrozenTrial] = study.get_trials(deepcopy=False, states=states or None)
    return trials


def test_few_trials_are_all_in_the_window() -> None:
    window, study = window_of([3, None, 1, 2])
    window.update(0, seed=0)
    assert [(t.number, t.state) for t in visible(study)] == [
        (0, TrialState.COMPLETE), (1, TrialState.PRUNED), (2, TrialState.COMPLETE), (3, TrialState.COMPLETE),
    ]  # fmt: skip


def test_the_best_and_the_latest_of_many_trials_are_in_the_window() -> None:
    window, study = window_of([abs(i - 30) for i in range(100)])
    window.update(0, seed=0)
    numbers = [t.number for t in visible(study)]
    assert len(numbers) == 20
    assert numbers == sorted(numbers)
    assert {28, 29, 30, 31, 32} <= set(numbers)
    assert set(range(90, 100)) <= set(numbers)


def test_the_choice_depends_only_on_the_seed() -> None:
    chosen = []
    for seed in (0, 0, 1):
        window, study = window_of([float(i % 17) for i in range(100)])
        window.update(0, seed=seed)
        chosen.append([t.number for t in visible(study)])
    assert chosen[0] == chosen[1] != chosen[2]


def test_pinned_trials_stay_in_the_window() -> None:
    window, study = window_of([float(i) if i > 2 else 1000 for i in range(100)])
    window.update(0, seed=0, pinned={0, 1, 2, 4711})
    assert {0, 1, 2} <= {t.number for t in visible(study)}


def test_the_latest_running_trials_are_added() -> None:
    window, study = window_of([1.0, 2.0])
    for _ in range(10):
        study.ask()
    window.update(0, seed=0)
    assert [t.number for t in visible(study)] == [0, 1, 6, 7, 8, 9, 10, 11]
    assert [t.number for t in visible(study, TrialState.RUNNING)] == [6, 7, 8, 9, 10, 11]
    study.tell(11, state=TrialState.FAIL)
    assert [t.number for t in visible(study, TrialState.RUNNING)] == [5, 6, 7, 8, 9, 10]


def test_a_sampler_without_support_for_pruned_trials_reads_the_worst_values_for_them() -> None:
    window, study = window_of([3, None, 1], ranks_pruned=False)
    window.update(0, seed=0)
    assert [(t.state, t.value) for t in visible(study)] == [(TrialState.COMPLETE, value) for value in (3, 3, 1)]
    study.add_trial(create_trial(value=7, params={"x": 0.5}, distributions=D))
    window.update(0, seed=0)
    assert [t.value for t in visible(study)] == [3, 7, 1, 7]
    assert window.get_trial(1).value is None


def test_such_a_sampler_reads_nothing_if_all_trials_are_pruned() -> None:
    window, study = window_of([None, None], ranks_pruned=False)
    window.update(0, seed=0)
    assert visible(study) == []


@pytest.mark.parametrize("directions", [["minimize", "minimize"], ["minimize", "maximize"]])
def test_the_pareto_front_stays_in_the_window(directions: list[str]) -> None:
    window = TrialWindow(40, ranks_pruned=False)
    study = optuna.create_study(study_name="s", storage=window, directions=directions)
    sign = 1 if directions[1] == "minimize" else -1
    for i in range(200):
        # The first eight lie on a quarter of a circle, all others far outside.
        angle, radius = (i % 8) / 7 * math.pi / 2, 1 if i < 8 else 5 + i / 100
        values = [radius * (1 - math.sin(angle)), sign * radius * (1 - math.cos(angle))]
        study.add_trial(create_trial(values=values, params={"x": 0.5}, distributions=D))
    window.update(0, seed=0)
    assert set(range(8)) <= {t.number for t in visible(study)}
