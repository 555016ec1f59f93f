"""Figures of a sweep as image files.

Figures are made without pyplot, so that drawing one changes neither the backend nor the open figures of a notebook.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mislabel.analysis.statistics.ranking import best_of_branches
from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import count, value_text, with_interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES = 10
_MOST_BRANCH_AXES = 3
# The colours of a heat map are logarithmic if the largest value is more than this many times the smallest.
_WIDE = 3
# Text is dark on colours above this part of the scale.
_LIGHT = 0.6
_STYLES = ("-", "--", ":", "-.")


def save(figure: "Figure", path: str | Path) -> None:
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise MislabelError(f"{path}: can't be written: {error}") from None


def curve_figure(
    sweep: SweepTables, metrics: Sequence[str] = (), by: Sequence[str] = (), at: int | None = None
) -> "Figure":
    """Metrics over steps, one panel each: mean and 95 % interval over seeds.

    The panel of an array metric is a histogram of its values in all runs, at the snapshot nearest to step `at`. The
    default is the last snapshot.

    Lines differ in colour by the first parameter of `by` and in style by the second. The default is the first two
    parameters that vary. Metrics default to the objectives.
    """
    from matplotlib.figure import Figure

    chosen = list(metrics) or [objective.name for objective in sweep.spec.metric] or sweep.metrics[:1]
    grouping = list(by) or sweep.varying[:2]
    if len(grouping) > 2:
        raise MislabelError(f"lines can differ by two parameters, not by {len(grouping)}: {', '.join(grouping)}")
    across = min(3, len(chosen))
    down = math.ceil(len(chosen) / across)
    figure = Figure(figsize=(1.6 + 3.6 * across, 0.7 + 2.9 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for axis in axes.flat[len(chosen) :]:
        axis.set_visible(False)
    for axis, metric in zip(axes.flat, chosen, strict=False):
        if metric in sweep.metrics or metric not in sweep.array_metrics:
            _draw_lines(axis, sweep, metric, grouping or ["task"])
        else:
            _draw_histogram(axis, sweep, metric, grouping or ["task"], at)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    if len(labels) > 1:
        title = ", ".join(grouping)
        lines = len(sweep.read("runs", grouping).drop_duplicates())
        if lines > _MOST_LINES:
            title += f"\nfirst {_MOST_LINES} of {lines}"
        figure.legend(handles, labels, title=title, loc="outside right center", frameon=False, fontsize=8)
    seeds = count(sweep.spec.seeds.count, "seed")
    figure.suptitle(f"{sweep.name}: {sweep.spec.task}, {seeds}, mean and 95 % interval", fontsize=10)
    return figure


def branch_figure(sweep: SweepTables, metric: str | None = None) -> "Figure":
    """The best cell of each branch of a search: a heat map of the metric, by default the first objective.

    Each square shows mean and 95 % interval, and below it the values that the search found. The last two parameters
    with `grid: true` are the axes. The one before them, if there is one, makes the panels.
    """
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    table = best_of_branches(sweep, [metric] if metric else [])
    axes = sweep.spec.branch_axes()
    if len(axes) > _MOST_BRANCH_AXES:
        raise MislabelError(f"{sweep.name} has {len(axes)} parameters with `grid: true`; at most three can be drawn")
    panel, down, across = ["", "", *axes][-3:]
    table[""] = ""  # the value of a parameter that is not there
    shown = metric or sweep.spec.metric[0].name
    searched = [name for name in sweep.varying if name not in axes]
    panels = list(table.groupby(panel))
    width, height = table[across].nunique() * len(panels), table[down].nunique()
    figure = Figure(figsize=(1.6 + 1.2 * width, 1.2 + (0.3 + 0.2 * len(searched)) * height), layout="constrained")
    low, high = table[shown].min(), table[shown].max()
    norm = LogNorm(low, high) if low > 0 and high > _WIDE * low else Normalize(low, high)
    for axis, (value, cells) in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels, strict=True):
        grid = cells.pivot(index=down, columns=across, values=shown)
        image = axis.imshow(grid, cmap="viridis", aspect="auto", origin="lower", norm=norm)
        for _, cell in cells.iterrows():
            found = [f"{name.replace('_', ' ')} {value_text(cell[name], digits=2)}" for name in searched]
            text = "\n".join([with_interval(cell[shown], cell[f"{shown}_high"]), *found])
            colour = "white" if norm(cell[shown]) < _LIGHT else "black"
            at = grid.columns.get_loc(cell[across]), grid.index.get_loc(cell[down])
            axis.text(*at, text, ha="center", va="center", fontsize=6.5, color=colour)
        axis.set_xticks(range(len(grid.columns)), map(value_text, grid.columns))
        axis.set_yticks(range(len(grid.index)), map(value_text, grid.index))
        _finish(axis, f"{panel} {value_text(value)}", across)
        axis.set_ylabel(down, fontsize=9)
    bar = figure.colorbar(image, ax=figure.axes, label=shown.replace("_", " "), format="%.2g")
    bar.set_ticks([float(norm.inverse(part)) for part in (0, 0.25, 0.5, 0.75, 1)])
    bar.minorticks_off()
    figure.suptitle(f"{sweep.name}: the best cell of each branch, mean and 95 % interval", fontsize=10)
    return figure


def _lines(table: "pd.DataFrame", names: Sequence[str]) -> "Iterator[tuple[pd.DataFrame, dict[str, Any]]]":
    """The rows of each line, one per value of the parameters, and the properties with which to draw it."""
    import matplotlib

    levels = [sorted(table[name].unique()) for name in names]
    colours = matplotlib.colormaps["viridis"]
    for value, rows in list(table.groupby(list(names), sort=True))[:_MOST_LINES]:
        ranks = [level.index(part) for level, part in zip(levels, value, strict=True)]
        colour = colours(0.9 * ranks[0] / max(1, len(levels[0]) - 1))
        style = _STYLES[ranks[1] % len(_STYLES)] if len(ranks) > 1 else "-"
        label = ", ".join(map(value_text, value))
        yield rows, {"label": label, "color": colour, "linestyle": style, "linewidth": 1.5}


def _draw_lines(axis: "Axes", sweep: SweepTables, metric: str, by: Sequence[str]) -> None:
    table = sweep.curve(metric, by)
    for rows, look in _lines(table, by):
        axis.plot(rows["step"], rows["mean"], **look)
        axis.fill_between(rows["step"], rows["low"], rows["high"], color=look["color"], alpha=0.15, linewidth=0)
    steps = sorted(table["step"].unique())
    # The first steps are closer to each other than evenly spaced steps would be.
    if len(steps) > 2 and steps[-1] > 100 and 2 * steps[1] * (len(steps) - 1) < steps[-1]:
        axis.set_xscale("symlog", linthresh=1)
    _finish(axis, metric.replace("_", " "), "step")


def _draw_histogram(axis: "Axes", sweep: SweepTables, metric: str, by: Sequence[str], at: int | None) -> None:
    import numpy as np

    table = sweep.read("arrays", ["run_id", "step", "values"], {"metric": metric})
    steps = table["step"].unique()
    step = max(steps) if at is None else min(steps, key=lambda known: abs(known - at))
    table = table[table["step"] == step].merge(sweep.read("runs", ["run_id", *by]), on="run_id")
    values = np.concatenate(table["values"].to_list())
    edges = np.histogram_bin_edges(values[np.isfinite(values)], bins="auto")
    for rows, look in _lines(table, by):
        kept = np.concatenate(rows["values"].to_list())
        counts, _ = np.histogram(kept[np.isfinite(kept)], edges)
        axis.stairs(counts / max(1, counts.sum()), edges, **look)
    _finish(axis, f"{metric.replace('_', ' ')} at step {step:,}", "value")
    axis.set_ylabel("share", fontsize=9)


def _finish(axis: "Axes", title: str, along: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(along, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
