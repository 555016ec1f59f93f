"""Functional ANOVA (Hutter, Hoos, Leyton-Brown 2014): the share of a tree's variance that each input explains alone.

A tree is constant on boxes, so its mean over all inputs but one is an exact step function. Optuna's evaluator walks
through the tree once per step. Adding up all boxes at once gives the same numbers faster.
"""

import numpy as np

from mislabel.analysis.studies.forest import Trees


def variance_shares(trees: Trees) -> np.ndarray:
    """For each tree and input, the share of the tree's variance over the unit cube; NaN if the tree is constant."""
    tree, count = trees.tree, len(trees.gains)
    width = trees.high - trees.low  # leaves, inputs
    volume = width.prod(axis=1)
    mean = np.bincount(tree, volume * trees.value, count)
    # Deviations sum to 0 in each tree, so rounding errors don't grow from tree to tree.
    deviation = (trees.value - mean[tree]) * volume
    total = np.bincount(tree, deviation * (trees.value - mean[tree]), count)
    variances = [
        _variances(tree, trees.low[:, i], trees.high[:, i], deviation / width[:, i], count)
        for i in range(width.shape[1])
    ]
    return np.column_stack(variances) / np.where(total > 0, total, np.nan)[:, None]


def _variances(tree: np.ndarray, low: np.ndarray, high: np.ndarray, height: np.ndarray, count: int) -> np.ndarray:
    """The variance of each tree's step function: the sum of boxes, each from low to high with this height."""
    edges, owner = np.concatenate([low, high]), np.tile(tree, 2)
    order = np.lexsort([edges, owner])
    heights = np.cumsum(np.concatenate([height, -height])[order])[:-1]
    # The last edge of a tree is 1 and the next tree's first edge is 0.
    widths = np.maximum(np.diff(edges[order]), 0)
    return np.bincount(owner[order][:-1], widths * heights**2, count)
