"""The table of cells, best first; the best cell of each branch; the Pareto front: cells that no other dominates."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from mislabel.analysis.statistics.tables import At, SweepTables
from mislabel.sweeps.errors import MislabelError, nearest
from mislabel.sweeps.spec.model import Objective
from mislabel.sweeps.statistics import comparable

COUNTS = ("cells", "seeds", "stopped_cells", "runs", "diverged", "stopped", "step")
_STATISTICS = ("mean", "std", "n", "low", "high")


def ranked(sweep: SweepTables, metrics: Sequence[str] = (), by: Sequence[str] = (), at: At = "end") -> pd.DataFrame:
    """A row per cell, or per value of `by`: its counts, then mean, std, low and high of each metric.

    Metrics default to the objectives. If the first metric is an objective, rows are sorted by it: first the cells whose
    runs all have a value, then the other cells that were trained to the end, then the cells that were stopped early,
    the latest stop first, because they are measured at another step. If there are several objectives, the column
    `front` says which cells are on their Pareto front, and these cells come first. A row that joins cells has `cells`
    and `seeds`, the numbers of cells and seeds in its mean, and `stopped_cells`, the number of cells left out.
    """
    objectives = {objective.name: objective for objective in sweep.spec.metric}
    chosen = list(dict.fromkeys(metrics)) or list(objectives) or sweep.metrics[:1]
    if not chosen:
        raise MislabelError(f"{sweep.name} has no finished runs yet; `mislabel status {sweep.name}` shows its progress")
    tables = {metric: sweep.cells(metric, by=list(by) or None, at=at) for metric in chosen}
    first = tables[chosen[0]]
    if "cells" in first:
        first = first.assign(seeds=first["n"])
    keys = [name for name in first.columns if name not in (*_STATISTICS, *COUNTS) or name in by]
    out = first[[*keys, *(name for name in COUNTS if name in first and name not in by)]]
    for metric, table in tables.items():
        renamed = {"mean": metric, "std": f"{metric}_std", "low": f"{metric}_low", "high": f"{metric}_high"}
        out = out.assign(**{new: table[old].to_numpy() for old, new in renamed.items()})
    is_cell = "cell_id" in out
    order = pd.DataFrame({"off_front": False, "stopped": is_cell & (first["stopped"] > 0), "missing": False})
    if not by:
        order["missing"] = ~comparable(first)
        if len(objectives) > 1:
            out.insert(len(keys), "front", out["cell_id"].isin(front_of(sweep)))
            order["off_front"] = ~out["front"]
    if chosen[0] not in objectives:
        return out
    sign = 1 if objectives[chosen[0]].goal == "minimize" else -1
    order["latest"] = np.where(order["stopped"], -first["step"].fillna(0).astype(int), 0)
    order["value"] = sign * out[chosen[0]]
    return out.loc[order.sort_values(order.columns.tolist(), kind="stable").index]


def best_cells(sweep: SweepTables, by: Sequence[str] = (), metrics: Sequence[str] = (), at: At = "end") -> pd.DataFrame:
    """The row of `ranked` of the best cell, or of the best cell for each value of `by`, sorted by these values.

    The first objective decides which cell is the best; other metrics are shown beside it.
    """
    if not sweep.spec.metric:
        raise MislabelError(f"{sweep.name} has no best cell, because its spec names no metric to optimize; see cells")
    table = ranked(sweep, [sweep.spec.metric[0].name, *metrics], at=at)
    if not by:
        return table.head(1)
    for name in by:
        if name not in table:
            raise MislabelError(f"{name!r} does not vary{nearest(name, sweep.varying)}; see {', '.join(sweep.varying)}")
    return table.drop_duplicates(list(by)).sort_values(list(by), kind="stable")


def best_of_branches(sweep: SweepTables, metrics: Sequence[str] = (), at: At = "end") -> pd.DataFrame:
    """The best cell of each branch, sorted by the parameters with `grid: true`."""
    axes = sweep.spec.branch_axes()
    if not axes or not sweep.spec.metric:
        raise MislabelError(f"{sweep.name} has no branches to compare: that takes an objective and `grid: true`")
    return best_cells(sweep, axes, metrics, at)


def front_of(sweep: SweepTables) -> pd.Index:
    """The cells on the Pareto front of the spec's objectives. With one objective, these are the best cells."""
    objectives = sweep.spec.metric
    tables = {
        objective.name: sweep.cells(objective.name, by="cell_id").set_index("cell_id") for objective in objectives
    }
    return cells_on_front(tables, objectives)


def cells_on_front(tables: Mapping[str, pd.DataFrame], objectives: Sequence[Objective]) -> pd.Index:
    """The cells on the Pareto front of the objectives' means; `tables` has the table of cells of each, by cell id.

    A cell is not on the front if one of its runs was stopped early or has no value.
    """
    means = pd.DataFrame({name: table["mean"].where(comparable(table)) for name, table in tables.items()})
    return means.index[on_front(means.to_numpy(), objectives)]


def on_front(values: np.ndarray, objectives: Sequence[Objective]) -> np.ndarray:
    """Whether each row is on the front; there is a column per objective.

    A row dominates another if it is as good in all objectives and better in one. A row with a NaN is not on the front
    and dominates no other. Rows that are equal in every objective are all on the front, or none is.
    """
    signs = np.array([1.0 if objective.goal == "minimize" else -1.0 for objective in objectives])
    costs = np.asarray(values, dtype=float).reshape(-1, len(signs)) * signs
    front = np.zeros(len(costs), bool)
    candidates = np.flatnonzero(~np.isnan(costs).any(axis=1))
    # In this order no row can be dominated by a later one.
    order = candidates[np.lexsort(costs[candidates].T[::-1])]
    kept = np.empty((0, len(signs)))
    for i in order:
        at_least_as_good = (kept <= costs[i]).all(axis=1)
        if not (at_least_as_good & (kept < costs[i]).any(axis=1)).any():
            front[i] = True
            kept = np.vstack([kept, costs[i]])
    return front
