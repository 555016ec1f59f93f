"""Forests, compared with scikit-learn's on the same resamples."""

from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from mislabel.analysis.studies.forest import Trees, forest, gain_shares, grown

rng = np.random.default_rng


def points(count: int, inputs: int, levels: int = 0) -> np.ndarray:
    """Random points. With levels, they are on a grid. scikit-learn rounds inputs to single precision."""
    x = rng(0).random((count, inputs)).astype(np.float32).astype(float)
    return (np.floor(x * levels) + 0.5) / levels if levels else x


def wave(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sin(5 * x[:, 0]) + x[:, -1] ** 2 + 0.1 * rng(1).normal(size=len(x)))


def theirs(x: np.ndarray, y: np.ndarray, trees: int = 8, depth: int = 64) -> Any:
    return RandomForestRegressor(trees, max_depth=depth, random_state=0).fit(x, y)


def resamples(fitted: Any, count: int) -> np.ndarray:
    return np.stack([np.bincount(rows, minlength=count) for rows in fitted.estimators_samples_])


def trees_of(fitted: Any) -> Trees:
    """The leaves of scikit-learn's trees."""
    leaves = []
    for number, own in enumerate(fitted.estimators_):
        nodes = own.tree_
        pending = [(0, np.zeros(nodes.n_features), np.ones(nodes.n_features))]
        while pending:
            node, low, high = pending.pop()
            if nodes.children_left[node] < 0:
                leaves.append((number, low, high, nodes.value[node, 0, 0]))
                continue
            is_split = np.arange(nodes.n_features) == nodes.feature[node]
            pending.append((nodes.children_left[node], low, np.where(is_split, nodes.threshold[node], high)))
            pending.append((nodes.children_right[node], np.where(is_split, nodes.threshold[node], low), high))
    tree, low, high, value = (np.array(column) for column in zip(*leaves, strict=True))
    gains = np.stack([own.tree_.compute_feature_importances(normalize=False) for own in fitted.estimators_])
    return Trees(tree, low, high, value, gains)


def rows_of(trees: Trees) -> np.ndarray:
    """A row per leaf, in an order of their own."""
    rows = np.column_stack([trees.tree, trees.low, trees.high, trees.value])
    return rows[np.lexsort(rows.round(5).T[::-1])]


def predicted(trees: Trees, tree: int, x: np.ndarray) -> np.ndarray:
    own = trees.tree == tree
    low, high = trees.low[own], trees.high[own]
    inside = (((low == 0) | (x[:, None] > low)) & (x[:, None] <= high)).all(axis=2)
    assert (inside.sum(axis=1) == 1).all()
    return np.asarray(trees.value[own][inside.argmax(axis=1)])


@pytest.mark.parametrize("levels", [0, 20])
def test_the_first_splits_are_those_of_scikit_learn(levels: int) -> None:
    """Later ones may separate the same rows by another input."""
    x = points(400, 3, levels)
    fitted = theirs(x, wave(x), depth=4)
    ours = grown(x, np.tile(wave(x), (8, 1)), resamples(fitted, 400), rng(0), deepest=4)
    assert rows_of(ours) == pytest.approx(rows_of(trees_of(fitted)), abs=1e-6)
    assert gain_shares(ours).mean(axis=0) == pytest.approx(fitted.feature_importances_)


@pytest.mark.parametrize("levels", [0, 20])
def test_whole_trees_on_one_input_are_those_of_scikit_learn(levels: int) -> None:
    x = points(200, 1, levels)
    fitted = theirs(x, wave(x))
    ours = grown(x, np.tile(wave(x), (8, 1)), resamples(fitted, 200), rng(0))
    assert rows_of(ours) == pytest.approx(rows_of(trees_of(fitted)), abs=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e200])
@pytest.mark.parametrize("levels", [0, 4])
def test_whole_trees_predict_the_mean_of_equal_rows(levels: int, scale: float) -> None:
    x = points(100, 3, levels)
    y, weights = scale * (wave(x) + 1000), rng(0).integers(0, 3, size=(2, 100))
    ours = grown(x, np.stack([y, -y]), weights, rng(0))
    for tree, sign in enumerate((1, -1)):
        used = weights[tree] > 0
        same = (x[used][:, None] == x[used]).all(axis=2) * weights[tree][used]
        expected = sign * (same @ y[used]) / same.sum(axis=1)
        assert predicted(ours, tree, x[used]) == pytest.approx(expected)


def test_boxes_fill_the_cube() -> None:
    (ours,) = forest(points(60, 4), wave(points(60, 4))[None], [16], seed=0)
    volumes = np.bincount(ours.tree, (ours.high - ours.low).prod(axis=1))
    assert volumes == pytest.approx(np.ones(16))


def test_equally_good_inputs_are_chosen_equally_often() -> None:
    """Both inputs separate the two rows."""
    x = np.array([[0.2, 0.8], [0.6, 0.4]])
    ours = grown(x, np.tile([0.0, 1.0], (2000, 1)), np.ones((2000, 2), int), rng(0))
    assert gain_shares(ours).mean(axis=0) == pytest.approx([0.5, 0.5], abs=0.05)


def test_inputs_that_are_nearly_equal_are_not_separated() -> None:
    x = np.array([[1 - 1e-12], [1.0], [0.5]])
    ours = grown(x, np.array([[0.0, 1.0, 2.0]]), np.ones((1, 3), int), rng(0))
    assert sorted(ours.value) == pytest.approx([0.5, 2.0])


def test_a_constant_is_one_leaf_without_gains() -> None:
    ours = grown(points(20, 2), np.full((3, 20), 0.1), np.ones((3, 20), int), rng(0))
    assert ours.value == pytest.approx(np.full(3, 0.1))
    assert np.isnan(gain_shares(ours)).all()


def test_trees_belong_to_the_values_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of 3 trees."""
    monkeypatch.setattr("mislabel.analysis.studies.forest._BATCH", 3 * 50 * 2 + 1)
    values = np.arange(3)[:, None] + 0.1 * rng(0).random((3, 50))
    batches = list(forest(points(50, 2), values, [2, 1, 5], seed=0))
    assert [len(some.gains) for some in batches] == [3, 3, 2]
    owners = [int(some.value[some.tree == i].min()) for some in batches for i in range(len(some.gains))]
    assert owners == [0, 0, 1, 2, 2, 2, 2, 2]


def test_every_tree_has_its_own_resample() -> None:
    (ours,) = forest(points(30, 2), wave(points(30, 2))[None], [10], seed=0)
    means = {round(float(predicted(ours, tree, points(30, 2)).mean()), 9) for tree in range(10)}
    assert len(means) == 10
