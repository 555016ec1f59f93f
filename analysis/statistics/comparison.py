"""Cells at a step that all of them reached: what can be compared where some were stopped early.

Cells that were trained to the end are then the better ones, and what holds among them need not hold among all.
"""

from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from mislabel.analysis.sweep import Sweep


def common_step(sweep: "Sweep") -> int | None:
    """The step at which the first run was stopped; None where none was, and all can be compared at their end."""
    stops = sweep.read("runs", ["step"], {"status": "stopped"})["step"]
    return int(stops.min()) if len(stops) else None


def values_of(sweep: "Sweep", metric: str, step: int | None = None) -> pd.DataFrame:
    """Columns `cell_id` and `value`, a row per run: the metric at its end, or at the last frame up to that step.

    The value is nan where the run has none, diverged, or was stopped before that step, or, without one, at all.
    """
    runs = sweep.read("runs", ["run_id", "cell_id", "status", "step", metric])
    runs = runs[runs["status"].isin(["done", "stopped", "diverged"])]
    if step is None:
        value = runs[metric].where(runs["status"] == "done")
    else:
        curves = sweep.read("curves", ["run_id", "step", metric])
        curves = curves[curves["step"] <= step].sort_values("step").drop_duplicates("run_id", keep="last")
        reached = (runs["status"] == "done") | (runs["step"] >= step)
        value = runs["run_id"].map(curves.set_index("run_id")[metric]).where(reached)
    return pd.DataFrame({"cell_id": runs["cell_id"], "value": value.astype(float)})
