"""Figures of a sweep; the only module that draws."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.sweep import Sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 8


def draw_curves(sweep: Sweep, path: str | Path, metrics: list[str] | None = None, by: str | None = None) -> None:
    """Metrics over steps, mean and 95 % interval over seeds, one line per value of `by`, one panel per metric.

    By default: the objectives, by the first parameter that varies.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    chosen = metrics or [objective.name for objective in sweep.spec.metric] or sweep.metrics[:1]
    grouping = by or next(iter(sweep.varying), None)
    across = min(3, len(chosen))
    down = math.ceil(len(chosen) / across)
    figure, axes = plt.subplots(down, across, figsize=(4.6 * across, 3.4 * down), squeeze=False, layout="constrained")
    for axis in axes.flat[len(chosen) :]:
        axis.set_visible(False)
    for axis, metric in zip(axes.flat, chosen, strict=False):
        _draw_lines(axis, sweep, metric, grouping)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    if len(labels) > 1:
        figure.legend(handles, labels, title=grouping, loc="outside right center", frameon=False)
    seeds = sweep.spec.seeds.count
    figure.suptitle(f"{sweep.name}: {sweep.spec.task}, mean and 95 % interval over {seeds} seeds", fontsize=11)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_lines(axis: "Axes", sweep: Sweep, metric: str, by: str | None) -> None:
    import matplotlib

    table = sweep.curve(metric, by=by or "task")
    groups = list(table.groupby(by or "task", sort=True))[:_MOST_LINES]
    colours = matplotlib.colormaps["viridis"]
    for i, (value, rows) in enumerate(groups):
        colour = colours(0.9 * i / max(1, len(groups) - 1))
        label = f"{value:g}" if isinstance(value, float) else str(value)
        axis.plot(rows["step"], rows["mean"], color=colour, label=label, linewidth=1.6)
        axis.fill_between(rows["step"], rows["low"], rows["high"], color=colour, alpha=0.2, linewidth=0)
    if table["step"].max() > 100:
        axis.set_xscale("symlog", linthresh=1)
    axis.set_title(metric.replace("_", " "), fontsize=10)
    axis.set_xlabel("step")
    axis.spines[["top", "right"]].set_visible(False)
