import warnings

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.importance import FanovaImportanceEvaluator

from mislabel.analysis.studies.importance import forest_of, variance_shares


def points(count: int, inputs: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, inputs))


def test_shares_equal_those_of_optuna() -> None:
    x = points(60, 4)
    y = 3 * x[:, 0] + x[:, 1] + x[:, 2] * x[:, 3]
    distributions = {f"x{i}": FloatDistribution(0, 1) for i in range(4)}
    study = optuna.create_study()
    for row, value in zip(x, y, strict=True):
        params = {f"x{i}": float(row[i]) for i in range(4)}
        study.add_trial(optuna.trial.create_trial(value=value, params=params, distributions=distributions))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = FanovaImportanceEvaluator(n_trees=16, seed=5).evaluate(study)
    ours = variance_shares(forest_of(x, y, trees=16, seed=5))
    assert ours == pytest.approx([theirs[f"x{i}"] for i in range(4)])


def test_shares_of_a_sum_are_the_shares_of_its_variances() -> None:
    """3a + b + 0c: the variances of 3a and b are 9/12 and 1/12."""
    x = points(2000, 3)
    shares = variance_shares(forest_of(x, 3 * x[:, 0] + x[:, 1], trees=32, seed=0))
    assert shares == pytest.approx([0.9, 0.1, 0.0], abs=0.02)


def test_an_interaction_belongs_to_neither_input() -> None:
    """(a - ½)(b - ½) has no main effects."""
    x = points(2000, 2)
    assert variance_shares(forest_of(x, (x[:, 0] - 0.5) * (x[:, 1] - 0.5), trees=32, seed=0)).max() < 0.05


def test_a_constant_has_no_shares() -> None:
    assert variance_shares(forest_of(points(20, 2), np.ones(20), trees=4, seed=0)).tolist() == [0, 0]
