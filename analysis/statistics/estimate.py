"""Estimates with a 95 % interval over seeds: what claims are decided by."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from mislabel.analysis.sweep import Sweep, Where
from mislabel.sweeps.errors import MislabelError


@dataclass(frozen=True)
class Estimate:
    mean: float
    low: float
    high: float
    n: int
    """How many seeds it rests on."""

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.mean:.4g} (n = {self.n})"
        half = max(self.high - self.mean, self.mean - self.low)
        if math.isclose(self.high - self.mean, self.mean - self.low, rel_tol=1e-6):
            return f"{self.mean:.4g} ± {half:.2g} (n = {self.n})"
        return f"{self.mean:.4g}, {self.low:.4g} to {self.high:.4g} (n = {self.n})"


def mean_of(values: Sequence[float] | pd.Series) -> Estimate:
    """Mean and Student's t interval. One value alone has an interval without ends."""
    numbers = np.asarray(values, dtype=float)
    if not len(numbers):
        raise MislabelError("no runs to estimate from; the sweep is not complete")
    if not np.isfinite(numbers).all():
        return Estimate(float("nan"), float("-inf"), float("inf"), len(numbers))
    mean = float(numbers.mean())
    if len(numbers) == 1:
        return Estimate(mean, float("-inf"), float("inf"), 1)
    half = float(special.stdtrit(len(numbers) - 1, 0.975) * numbers.std(ddof=1) / math.sqrt(len(numbers)))
    return Estimate(mean, mean - half, mean + half, len(numbers))


def share_of(held: Sequence[bool] | pd.Series) -> Estimate:
    """Share of true values and its exact (Clopper and Pearson's) interval."""
    truths = np.asarray(held, dtype=bool)
    n, k = len(truths), int(truths.sum())
    if not n:
        raise MislabelError("no runs to estimate from; the sweep is not complete")
    low = float(special.betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(special.betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Estimate(k / n, low, high, n)


def at_end(sweep: Sweep, metric: str, where: Where | None = None) -> pd.Series:
    """The metric at the end of the runs, by seed; the mean over cells where several have the seed."""
    return _by_seed(sweep.read("runs", ["seed", metric], where), metric)


def at_step(sweep: Sweep, metric: str, step: int, where: Where | None = None) -> pd.Series:
    """The metric at the last measured step that is not after `step`, by seed."""
    curves = sweep.read("curves", ["seed", "step", metric], where)
    last = curves.loc[curves["step"] <= step, "step"].max()
    return _by_seed(curves[curves["step"] == last], metric)


def _by_seed(table: pd.DataFrame, metric: str) -> pd.Series:
    # A seed of which one cell has no value has none: leaving that cell out would bias the mean.
    return table.groupby("seed")[metric].agg(lambda values: values.mean(skipna=False))
