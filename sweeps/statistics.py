"""Statistics over seeds: the mean, its interval, and the rule for which cells can be compared.

Tables, figures, searches, reports, MLflow and claims all use these functions, so that they show the same numbers:

- A diverged run is counted and has no value, however finite its last metrics are: they belong to an early step.
- NaN and infinite values are missing. Tables and figures leave them out, and `n` is the number of seeds that remain.
  Searches and claims do not average such a cell at all, because the runs that remain are the better ones.
- The interval is Student's t interval of the mean over seeds. A single value has no interval.
- A row that joins several cells averages within each cell first. Its interval is over seeds, because cells share them.
  Cells with a run that was stopped early are left out and counted: the others are taken at the end of training.
- Cells are compared if all their runs were trained to the end and have a value.
"""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from mislabel.sweeps.seed_means import CONFIDENCE, Rows, half_width

if TYPE_CHECKING:
    import pandas as pd

# A table of runs by steps may have this many places, or this many per value; otherwise it is divided.
_LARGEST_TABLE = 1 << 24
_SPARSEST = 4
# Values of the column `status` of `runs`. The enumeration `Status` is in the store, which uses this module.
_DONE = "done"
_DIVERGED = "diverged"
_STOPPED = "stopped"
_RUNNING = "running"

Missing = Literal["drop", "poison"]
"""What a missing value does: `drop` leaves it out; `poison` makes the whole result missing."""


class Summary(NamedTuple):
    """Mean, standard deviation, number of values and interval; NaN where there are too few values."""

    mean: float
    std: float
    n: int
    low: float
    high: float


class Frames(NamedTuple):
    """Some values of a metric. Each has the position of its run in a table of runs, and its step."""

    run: np.ndarray
    step: np.ndarray
    value: np.ndarray


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


def last_values(frames: Sequence[Frames], up_to: np.ndarray) -> np.ndarray:
    """The value of each run in its last frame up to a step, which is given per run; NaN if it has none."""
    values, last = np.full(len(up_to), np.nan), np.full(len(up_to), -1, np.int64)
    for run, step, value in frames:
        early = np.flatnonzero(step <= up_to[run])
        np.maximum.at(last, run[early], step[early])
        shown = early[step[early] == last[run[early]]]
        values[run[shown]] = value[shown]
    return values


def at_step(runs: "pd.DataFrame", frames: Sequence[Frames], metric: str, step: int) -> "pd.DataFrame":
    """The runs as they were at a step. A run that was stopped later counts as done. One stopped earlier has no value.

    Nor has any other run of its cell: those that continued are the better ones.
    """
    reached = (runs["status"] != _STOPPED) | (runs["step"] >= step)
    complete = reached.groupby(runs["cell_id"]).transform("all")
    value = last_values(frames, np.full(len(runs), step))
    status = runs["status"].where(~reached | (runs["status"] != _STOPPED), _DONE)
    return runs.assign(**{metric: np.where(complete, value, np.nan)}, status=status, step=runs["step"].clip(upper=step))


def at_best_step(runs: "pd.DataFrame", frames: Sequence[Frames], metric: str, goal: str) -> "pd.DataFrame":
    """The runs of each cell at the step where the cell's mean is best, among the steps that all its runs reached."""
    curve = curve_table(runs, frames, ["cell_id"])
    needed = (runs["status"] != _DIVERGED).groupby(runs["cell_id"]).sum()
    curve = curve[(curve["runs"] > 0) & (curve["runs"] >= curve["cell_id"].map(needed)) & (curve["stopped"] == 0)]
    cost = curve["mean"] if goal == "minimize" else -curve["mean"]
    best = curve.assign(cost=cost).sort_values(["cost", "step"], kind="stable").drop_duplicates("cell_id")
    steps = runs["cell_id"].map(best.set_index("cell_id")["step"])
    value = last_values(frames, steps.fillna(-1).to_numpy(np.int64))
    return runs.assign(**{metric: value}, step=steps.fillna(runs["step"]).astype(int))


def summaries(table: "pd.DataFrame", metric: str, by: Sequence[str], confidence: float = CONFIDENCE) -> "pd.DataFrame":
    """A row per value of `by`: mean, std, n, low and high of the metric over seeds, without missing values.

    The table has columns `cell_id` and `seed`, and a row per run. See `Rows.summary` for rows that join several cells.
    """
    rows = Rows(table, by)
    found = rows.summary(table[metric].to_numpy(float)[rows.order, None], confidence)
    names = ("mean", "std", "n", "low", "high")
    out: pd.DataFrame = rows.keys.assign(**{name: found[name][:, 0] for name in names})
    return out


def cell_table(runs: "pd.DataFrame", metric: str, by: Sequence[str]) -> "pd.DataFrame":
    """`summaries`, and for each row the number of its `runs`, how many `diverged` or were `stopped`, and the last step.

    `runs` has a row per run with a result: done, stopped or diverged.
    """
    held = runs.assign(
        **{metric: values_at_end(runs, metric)},
        diverged=runs["status"] == _DIVERGED,
        stopped=runs["status"] == _STOPPED,
    )
    counts = held.groupby(list(by), observed=True, dropna=False, sort=True).agg(
        runs=("status", "size"), diverged=("diverged", "sum"), stopped=("stopped", "sum"), last=("step", "max")
    )
    counts = counts.rename(columns={"last": "step"}).drop(columns=[name for name in by if name == "step"])
    return summaries(held, metric, by).assign(**{str(name): counts[name].to_numpy() for name in counts})


def pooled_table(runs: "pd.DataFrame", metric: str, by: Sequence[str]) -> "pd.DataFrame":
    """`cell_table` for rows that join cells: all cells are taken at the end of training.

    Cells with a stopped run are left out and counted in `stopped_cells`. Their last values belong to an earlier step,
    and to take the other cells at that step would hide how these ended. `cells` is the number of cells in the mean.
    """
    stopped = (runs["status"] == _STOPPED).groupby(runs["cell_id"]).transform("any")
    held = runs.assign(**{metric: values_at_end(runs, metric).where(~stopped)})
    left_out = held.assign(cell_id=held["cell_id"].where(stopped))
    rows = {"cells": held.assign(cell_id=held["cell_id"].where(held[metric].notna())), "stopped_cells": left_out}
    counts = {
        name: table.groupby(list(by), observed=True, dropna=False, sort=True)["cell_id"].nunique().to_numpy()
        for name, table in rows.items()
    }
    found = cell_table(held, metric, by)
    at = list(found.columns).index("runs")
    for i, (name, numbers) in enumerate(counts.items()):
        if name not in by:
            found.insert(at + i, name, numbers)
    if "step" not in by:
        ends = held["step"].where(~stopped).groupby([held[name] for name in by], observed=True, dropna=False, sort=True)
        found["step"] = ends.max().astype("Int64").array
    return found


def curve_table(runs: "pd.DataFrame", frames: Sequence[Frames], by: Sequence[str]) -> "pd.DataFrame":
    """The statistics of `summaries` for each row and step, and the number of `runs` with a value at that step.

    `stopped` is the number of runs of the row that were stopped before the step, and `diverged` the number of those
    that had diverged. Where these are not 0, the mean is over the remaining runs, which are the better ones. `running`
    is the number of runs that are still training and have not reached the step.
    """
    import pandas as pd

    rows = Rows(runs, by)
    steps = np.unique(np.concatenate([np.empty(0, np.int64), *(_distinct(some.step) for some in frames)]))
    is_sparse = len(runs) * len(steps) > max(_LARGEST_TABLE, _SPARSEST * sum(len(some.step) for some in frames))
    if is_sparse and len(rows.keys) > 1:  # rows with other steps
        return pd.concat([curve_table(*half, by) for half in _halves(runs, frames, rows)], ignore_index=True)
    found = rows.summary(_table_of(frames, runs, rows, steps))
    ended = {
        "stopped": rows.count_before(runs["status"] == _STOPPED, runs["step"], steps),
        "diverged": rows.count_before(runs["status"] == _DIVERGED, runs["step"] - 1, steps),
        "running": rows.count_before(runs["status"] == _RUNNING, runs["step"], steps),
    }
    names = ["mean", "std", "n", "low", "high", *(["runs"] if "cell_id" in by else ["cells", "runs"])]
    places: slice | np.ndarray = slice(None)
    if not found["runs"].all():
        marks = [some._replace(value=np.ones(len(some.run))) for some in frames]
        places = np.flatnonzero(rows.summary(_table_of(marks, runs, rows, steps))["runs"])
    row = np.repeat(np.arange(len(rows.keys)), len(steps))[places]
    columns = {"step": np.tile(steps, len(rows.keys))[places], **{name: found[name].ravel()[places] for name in names}}
    keys = {name: rows.keys[name].array.take(row) for name in by}
    columns |= {name: numbers.ravel()[places] for name, numbers in ended.items()}
    return pd.DataFrame({**keys, **columns}, copy=False)


def _table_of(frames: Sequence[Frames], runs: "pd.DataFrame", rows: Rows, steps: np.ndarray) -> np.ndarray:
    """The values as a table: runs in the order of `rows`, steps. It is NaN where a run has no value."""
    values = np.full((len(runs), len(steps)), np.nan)
    flat = values.ravel()
    begins = rows.place * len(steps)
    lookup = _lookup(steps)
    for run, step, value in frames:
        flat[begins[run] + (np.searchsorted(steps, step) if lookup is None else lookup[step])] = value
    diverged = (runs["status"] == _DIVERGED).to_numpy()
    for place, last in zip(rows.place[diverged], runs["step"].to_numpy()[diverged], strict=True):
        values[place, steps >= last] = np.nan
    return values


def _distinct(steps: np.ndarray) -> np.ndarray:
    top = int(steps.max(initial=0))
    if top > _LARGEST_TABLE:
        return np.unique(steps)
    seen = np.zeros(top + 1, bool)
    seen[steps] = True
    return np.flatnonzero(seen)


def _lookup(steps: np.ndarray) -> np.ndarray | None:
    """By step, its number among the steps; None if that would be too large."""
    if not len(steps) or steps[-1] > _LARGEST_TABLE:
        return None
    numbers = np.zeros(steps[-1] + 1, np.int64)
    numbers[steps] = np.arange(len(steps))
    return numbers


def _halves(runs: "pd.DataFrame", frames: Sequence[Frames], rows: Rows) -> "list[tuple[pd.DataFrame, list[Frames]]]":
    """The runs of the first rows and those of the others, with their frames."""
    row = rows.row[rows.place]
    halves = []
    for chosen in (row < len(rows.keys) // 2, row >= len(rows.keys) // 2):
        place, own = np.cumsum(chosen) - 1, [chosen[some.run] for some in frames]
        parts = zip(frames, own, strict=True)
        halves.append((runs[chosen], [Frames(place[f.run[k]], f.step[k], f.value[k]) for f, k in parts if k.any()]))
    return halves


def comparable(cells: "pd.DataFrame") -> "pd.Series[bool]":
    """Whether each cell of a `cell_table` can be compared: all its runs were trained to the end and have a value."""
    return (cells["stopped"] == 0) & (cells["n"] == cells["runs"])
