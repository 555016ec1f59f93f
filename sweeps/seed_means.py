"""Means over seeds and their intervals, for many groups of runs and many steps at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
# Values that `Rows.summary` works on at once: more need more memory, and fit into no cache.
_VALUES_AT_ONCE = 1 << 20


def half_width(std: Any, n: Any, confidence: float = CONFIDENCE) -> Any:
    """Half of Student's t interval of a mean; NaN for fewer than two values. Takes numbers or arrays."""
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    counts = np.asarray(n)
    if counts.dtype.kind in "iu" and counts.size:  # few distinct numbers: the quantile is slow to compute
        known = np.arange(counts.max() + 1, dtype=float)
        known[:2] = np.nan
        factors = stdtrit(known - 1, 0.5 + confidence / 2) / np.sqrt(known)
        return factors[counts] * std
    known = np.where(counts > 1, counts, np.nan)
    return stdtrit(known - 1, 0.5 + confidence / 2) * std / np.sqrt(known)


class Rows:
    """The rows of a table over seeds: which runs belong to each value of `by`, and their statistics.

    `runs` has columns `cell_id` and `seed`, and a row per run.
    """

    def __init__(self, runs: "pd.DataFrame", by: Sequence[str]) -> None:
        import pandas as pd

        groups = runs.groupby(list(by), sort=True, observed=True, dropna=False)
        row = groups.ngroup().to_numpy()
        cells, seeds = pd.factorize(runs["cell_id"])[0], pd.factorize(runs["seed"])[0]
        self.order = np.lexsort([seeds, cells, row])
        """The positions of the runs, sorted by row and cell. Values are given in this order."""
        self.row, self._cell = row[self.order], _number_pairs(row[self.order], cells[self.order])
        by_seed = np.lexsort([seeds[self.order], self.row])
        self._by_seed = by_seed
        seed = _number_pairs(self.row[by_seed], seeds[self.order][by_seed])
        self._cell_starts, self._seed_starts = _starts(self._cell), _starts(seed)
        self._row_of_cell, self._row_of_seed = self.row[self._cell_starts], self.row[by_seed][self._seed_starts]
        self.place = np.empty(len(runs), np.int64)
        """The place of each run in `order`."""
        self.place[self.order] = np.arange(len(runs))
        first = self.order[_starts(self.row)]
        self.keys = runs[list(by)].iloc[first].reset_index(drop=True)
        """The values of `by`, a row each."""

    def count_before(self, chosen: "pd.Series[bool]", ends: "pd.Series[int]", steps: np.ndarray) -> np.ndarray:
        """How many of the chosen runs of each row ended before each step: rows, steps."""
        counts = np.zeros((len(self.keys), len(steps)), np.int64)
        counted, last = chosen.to_numpy()[self.order], ends.to_numpy()[self.order]
        for row in np.unique(self.row[counted]):
            counts[row] = np.searchsorted(np.sort(last[counted & (self.row == row)]), steps)
        return counts

    def summary(self, values: np.ndarray, confidence: float = CONFIDENCE) -> dict[str, np.ndarray]:
        """Statistics of each row for each column of `values`, which has a row per run in `order`.

        `runs`, `cells` and `n` are the numbers of runs, cells and seeds with a value. A row's mean is the mean of its
        cells' means. Its interval is over seeds: cells share them, so the deviations of a seed from the cells' means
        are added up first. If all cells have the same seeds, `std` is the standard deviation of each seed's mean over
        the cells, and the interval is Student's t interval of these means. If they don't, seeds that few cells have
        count less: the degrees of freedom are those of 1 / Σ w² seeds, where w is a seed's weight in the mean.
        """
        count, width = len(self.keys), values.shape[1]
        joins = count < len(self._row_of_cell)
        found = {name: np.empty((count, width)) for name in ("mean", "std", "low", "high")}
        found |= {name: np.empty((count, width), np.int64) for name in (("runs", "cells", "n") if joins else ("n",))}
        at_once = max(1, _VALUES_AT_ONCE // max(1, len(values)))
        for begin in range(0, width if count else 0, at_once):
            part = slice(begin, begin + at_once)
            for name, numbers in self._summary(values[:, part], joins, confidence).items():
                found[name][:, part] = numbers
        return found if joins else {**found, "runs": found["n"], "cells": np.minimum(found["n"], 1)}

    def _summary(self, values: np.ndarray, joins: bool, confidence: float) -> dict[str, np.ndarray]:
        has = np.isfinite(values)
        is_complete = bool(has.all())
        if not is_complete:
            values = np.where(has, values, 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            runs = _sums(has[:, :1] if is_complete else has, self._cell_starts)  # cells, columns (one if all are equal)
            mean = _sums(values, self._cell_starts) / runs
            deviation = values - mean[self._cell]
            if not is_complete:
                deviation = np.where(has, deviation, 0.0)
            mean += _sums(deviation, self._cell_starts) / runs  # what rounding lost
            if not joins:
                variance = _sums(np.square(deviation, out=deviation), self._cell_starts) / (runs - 1)
                std = np.sqrt(np.where(runs > 1, variance, np.nan))
                found, half = {"mean": mean, "std": std, "n": runs}, half_width(std, runs, confidence)
            else:
                found, half = self._joined(runs, mean, deviation, has, confidence)
        return {**found, "low": found["mean"] - half, "high": found["mean"] + half}

    def _joined(
        self, runs: np.ndarray, mean: np.ndarray, deviation: np.ndarray, has: np.ndarray, confidence: float
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        rows, seeds = _starts(self._row_of_cell), _starts(self._row_of_seed)
        cells = _sums(runs > 0, rows)  # rows, columns
        center = _sums(np.where(runs > 0, mean, 0.0), rows) / cells
        # One value alone tells nothing about the spread over seeds.
        several = _sums(runs > 1, rows)
        share = np.where(runs > 1, 1 / (runs * several[self._row_of_cell]), 0.0)[self._cell]
        influence = self._over_seeds(share * deviation)
        weight = self._over_seeds(np.where(has, share, 0.0))
        seeds_in_effect = 1 / _sums(weight**2, seeds)
        n = _sums(self._over_seeds(has) > 0, seeds)
        variance = _sums(influence**2, seeds) * seeds_in_effect**2 / (seeds_in_effect - 1)
        std = np.sqrt(np.where((several > 0) & (seeds_in_effect > 1 + 1e-9), variance, np.nan))
        total = _sums(runs, rows)
        return {"mean": center, "std": std, "n": n, "runs": total, "cells": cells}, half_width(
            std, seeds_in_effect, confidence
        )

    def _over_seeds(self, values: np.ndarray) -> np.ndarray:
        """The sum over the runs of each row and seed."""
        return _sums(values[self._by_seed], self._seed_starts)


def _sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The sums of groups of rows; `starts` has the first row of each."""
    kind = np.int64 if values.dtype == bool else values.dtype
    size = len(values) // max(1, len(starts))
    if len(starts) * size == len(values) and (starts == np.arange(len(starts)) * size).all():
        # Much faster than reduceat.
        return np.asarray(values.reshape(len(starts), size, -1).sum(axis=1, dtype=kind))
    return np.asarray(np.add.reduceat(values, starts, dtype=kind))


def _number_pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Number the distinct pairs of two sorted columns: 0, 1, …"""
    changes = np.ones(len(first), bool)
    changes[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return np.cumsum(changes) - 1


def _starts(numbers: np.ndarray) -> np.ndarray:
    """Where each number of a sorted column appears first."""
    changes = np.ones(len(numbers), bool)
    changes[1:] = numbers[1:] != numbers[:-1]
    return np.flatnonzero(changes)
