"""Estimates with a 95 % interval over seeds, which decide claims."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import special

from mislabel.analysis.statistics.tables import SweepTables, Where
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import with_interval
from mislabel.sweeps.seed_means import CONFIDENCE
from mislabel.sweeps.statistics import mean, summary


@dataclass(frozen=True)
class Estimate:
    """A mean and its interval, whose ends may be infinite."""

    mean: float
    low: float
    high: float
    n: int
    """Number of seeds."""

    def __str__(self) -> str:
        if self.low == self.high:
            return f"{self.mean:.4g} (n = {self.n})"
        if math.isclose(self.high - self.mean, self.mean - self.low, rel_tol=1e-6):
            return f"{with_interval(self.mean, self.high)} (n = {self.n})"
        return f"{self.mean:.4g}, {self.low:.4g} to {self.high:.4g} (n = {self.n})"


def mean_of(values: Sequence[float] | pd.Series, confidence: float = CONFIDENCE) -> Estimate:
    """Mean and Student's t interval. The interval is unbounded if a value is missing or there is only one."""
    if not len(values):
        raise MislabelError("no runs to estimate from; the sweep is not complete")
    found = summary(values, "poison", confidence)
    if math.isnan(found.low):
        return Estimate(found.mean, -math.inf, math.inf, len(values))
    return Estimate(found.mean, found.low, found.high, found.n)


def share_of(held: Sequence[bool] | np.ndarray | pd.Series, confidence: float = CONFIDENCE) -> Estimate:
    """Share of true values and its exact interval (Clopper and Pearson)."""
    truths = np.asarray(held, dtype=bool)
    n, k = len(truths), int(truths.sum())
    if not n:
        raise MislabelError("no runs to estimate from; the sweep is not complete")
    tail = (1 - confidence) / 2
    low = float(special.betaincinv(k, n - k + 1, tail)) if k else 0.0
    high = float(special.betaincinv(k + 1, n - k, 1 - tail)) if k < n else 1.0
    return Estimate(k / n, low, high, n)


def at_end(sweep: SweepTables, metric: str, where: Where | None = None) -> pd.Series:
    """The metric at the end of the runs, by seed: the mean over the cells with that seed."""
    return by_seed(sweep.values(metric, where=where), "value")


def at_step(sweep: SweepTables, metric: str, step: int, where: Where | None = None) -> pd.Series:
    """The metric at the last measured step up to `step`, by seed."""
    return by_seed(sweep.values(metric, step, where), "value")


def by_seed(rows: pd.DataFrame, metric: str) -> pd.Series:
    """The mean over the rows of each seed; missing if one value is: leaving out that cell would bias the mean."""
    return rows.groupby("seed")[metric].agg(lambda values: mean(values, missing="poison"))
