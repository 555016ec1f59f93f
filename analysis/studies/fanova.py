"""Functional ANOVA of a random forest: the share of its variance over the unit cube that each input explains alone.

Hutter, Hoos, Leyton-Brown: An Efficient Approach for Assessing Hyperparameter Importance (2014). A tree is constant on
boxes, so its mean over all inputs but one is an exact step function. Optuna's evaluator walks through the tree once per
step, which is slow for a thousand cells or more. Adding up all boxes at once gives the same numbers faster.
"""

from typing import Any

import numpy as np


def forest_of(inputs: np.ndarray, values: np.ndarray, trees: int, seed: int) -> Any:
    """A random forest with Optuna's settings. Every tree is fitted to its own resample of the rows."""
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(trees, max_depth=64, random_state=seed).fit(inputs, values)


def variance_shares(forest: Any) -> np.ndarray:
    """Each input's share of the variance, averaged over the trees; zeros if every tree is constant."""
    shares = [found for tree in forest.estimators_ if (found := _shares_of(tree.tree_)) is not None]
    return np.mean(shares, axis=0) if shares else np.zeros(forest.n_features_in_)


def _shares_of(tree: Any) -> np.ndarray | None:
    low, high = _boxes(tree)
    value = tree.value[:, 0, 0][tree.children_left < 0]
    width = high - low  # leaves, inputs
    volume = width.prod(axis=1)
    mean = volume @ value
    total = volume @ (value - mean) ** 2
    if total <= 0:
        return None
    densities = (value * volume)[:, None] / width
    variances = [_variance(low[:, i], high[:, i], densities[:, i], mean) for i in range(low.shape[1])]
    return np.array(variances) / float(total)


def _variance(low: np.ndarray, high: np.ndarray, density: np.ndarray, mean: float) -> float:
    """The variance of a step function: the sum of boxes, each from low to high with this height."""
    edges, at = np.unique(np.concatenate([low, high]), return_inverse=True)
    rises = np.bincount(at, np.concatenate([density, -density]))
    return float(np.diff(edges) @ (np.cumsum(rises)[:-1] - mean) ** 2)


def _boxes(tree: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner of each leaf's box."""
    low, high = np.zeros((tree.node_count, tree.n_features)), np.ones((tree.node_count, tree.n_features))
    level = np.array([0])
    while len(level):
        level = level[tree.children_left[level] >= 0]
        left, right = tree.children_left[level], tree.children_right[level]
        split, threshold = tree.feature[level], tree.threshold[level]
        for child in (left, right):
            low[child], high[child] = low[level], high[level]
        high[left, split] = threshold
        low[right, split] = threshold
        level = np.concatenate([left, right])
    leaves = tree.children_left < 0
    return low[leaves], high[leaves]
