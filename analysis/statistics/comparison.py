"""Compare two groups of runs cell by cell: the difference, its interval, an effect size, and a corrected p-value.

Runs with the same seed have the same initialization and data, so they are compared in pairs where both groups have the
seed (paired t test). Otherwise the groups are independent (Welch's t test). With many cells, some differences look
significant by chance. Holm's correction keeps the probability of one or more such cells below 5 %.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from mislabel.analysis.statistics.tables import At, SweepTables, Where
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import value_text
from mislabel.sweeps.seed_means import CONFIDENCE

SIGNIFICANT = 1 - CONFIDENCE


class Difference(NamedTuple):
    """Two means, and their difference b - a with its 95 % interval; NaN where there are too few values."""

    a: float
    b: float
    difference: float
    low: float
    high: float
    effect: float
    """Hedges' g: the difference in standard deviations over seeds, without the bias of small samples."""
    p: float
    n: int
    """Number of pairs; without pairs, the number of seeds of the smaller group."""
    paired: bool


def difference(a: "pd.Series[float]", b: "pd.Series[float]") -> Difference:
    """The difference between two groups of values, which are indexed by seed. NaN values are left out."""
    a, b = a.dropna(), b.dropna()
    shared = a.index.intersection(b.index)
    paired = len(shared) > 1
    if paired:
        a, b = a[shared], b[shared]
    n, center = min(len(a), len(b)), float(b.mean() - a.mean())
    means = (float(a.mean()), float(b.mean()), center)
    if n < 2:
        return Difference(*means, math.nan, math.nan, math.nan, math.nan, n, paired)
    variances = a.var() / len(a), b.var() / len(b)
    if paired:
        error, freedom = float((b - a).std()) / math.sqrt(n), n - 1.0
    else:
        error = math.sqrt(sum(variances))
        parts = sum(v**2 / (len(own) - 1) for v, own in zip(variances, (a, b), strict=True))
        freedom = error**4 / parts if parts else float(len(a) + len(b) - 2)
    from scipy.special import stdtr, stdtrit  # scipy.stats takes seconds to import

    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(center) / error)) if error else float(center == 0)
    return Difference(*means, center - half, center + half, _effect(a, b), p, n, paired)


def _effect(a: "pd.Series[float]", b: "pd.Series[float]") -> float:
    freedom = len(a) + len(b) - 2
    spread = math.sqrt(((len(a) - 1) * a.var() + (len(b) - 1) * b.var()) / freedom)
    center = float(b.mean() - a.mean())
    if not spread:
        return math.copysign(math.inf, center) if center else 0.0
    return center / spread * (1 - 3 / (4 * freedom - 1))


def holm(p: "pd.Series[float]") -> "pd.Series[float]":
    """Holm's corrected p-values. A missing one is no test."""
    known = p.dropna().sort_values()
    factors = np.arange(len(known), 0, -1)
    corrected = np.minimum(np.maximum.accumulate(known.to_numpy() * factors), 1.0)
    return pd.Series(corrected, known.index, dtype=float).reindex(p.index)


def compare(
    sweeps: tuple[SweepTables, SweepTables], where: tuple[Where, Where], metric: str, at: At = "end"
) -> pd.DataFrame:
    """A row per setting of the other parameters that both sides have; see `Difference` for the columns.

    `p_holm` is the corrected p-value. `better` is "a" or "b" if it is below 5 %. `missing` is the number of runs of
    both cells without a value: diverged, or in a cell that was stopped early.
    """
    pinned = {name for own in where for name in own}
    varying = dict.fromkeys(name for sweep in sweeps for name in sweep.varying)
    is_single = "cell_id" in pinned
    keys = [name for name in varying if not is_single and name not in pinned and _in_both(sweeps, name)]
    sides = [sweep.taken(metric, keys, own, at) for sweep, own in zip(sweeps, where, strict=True)]
    groups = [_by_setting(side, keys) for side in sides]
    shared = [setting for setting in groups[0] if setting in groups[1]]
    if not shared:
        what = " and ".join(_described(sweep, own) for sweep, own in zip(sweeps, where, strict=True))
        raise MislabelError(f"{what} have no cells in common: nothing to compare")
    rows = []
    for setting in shared:
        first, second = groups[0][setting], groups[1][setting]
        missing = int(first.isna().sum() + second.isna().sum())
        found = difference(first.groupby(level=0).mean(), second.groupby(level=0).mean())
        rows.append({**dict(zip(keys, _values(setting), strict=True)), **found._asdict(), "missing": missing})
    table = pd.DataFrame(rows)
    table = table.sort_values(keys, ignore_index=True) if keys else table
    table.insert(list(table.columns).index("p") + 1, "p_holm", holm(table["p"]))
    goals = {objective.name: objective.goal for objective in sweeps[0].spec.metric}
    if metric in goals:
        b_is_better = (table["difference"] < 0) == (goals[metric] == "minimize")
        table["better"] = np.where(b_is_better, "b", "a")
        table["better"] = table["better"].where(table["p_holm"] < SIGNIFICANT)
    return table


_INACTIVE = "inactive"


def _by_setting(runs: pd.DataFrame, keys: Sequence[str]) -> "dict[tuple[Any, ...], pd.Series[float]]":
    """The values by seed for each setting of the keys. NA equals nothing, so inactive parameters get a mark."""
    marked = [runs[key].astype(object).where(runs[key].notna(), _INACTIVE) for key in keys]
    places: dict[tuple[Any, ...], list[int]] = {}
    for i, setting in enumerate(zip(*marked, strict=True) if keys else [()] * len(runs)):
        places.setdefault(setting, []).append(i)
    values = pd.Series(runs["value"].to_numpy(), runs["seed"])
    return {setting: values.iloc[own] for setting, own in places.items()}


def _values(setting: tuple[Any, ...]) -> list[Any]:
    return [None if isinstance(value, str) and value == _INACTIVE else value for value in setting]


def _in_both(sweeps: tuple[SweepTables, SweepTables], name: str) -> bool:
    return all(name in sweep.files.columns("runs") for sweep in sweeps)


def _described(sweep: SweepTables, where: Mapping[str, Any]) -> str:
    at = ", ".join(f"{name} = {value_text(value)}" for name, value in where.items())
    return f"{sweep.name} ({at})" if at else sweep.name
