"""The steps at which training enters a new phase, per run and with intervals over seeds.

A phase begins where a curve crosses a level, or turns. Each function takes the curves of a sweep (columns `run_id`,
`step` and the metric) and returns a step per run, by `run_id`; NaN if the run never gets there. Steps between two
frames are interpolated, because frames may be far apart.
"""

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import pandas as pd

from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.statistics import summary

_SMOOTHED_SHARE = 1 / 6
_FEWEST_SMOOTHED = 3


def smoothed(values: pd.Series) -> pd.Series:
    """Running means over a sixth of the frames, at least three: late curves are spiky. The first frame stays."""
    later = values.iloc[1:]
    window = max(_FEWEST_SMOOTHED, round(len(later) * _SMOOTHED_SHARE) | 1)  # odd, because it is centred
    found: pd.Series = pd.concat([values.iloc[:1], later.rolling(window, center=True, min_periods=1).mean()])
    return found


def crossing(
    curves: pd.DataFrame, metric: str, level: float, direction: Literal["up", "down"] = "up", smooth: bool = True
) -> pd.Series:
    """The first step at which the metric reaches the level, from below (`up`) or from above (`down`).

    A curve that is already beyond the level at its first frame crosses it there.
    """
    sign = 1 if direction == "up" else -1

    def cross(steps: np.ndarray, values: np.ndarray) -> float:
        beyond = np.flatnonzero(sign * (values - level) >= 0)
        if not len(beyond):
            return np.nan
        i = beyond[0]
        if i == 0 or not np.isfinite(values[i - 1]):
            return float(steps[i])
        share = (level - values[i - 1]) / (values[i] - values[i - 1])
        return float(steps[i - 1] + share * (steps[i] - steps[i - 1]))

    return _per_run(curves, metric, smooth, cross)


def turn(
    curves: pd.DataFrame, metric: str, kind: Literal["highest", "lowest"] = "highest", smooth: bool = True
) -> pd.Series:
    """The step at which the metric is highest or lowest. A curve that is so at its last frame has not turned: NaN."""

    def find(steps: np.ndarray, values: np.ndarray) -> float:
        known = np.where(np.isfinite(values), values, -np.inf if kind == "highest" else np.inf)
        i = int(np.argmax(known) if kind == "highest" else np.argmin(known))
        return float(steps[i]) if i < len(steps) - 1 else np.nan

    return _per_run(curves, metric, smooth, find)


def phases(sweep: SweepTables) -> pd.DataFrame:
    """The phases of a sweep: for each cell, when each begins, as mean and 95 % interval over seeds.

    `reached` counts the runs that get there; the mean is over them, and there is none unless all get there.
    """
    known = {name: find for name, (metrics, find) in PHASES.items() if set(metrics) <= set(sweep.metrics)}
    runs = sweep.read("runs", ["run_id", "cell_id", "seed", "status", *sweep.varying])
    found = []
    for name, find in known.items():
        steps = runs["run_id"].map(find(sweep)).where(runs["status"] == "done")
        for _, cell in runs.assign(value=steps).groupby("cell_id", sort=False):
            mean = summary(cell["value"], "poison")
            settings = cell.iloc[0][sweep.varying].to_dict()
            reached = int(cell["value"].notna().sum())
            found.append(
                {"phase": name, **settings, "mean": mean.mean, "low": mean.low, "high": mean.high, "reached": reached,
                 "runs": len(cell)}
            )  # fmt: skip
    return pd.DataFrame(found)


def _per_run(
    curves: pd.DataFrame, metric: str, smooth: bool, find: Callable[[np.ndarray, np.ndarray], float]
) -> pd.Series:
    found = {}
    for run, rows in curves.sort_values("step").groupby("run_id"):
        values = smoothed(rows[metric]) if smooth else rows[metric]
        found[run] = find(rows["step"].to_numpy(float), values.to_numpy(float))
    return pd.Series(found, dtype=float)


def _curve(
    metric: str, find: Callable[[pd.DataFrame], pd.Series]
) -> tuple[tuple[str], Callable[[SweepTables], pd.Series]]:
    return (metric,), lambda sweep: find(sweep.read("curves", ["run_id", "step", metric]))


def _stored(metric: str) -> tuple[tuple[str], Callable[[SweepTables], pd.Series]]:
    """A step that the task itself finds, more exactly than frames could."""
    return (metric,), lambda sweep: sweep.read("runs", ["run_id", metric]).set_index("run_id")[metric]


PHASES: Mapping[str, tuple[tuple[str, ...], Callable[[SweepTables], pd.Series]]] = {
    "noisy labels turn": _curve("noisy_residual", lambda curves: turn(curves, "noisy_residual")),
    "α reaches 1": _curve("alpha", lambda curves: crossing(curves, "alpha", 1.0)),
    "first neuron escapes": _stored("escape_step"),
    "all neurons have escaped (phase I)": _stored("full_escape_step"),
    "neurons align (phase II)": _stored("phase_two_step"),
    "the training labels are interpolated": _stored("interpolation_step"),
    "half of the first active neurons are dead": _curve("active_share", lambda curves: _halved(curves, "active_share")),
}
"""Names of phases, with the metrics they need and the step per run."""


def _halved(curves: pd.DataFrame, metric: str) -> pd.Series:
    """The first step at which the metric is half of its first value."""
    first = curves.sort_values("step").groupby("run_id")[metric].transform("first")
    return crossing(curves.assign(share=curves[metric] / first), "share", 0.5, "down", smooth=False)
