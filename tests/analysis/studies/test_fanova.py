import warnings

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.importance import FanovaImportanceEvaluator

from mislabel.analysis.studies.fanova import variance_shares
from mislabel.analysis.studies.forest import forest
from tests.analysis.studies.test_forest import theirs, trees_of


def points(count: int, inputs: int) -> np.ndarray:
    return np.random.default_rng(0).random((count, inputs))


def shares(x: np.ndarray, y: np.ndarray, trees: int) -> np.ndarray:
    found = [variance_shares(some) for some in forest(x, y[None], [trees], seed=0)]
    return np.asarray(np.concatenate(found).mean(axis=0))


@pytest.mark.long
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
        found = FanovaImportanceEvaluator(n_trees=64, seed=0).evaluate(study)
    optunas = [found[f"x{i}"] for i in range(4)]
    assert variance_shares(trees_of(theirs(x, y, trees=64))).mean(axis=0) == pytest.approx(optunas)
    assert shares(x, y, trees=64) == pytest.approx(optunas, abs=0.02)


def test_shares_of_a_sum_are_the_shares_of_its_variances() -> None:
    """3a + b + 0c: the variances of 3a and b are 9/12 and 1/12."""
    x = points(2000, 3)
    assert shares(x, 3 * x[:, 0] + x[:, 1], trees=32) == pytest.approx([0.9, 0.1, 0.0], abs=0.02)


def test_an_interaction_belongs_to_neither_input() -> None:
    """(a - ½)(b - ½) has no main effects."""
    x = points(2000, 2)
    assert shares(x, (x[:, 0] - 0.5) * (x[:, 1] - 0.5), trees=32).max() < 0.05


def test_a_constant_has_no_shares() -> None:
    (trees,) = forest(points(20, 2), np.ones((1, 20)), [4], seed=0)
    assert np.isnan(variance_shares(trees)).all()
