"""Figures of a sweep; the only module that draws."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mislabel.analysis.sweep import Sweep, Where
from mislabel.sweeps.errors import MislabelError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_MOST_LINES = 10
_STYLES = ("-", "--", ":", "-.")


def draw_curves(
    sweep: Sweep,
    path: str | Path,
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    where: Where | None = None,
    at: int | None = None,
) -> None:
    """Metrics over steps, one panel each: mean and 95 % interval over seeds.

    Of a metric that is an array, the panel is a histogram of its values in all runs, at the snapshot nearest to step
    `at`, by default the last one.

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
            if metric in sweep.metrics or metric not in sweep.array_metrics:
                _draw_lines(axis, sweep, metric, grouping, where)
            else:
                _draw_histogram(axis, sweep, metric, grouping, where, at)
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


@dataclass(frozen=True)
class _Line:
    """What is drawn as one line: the rows of one value of the parameters that lines differ by."""

    rows: "pd.DataFrame"
    label: str
    colour: tuple[float, float, float, float]
    style: str


def _lines(table: "pd.DataFrame", names: Sequence[str]) -> Iterator[_Line]:
    import matplotlib

    levels = [sorted(table[name].unique()) for name in names]
    colours = matplotlib.colormaps["viridis"]
    for value, rows in list(table.groupby(list(names), sort=True))[:_MOST_LINES]:
        places = [level.index(part) for level, part in zip(levels, value, strict=True)]
        colour = colours(0.9 * places[0] / max(1, len(levels[0]) - 1))
        style = _STYLES[places[1] % len(_STYLES)] if len(places) > 1 else "-"
        label = ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value)
        yield _Line(rows, label, colour, style)


def _draw_lines(axis: "Axes", sweep: Sweep, metric: str, by: Sequence[str], where: Where | None) -> None:
    names = list(by) or ["task"]
    table = sweep.curve(metric, by=names, where=where)
    for line in _lines(table, names):
        rows = line.rows
        axis.plot(rows["step"], rows["mean"], line.style, color=line.colour, label=line.label, linewidth=1.5)
        axis.fill_between(rows["step"], rows["low"], rows["high"], color=line.colour, alpha=0.15, linewidth=0)
    if _are_spread_by_factors(sorted(table["step"].unique())):
        axis.set_xscale("symlog", linthresh=1)
    _finish(axis, metric.replace("_", " "), "step")


def _are_spread_by_factors(steps: Sequence[int]) -> bool:
    """Whether steps lie closer to each other at the beginning than they would if they were spread evenly."""
    return len(steps) > 2 and steps[-1] > 100 and 2 * steps[1] * (len(steps) - 1) < steps[-1]


def _draw_histogram(
    axis: "Axes", sweep: Sweep, metric: str, by: Sequence[str], where: Where | None, at: int | None
) -> None:
    import numpy as np

    names = list(by) or ["task"]
    table = sweep.read("arrays", ["run_id", "step", "values"], {**(where or {}), "metric": metric})
    steps = table["step"].unique()
    step = max(steps) if at is None else min(steps, key=lambda known: abs(known - at))
    table = table[table["step"] == step].merge(sweep.read("runs", ["run_id", *names]), on="run_id")
    values = np.concatenate(table["values"].to_list())
    edges = np.histogram_bin_edges(values[np.isfinite(values)], bins="auto")
    for line in _lines(table, names):
        kept = np.concatenate(line.rows["values"].to_list())
        counts, _ = np.histogram(kept[np.isfinite(kept)], edges)
        shares = counts / max(1, counts.sum())
        axis.stairs(shares, edges, color=line.colour, linestyle=line.style, label=line.label, linewidth=1.5)
    _finish(axis, f"{metric.replace('_', ' ')} at step {step:,}", "value")
    axis.set_ylabel("share", fontsize=9)


def _finish(axis: "Axes", title: str, along: str) -> None:
    axis.set_title(title, fontsize=9)
    axis.set_xlabel(along, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
