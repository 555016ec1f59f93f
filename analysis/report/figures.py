"""Figures of a sweep as image files.

Figures are made without pyplot, so that drawing one changes neither the backend nor the open figures of a notebook.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import count, value_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES = 10
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
