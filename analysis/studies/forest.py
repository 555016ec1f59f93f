"""Random forests of regression trees, as boxes on which each tree is constant.

A tree is fitted to its own resample of the rows and grown until the values in every leaf are equal. A split minimizes
the variance within its two sides. These are the settings of Optuna's evaluators, which use scikit-learn. Here all trees
of a batch grow together, one level at a time, with a few array operations per level. The many small forests that
importances need take less time than the import of scikit-learn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

_DEEPEST = 64
# Inputs closer to each other than this are equal, and so are values, as a share of the largest deviation from the mean.
_EQUAL = 1e-7
# Splits are equally good if their gains differ by a smaller share than this.
_TIED = 1e-8
# Rows times inputs in a batch of trees. The arrays of larger batches don't fit in a processor's cache.
_BATCH = 1 << 17


@dataclass(frozen=True)
class Trees:
    """The leaves of some trees, in any order, and the gain of each input: how much its splits reduce the variance."""

    tree: np.ndarray  # leaves
    low: np.ndarray  # leaves, inputs
    high: np.ndarray
    value: np.ndarray
    gains: np.ndarray  # trees, inputs


def forest(inputs: np.ndarray, values: np.ndarray, trees: Sequence[int], seed: int) -> Iterator[Trees]:
    """Fit trees to each row of `values`: `trees` has their numbers. Yields batches of trees in this order.

    The inputs are between 0 and 1. Shapes: `inputs` rows × inputs; `values` forests × rows.
    """
    rng = np.random.default_rng(seed)
    owners = np.repeat(np.arange(len(values)), trees)
    count, size = len(inputs), max(1, _BATCH // inputs.size)
    for begin in range(0, len(owners), size):
        some = owners[begin : begin + size]
        drawn = rng.integers(count, size=(len(some), count)) + count * np.arange(len(some))[:, None]
        weights = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        yield grown(inputs, values[some], weights, rng)


def grown(
    inputs: np.ndarray, values: np.ndarray, weights: np.ndarray, rng: np.random.Generator, deepest: int = _DEEPEST
) -> Trees:
    """A tree for each row of `values`, with integer weights. Chooses at random between equally good inputs.

    Near the leaves there are many: every input can separate two rows.
    """
    center = values.mean(axis=1, keepdims=True)
    scale = np.abs(values - center).max(axis=1, keepdims=True)
    rows = _Rows(inputs, (values - center) / np.where(scale > 0, scale, 1), weights)
    gains = np.zeros((len(values), inputs.shape[1]))
    leaves = []
    nodes = rows.roots()
    for depth in range(deepest + 1):
        means, differ = rows.means(nodes)
        inner = differ & (depth < deepest)
        parents = nodes.only(inner)
        splits = rows.splits(parents, means[inner], rng)
        found = splits.gain >= 0
        inner[inner] = found
        leaves.append((nodes.tree[~inner], nodes.low[~inner], nodes.high[~inner], means[~inner]))
        if not found.any():
            break
        parents, splits = parents.only(found), splits.only(found)
        np.add.at(gains, (parents.tree, splits.feature), splits.gain)
        nodes = rows.children(parents, splits)
    tree, low, high, mean = (np.concatenate(parts) for parts in zip(*leaves, strict=True))
    return Trees(tree, low, high, mean * scale[tree, 0] + center[tree, 0], gains)


def gain_shares(trees: Trees) -> np.ndarray:
    """For each tree and input, the share of its gains, also called mean decrease in impurity; NaN in constant trees."""
    total = trees.gains.sum(axis=1, keepdims=True)
    return np.asarray(trees.gains / np.where(total > 0, total, np.nan))


@dataclass(frozen=True)
class _Nodes:
    """Nodes of the same depth. `order` has their rows node by node, and within a node sorted by each input."""

    order: np.ndarray  # inputs, rows
    sizes: np.ndarray  # nodes
    tree: np.ndarray
    low: np.ndarray  # nodes, inputs
    high: np.ndarray

    @cached_property
    def begins(self) -> np.ndarray:
        return np.asarray(np.cumsum(self.sizes) - self.sizes)

    @cached_property
    def of_row(self) -> np.ndarray:
        """The node of each place in `order`."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def only(self, chosen: np.ndarray) -> "_Nodes":
        if chosen.all():
            return self
        order = self.order.take(np.flatnonzero(chosen[self.of_row]), axis=1)
        return _Nodes(order, self.sizes[chosen], self.tree[chosen], self.low[chosen], self.high[chosen])


@dataclass(frozen=True)
class _Splits:
    """The best split of each node: its input, the number of rows on the left, and its gain; -1 if there is none."""

    feature: np.ndarray
    left: np.ndarray
    threshold: np.ndarray
    gain: np.ndarray

    def only(self, chosen: np.ndarray) -> "_Splits":
        return _Splits(self.feature[chosen], self.left[chosen], self.threshold[chosen], self.gain[chosen])


class _Rows:
    """The rows of all trees: their inputs, values and positive weights."""

    def __init__(self, inputs: np.ndarray, values: np.ndarray, weights: np.ndarray) -> None:
        self.sorted = np.argsort(inputs, axis=0, kind="stable").T
        self.used = weights > 0
        merged = [_merged(column, order) for column, order in zip(inputs.T, self.sorted, strict=True)]
        self.x = np.stack(merged).take(np.nonzero(self.used)[1], axis=1)  # inputs, rows
        self.y = values[self.used]
        self.w = weights[self.used]

    def roots(self) -> _Nodes:
        numbers = (np.cumsum(self.used) - 1).reshape(self.used.shape)
        order = np.stack([numbers[:, own][self.used[:, own]] for own in self.sorted])
        trees, inputs = len(self.used), len(self.x)
        low, high = np.zeros((trees, inputs)), np.ones((trees, inputs))
        return _Nodes(order, self.used.sum(axis=1), np.arange(trees), low, high)

    def means(self, nodes: _Nodes) -> tuple[np.ndarray, np.ndarray]:
        """The mean of each node, and whether its values differ."""
        rows, node = nodes.order[0], nodes.of_row
        y, w = self.y.take(rows), self.w.take(rows)
        weight = np.bincount(node, w)
        mean = np.bincount(node, w * y) / weight
        return mean, np.bincount(node, w * (y - mean[node]) ** 2) > _EQUAL**2 * weight

    def splits(self, nodes: _Nodes, means: np.ndarray, rng: np.random.Generator) -> _Splits:
        if not len(means):
            return _Splits(*np.empty((2, 0), int), *np.empty((2, 0)))
        gains = self._gains(nodes, means)
        best = np.maximum.reduceat(gains, nodes.begins, axis=1)  # inputs, nodes
        tied = best >= best.max(axis=0) * (1 - _TIED)
        feature = np.where(tied, rng.random(best.shape), -1).argmax(axis=0)
        gain = np.take_along_axis(best, feature[None], axis=0)[0]
        node = nodes.of_row
        own = np.take_along_axis(gains, feature[node][None], axis=0)[0]
        hits = np.flatnonzero(own == gain[node])[::-1]
        last = np.empty(len(gain), int)
        last[node[hits]] = hits  # the first hit of each node is written last
        sides = [self.x[feature, nodes.order[feature, np.minimum(at, len(node) - 1)]] for at in (last, last + 1)]
        return _Splits(feature, last - nodes.begins + 1, (sides[0] + sides[1]) / 2, gain)

    def _gains(self, nodes: _Nodes, means: np.ndarray) -> np.ndarray:
        """For each input and row, how much a split after the row reduces the sum of squares; -1 if it splits equals."""
        first, node = nodes.order[0], nodes.of_row
        ends = nodes.begins + nodes.sizes - 1
        # Deviations from the node's mean sum to 0, so rounding errors don't grow from node to node.
        deviation = np.empty(len(self.y))
        deviation[first] = self.w.take(first) * (self.y.take(first) - means[node])
        upto = np.cumsum(self.w.take(first))[ends]
        total = np.diff(upto, prepend=0)
        before, total_of_row = (upto - total)[node], total[node]
        gains = np.empty(nodes.order.shape)
        for gain, x, rows in zip(gains, self.x, nodes.order, strict=True):
            weight = np.cumsum(self.w.take(rows)) - before
            weight *= total_of_row - weight
            weight[ends] = 1
            np.divide(np.cumsum(deviation.take(rows)) ** 2 * total_of_row, weight, out=gain)
            at = x.take(rows)
            gain[:-1][at[1:] == at[:-1]] = -1
            gain[ends] = -1
        return gains

    def children(self, nodes: _Nodes, splits: _Splits) -> _Nodes:
        """The left children of all nodes, then the right ones."""
        node, place = nodes.of_row, np.arange(len(nodes.of_row))
        is_left = np.empty(len(self.y), bool)
        is_left[nodes.order[splits.feature[node], place]] = place < (nodes.begins + splits.left)[node]
        order = np.empty_like(nodes.order)
        lefts = splits.left.sum()
        for rows, new in zip(nodes.order, order, strict=True):
            side = is_left.take(rows)
            rows.compress(side, out=new[:lefts])
            rows.compress(~side, out=new[lefts:])
        each = np.arange(len(nodes.tree))
        low, high = nodes.low.copy(), nodes.high.copy()
        low[each, splits.feature] = high[each, splits.feature] = splits.threshold
        return _Nodes(
            order,
            np.concatenate([splits.left, nodes.sizes - splits.left]),
            np.tile(nodes.tree, 2),
            np.concatenate([nodes.low, low]),
            np.concatenate([high, nodes.high]),
        )


def _merged(column: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The column with equal numbers in place of nearly equal ones."""
    ordered = column[order]
    first = np.concatenate([[True], np.diff(ordered) > _EQUAL])
    merged = np.empty(len(column))
    merged[order] = ordered[first][np.cumsum(first) - 1]
    return merged
