"""Cells side by side in several metrics, the best first."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mislabel.analysis.statistics.pareto import on_front
from mislabel.sweeps.errors import MislabelError

if TYPE_CHECKING:
    from mislabel.analysis.sweep import Sweep

COUNTS = ("runs", "diverged", "stopped", "step")
_STATISTICS = ("mean", "std", "n", "low", "high")


def ranked(sweep: "Sweep", metrics: Sequence[str] = (), by: Sequence[str] = ()) -> pd.DataFrame:
    """A row per cell, or per value of `by`: its counts, then mean, std, low and high of each metric.

    Metrics are the objectives by default. Where the first of them is one, the best row comes first; cells of which a
    run has no value come after those of which all have, and after these the ones that were stopped early, which are
    measured at another step: the one that came furthest first. With several objectives, `front` tells which cells are
    on their Pareto front, and these come before all others.
    """
    objectives = {objective.name: objective for objective in sweep.spec.metric}
    chosen = list(dict.fromkeys(metrics)) or list(objectives) or sweep.metrics[:1]
    if not chosen:
        raise MislabelError(f"{sweep.name} has no finished runs yet; `mislabel status {sweep.name}` says how far it is")
    tables = {metric: sweep.cells(metric, by=list(by) or None) for metric in chosen}
    first = tables[chosen[0]]
    keys = [name for name in first.columns if name not in (*_STATISTICS, *COUNTS) or name in by]
    out = first[[*keys, *(name for name in COUNTS if name not in by)]]
    for metric, table in tables.items():
        renamed = {"mean": metric, "std": f"{metric}_std", "low": f"{metric}_low", "high": f"{metric}_high"}
        out = out.merge(table[[*keys, *renamed]].rename(columns=renamed), on=keys)
    order = pd.DataFrame({"off_front": False, "short": first["stopped"] > 0, "without": False}, index=out.index)
    if not by:
        order["without"] = first["n"] < first["runs"]
        if len(objectives) > 1:
            out.insert(len(keys), "front", front_of(sweep, out["cell_id"]))
            order["off_front"] = ~out["front"]
    if chosen[0] not in objectives:
        return out
    sign = 1 if objectives[chosen[0]].goal == "minimize" else -1
    order["further"] = np.where(order["short"], -first["step"], 0)
    order["value"] = sign * out[chosen[0]]
    return out.loc[order.sort_values(order.columns.tolist(), kind="stable").index]


def front_of(sweep: "Sweep", cells: pd.Series) -> pd.Series:
    """Whether each of these cells is on the Pareto front of the objectives' means.

    Cells that were stopped early, or of which a run has no value, are not.
    """
    objectives = sweep.spec.metric
    means = pd.DataFrame({objective.name: _comparable(sweep, objective.name) for objective in objectives})
    front = pd.Series(on_front(means.to_numpy(), objectives), means.index)
    return cells.map(front).astype(bool)


def _comparable(sweep: "Sweep", metric: str) -> pd.Series:
    table = sweep.cells(metric, by="cell_id").set_index("cell_id")
    return table["mean"].where((table["stopped"] == 0) & (table["n"] == table["runs"]))
