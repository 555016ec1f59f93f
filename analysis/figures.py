"""Figures of a sweep; the only module that draws."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.sweep import Sweep, Where
from sweeps.errors import MislabelError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_LINES = 10
_STYLES = ("-", "--", ":", "-.")


def draw_curves(
    sweep: Sweep, path: str | Path, metrics: Sequence[str] = (), by: Sequence[str] = (), where: Where | None = None
) -> None:
    """Metrics over steps, one panel each: mean and 95 % interval over seeds.

    Lines differ in colour by the first parameter of `by` and in style by the second; by default these are the first two
    that vary. Metrics are the objectives by default.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    chosen = list(metrics) or [objective.name for objective in sweep.spec.metric] or sweep.metrics[:1]
    grouping = list(by) or sweep.varying[:2]
    if len(grouping) > 2:
        raise MislabelError(f"lines can differ by two parameters, not by {len(grouping)}: {', '.join(grouping)}")
    across = min(3, len(chosen))
    down = math.ceil(len(chosen) / across)
    size = (1.6 + 3.6 * across, 0.7 + 2.9 * down)
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    try:
        for axis in axes.flat[len(chosen) :]:
            axis.set_visible(False)
        for axis, metric in zip(axes.flat, chosen, strict=False):
            _draw_lines(axis, sweep, metric, grouping, where)
        handles, labels = axes.flat[0].get_legend_handles_labels()
        if len(labels) > 1:
            title = ", ".join(grouping)
            figure.legend(handles, labels, title=title, loc="outside right center", frameon=False, fontsize=8)
        seeds = sweep.spec.seeds.count
        figure.suptitle(f"{sweep.name}: {sweep.spec.task}, {seeds} seeds, mean and 95 % interval", fontsize=10)
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise MislabelError(f"{path}: can't be written: {error}") from None
    finally:
        plt.close(figure)


def _draw_lines(axis: "Axes", sweep: Sweep, metric: str, by: Sequence[str], where: Where | None) -> None:
    import matplotlib

    table = sweep.curve(metric, by=by or ["task"], where=where)
    names = list(by) or ["task"]
    levels = [list(dict.fromkeys(table[name])) for name in names]
    colours = matplotlib.colormaps["viridis"]
    for value, rows in list(table.groupby(names, sort=True))[:_MOST_LINES]:
        places = [level.index(part) for level, part in zip(levels, value, strict=True)]
        colour = colours(0.9 * places[0] / max(1, len(levels[0]) - 1))
        style = _STYLES[places[1] % len(_STYLES)] if len(places) > 1 else "-"
        label = ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)
        axis.plot(rows["step"], rows["mean"], style, color=colour, label=label, linewidth=1.5)
        axis.fill_between(rows["step"], rows["low"], rows["high"], color=colour, alpha=0.15, linewidth=0)
    if table["step"].max() > 100:
        axis.set_xscale("symlog", linthresh=1)
    axis.set_title(metric.replace("_", " "), fontsize=9)
    axis.set_xlabel("step", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
