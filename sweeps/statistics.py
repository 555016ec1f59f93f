"""Statistics over seeds: the mean, its interval, and the rule for which cells can be compared.

Tables, figures, searches, reports, MLflow and claims all use these functions, so that they show the same numbers:

- A diverged run is counted and has no value, however finite its last metrics are: they belong to an early step.
- NaN and infinite values are missing. Tables and figures leave them out, and `n` is the number of seeds that remain.
  Searches and claims do not average such a cell at all, because the runs that remain are the better ones.
- The interval is Student's t interval of the mean over seeds. A single value has no interval.
- A row that joins several cells averages within each cell first. Its interval is over seeds, because cells share them.
- Cells are compared if all their runs were trained to the end and have a value.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

CONFIDENCE = 0.95
# Values of the column `status` of `runs`. The enumeration `Status` is in the store, which uses this module.
_DIVERGED = "diverged"
_STOPPED = "stopped"

Missing = Literal["drop", "poison"]
"""What a missing value does: `drop` leaves it out; `poison` makes the whole result missing."""


class Summary(NamedTuple):
    """Mean, standard deviation, number of values and interval; NaN where there are too few values."""

    mean: float
    std: float
    n: int
    low: float
    high: float


def mean(values: Iterable[float], missing: Missing = "drop") -> float:
    """The mean of the finite values. It has the same bits in whatever order the values come."""
    given = list(values)
    finite = [value for value in given if math.isfinite(value)]
    if not finite or (missing == "poison" and len(finite) < len(given)):
        return math.nan
    return math.fsum(finite) / len(finite)


def summary(values: Iterable[float], missing: Missing = "drop", confidence: float = CONFIDENCE) -> Summary:
    """Mean and Student's t interval. `n` counts the finite values."""
    given = [float(value) for value in values]
    finite = [value for value in given if math.isfinite(value)]
    n, center = len(finite), mean(given, missing)
    if n < 2 or math.isnan(center):
        return Summary(center, math.nan, n, math.nan, math.nan)
    std = float(np.std(finite, ddof=1))
    half = float(half_width(std, n, confidence))
    return Summary(center, std, n, center - half, center + half)


def half_width(std: Any, n: Any, confidence: float = CONFIDENCE) -> Any:
    """Half of Student's t interval of a mean; NaN for fewer than two values. Takes numbers or arrays."""
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    counts = np.asarray(n, dtype=float)
    known = np.where(counts > 1, counts, np.nan)
    return stdtrit(known - 1, 0.5 + confidence / 2) * std / np.sqrt(known)


def values_at_end(runs: "pd.DataFrame", metric: str) -> "pd.Series[float]":
    """The metric of each run at its last step; NaN if the run diverged or the value is not finite."""
    values = runs[metric].astype(float)
    return values.where(np.isfinite(values) & (runs["status"] != _DIVERGED))


def measured_frames(frames: "pd.DataFrame", runs: "pd.DataFrame") -> "pd.DataFrame":
    """The frames joined with their runs, without the step at which a run diverged."""
    joined = frames.merge(runs.rename(columns={"step": "last"}), on="run_id")
    return joined[(joined["status"] != _DIVERGED) | (joined["step"] < joined["last"])]


def first_stops(runs: "pd.DataFrame", by: Sequence[str]) -> "pd.Series[float]":
    """For each run, the step at which the first run of its group was stopped early; NaN if none was."""
    stops = runs["step"].where(runs["status"] == _STOPPED)
    return stops.groupby([runs[name] for name in by], observed=True, dropna=False).transform("min")


def cut_at(
    runs: "pd.DataFrame", stops: "pd.Series[float]", frames: "pd.DataFrame", metrics: Sequence[str]
) -> "pd.DataFrame":
    """The runs as they were at these steps: runs that ended later get the metrics of their last frame up to the step.

    `frames` has `run_id`, `step` and the metrics, at least for the runs that ended later. Runs that were stopped early
    can only be compared with others at a step that all reached: the runs that continued are the better ones.
    """
    longer = runs["step"] > stops
    frames = frames.merge(runs[["run_id"]].assign(up_to=stops)[longer], on="run_id")
    frames = frames[frames["step"] <= frames["up_to"]].sort_values("step").drop_duplicates("run_id", keep="last")
    last = frames.set_index("run_id")
    changed = {metric: runs[metric].where(~longer, runs["run_id"].map(last[metric])) for metric in metrics}
    return runs.assign(**changed, step=runs["step"].where(~longer, stops).astype(int))


def summaries(table: "pd.DataFrame", metric: str, by: Sequence[str], confidence: float = CONFIDENCE) -> "pd.DataFrame":
    """A row per value of `by`: mean, std, n, low and high of the metric over seeds, without missing values.

    The table has columns `cell_id` and `seed`. If a row joins several cells, its mean is the mean of the cells' means.
    Its standard deviation is that of each seed's mean deviation from the cells' means. If no value is missing, this is
    the standard deviation of each seed's mean over the cells.
    """
    values = table[metric].astype(float)
    keys = list(dict.fromkeys([*by, "cell_id", "seed"]))
    held = table[keys].assign(value=values.where(np.isfinite(values)))
    options: Any = {"observed": True, "dropna": False}
    cells = held.groupby(list(dict.fromkeys([*by, "cell_id"])), **options)["value"]
    center = cells.mean().groupby(level=list(by), sort=True, **options).mean()
    # One value alone tells nothing about the spread over seeds.
    deviation = (held["value"] - cells.transform("mean")).where(cells.transform("count") > 1)
    seeds = held.assign(deviation=deviation).groupby(list(dict.fromkeys([*by, "seed"])), **options)
    per_seed = seeds[["value", "deviation"]].mean().groupby(level=list(by), sort=True, **options)
    out = center.rename("mean").to_frame().assign(std=per_seed["deviation"].std(), n=per_seed["value"].count())
    half = half_width(out["std"], out["n"], confidence)
    return out.assign(low=out["mean"] - half, high=out["mean"] + half).reset_index()


def cell_table(runs: "pd.DataFrame", metric: str, by: Sequence[str]) -> "pd.DataFrame":
    """`summaries`, and for each row the number of its `runs`, how many `diverged` or were `stopped`, and the last step.

    `runs` has a row per run with a result: done, stopped or diverged.
    """
    held = runs.assign(
        **{metric: values_at_end(runs, metric)},
        diverged=runs["status"] == _DIVERGED,
        stopped=runs["status"] == _STOPPED,
    )
    counts = held.groupby(list(by), observed=True, dropna=False).agg(
        runs=("status", "size"), diverged=("diverged", "sum"), stopped=("stopped", "sum"), last=("step", "max")
    )
    counts = counts.rename(columns={"last": "step"}).drop(columns=[name for name in by if name == "step"])
    return summaries(held, metric, by).merge(counts.reset_index(), on=list(by))


def curve_table(frames: "pd.DataFrame", metric: str, by: Sequence[str]) -> "pd.DataFrame":
    """`summaries` per step, and the number of `runs` with a value at that step.

    Where `runs` decreases, runs were stopped or diverged, and the mean is over the remaining runs.
    """
    keys = [*by, "step"]
    runs = frames.groupby(keys, observed=True, dropna=False)[metric].count().rename("runs")
    return summaries(frames, metric, keys).merge(runs.reset_index(), on=keys)


def comparable(cells: "pd.DataFrame") -> "pd.Series[bool]":
    """Whether each cell of a `cell_table` can be compared: all its runs were trained to the end and have a value."""
    return (cells["stopped"] == 0) & (cells["n"] == cells["runs"])
