"""The table of cells with several metrics, best cell first."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mislabel.analysis.statistics.pareto import on_front
from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.statistics import comparable

COUNTS = ("runs", "diverged", "stopped", "step")
_STATISTICS = ("mean", "std", "n", "low", "high")


def ranked(sweep: SweepTables, metrics: Sequence[str] = (), by: Sequence[str] = ()) -> pd.DataFrame:
    """A row per cell, or per value of `by`: its counts, then mean, std, low and high of each metric.

    Metrics default to the objectives. If the first metric is an objective, rows are sorted by it: first the cells whose
    runs all have a value, then the other cells that were trained to the end, then the cells that were stopped early,
    the latest stop first, because they are measured at another step. If there are several objectives, the column
    `front` says which cells are on their Pareto front, and these cells come first.
    """
    objectives = {objective.name: objective for objective in sweep.spec.metric}
    chosen = list(dict.fromkeys(metrics)) or list(objectives) or sweep.metrics[:1]
    if not chosen:
        raise MislabelError(f"{sweep.name} has no finished runs yet; `mislabel status {sweep.name}` shows its progress")
    tables = {metric: sweep.cells(metric, by=list(by) or None) for metric in chosen}
    first = tables[chosen[0]]
    keys = [name for name in first.columns if name not in (*_STATISTICS, *COUNTS) or name in by]
    out = first[[*keys, *(name for name in COUNTS if name not in by)]]
    for metric, table in tables.items():
        renamed = {"mean": metric, "std": f"{metric}_std", "low": f"{metric}_low", "high": f"{metric}_high"}
        out = out.merge(table[[*keys, *renamed]].rename(columns=renamed), on=keys)
    order = pd.DataFrame({"off_front": False, "stopped": first["stopped"] > 0, "missing": False}, index=out.index)
    if not by:
        order["missing"] = ~comparable(first)
        if len(objectives) > 1:
            out.insert(len(keys), "front", front_of(sweep, out["cell_id"]))
            order["off_front"] = ~out["front"]
    if chosen[0] not in objectives:
        return out
    sign = 1 if objectives[chosen[0]].goal == "minimize" else -1
    order["latest"] = np.where(order["stopped"], -first["step"], 0)
    order["value"] = sign * out[chosen[0]]
    return out.loc[order.sort_values(order.columns.tolist(), kind="stable").index]


def front_of(sweep: SweepTables, cells: pd.Series) -> pd.Series:
    """Whether each of these cells is on the Pareto front of the objectives' means.

    A cell is not on the front if one of its runs was stopped early or has no value.
    """
    objectives = sweep.spec.metric
    means = pd.DataFrame({objective.name: _comparable_means(sweep, objective.name) for objective in objectives})
    front = pd.Series(on_front(means.to_numpy(), objectives), means.index)
    return cells.map(front).astype(bool)


def _comparable_means(sweep: SweepTables, metric: str) -> pd.Series:
    table = sweep.cells(metric, by="cell_id").set_index("cell_id")
    return table["mean"].where(comparable(table))
