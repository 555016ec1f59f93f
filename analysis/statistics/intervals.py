"""Statistics over seeds: table in, table out."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special


def summarized(table: pd.DataFrame, metric: str, by: Sequence[str], confidence: float = 0.95) -> pd.DataFrame:
    """Mean, standard deviation, number of values and Student's t interval of the metric in each group.

    Values that are nan or infinite are not averaged: `n` says how many were. One value alone has no interval.
    """
    values = table[metric].astype(float)
    table = table.assign(**{metric: values.where(np.isfinite(values))})
    grouped = table.groupby(list(by), observed=True, sort=True, dropna=False)[metric]
    out = grouped.agg(mean="mean", std="std", n="count").reset_index()
    half = special.stdtrit((out["n"] - 1).where(out["n"] > 1), 0.5 + confidence / 2) * out["std"] / np.sqrt(out["n"])
    return out.assign(low=out["mean"] - half, high=out["mean"] + half)
