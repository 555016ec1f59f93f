"""Curves of a sweep as image files.

Figures are made without pyplot, so that drawing one changes neither the backend nor the open figures of a notebook.
Every figure has a caption that says what its lines average, and what is not drawn.
"""

import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mislabel.analysis.report.levels import levels_of
from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import count
from mislabel.sweeps.statistics import Frames, curve_table
from mislabel.sweeps.store.running import RUNNING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES = 24
_FEW_LINES = 12
_MARKERS = "os^DvPX*<>hp"
_LETTERS_PER_INCH = 13
# Values this many times larger than those of most lines, or than most of a line, don't set the limits of an axis.
_OUTLYING_LINE = 1e3
_OUTLYING_STEP = 1e6
_SHARES = ("accuracy", "error", "share", "fraction", "rate", "probability")


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

    Lines differ in colour by the first parameter of `by` and in markers by the second. The default is the two most
    important parameters, or the first two of the spec if importances can't be estimated. Metrics default to the
    objectives. A line is dashed where runs were stopped, diverged or are still training: its mean is then over
    the remaining runs.
    """
    from matplotlib.figure import Figure

    chosen = list(metrics) or [objective.name for objective in sweep.spec.metric] or sweep.metrics[:1]
    grouping = list(by) or default_grouping(sweep, chosen)
    if len(grouping) > 2:
        raise MislabelError(f"lines can differ by two parameters, not by {len(grouping)}: {', '.join(grouping)}")
    across = min(3, len(chosen))
    down = math.ceil(len(chosen) / across)
    figure = Figure(figsize=(2.2 + 3.6 * across, 1.1 + 2.9 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for axis in axes.flat[len(chosen) :]:
        axis.set_visible(False)
    runs = _levelled(sweep, grouping or ["task"])
    notes: dict[str, None] = {}
    for axis, metric in zip(axes.flat, chosen, strict=False):
        if metric in sweep.metrics or metric not in sweep.array_metrics:
            drawn = _draw_lines(axis, sweep, metric, runs, grouping or ["task"])
        else:
            drawn = _draw_histogram(axis, sweep, metric, runs, grouping or ["task"], at)
        notes |= dict.fromkeys(drawn)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    if len(labels) > 1:
        title = ",\n".join(name.replace("_", " ") for name in grouping)
        figure.legend(handles, labels, title=title, loc="outside right center", frameon=False, fontsize=8)
    finish(figure, f"{sweep.name}: {sweep.spec.task}", [_averages(runs, grouping or ["task"]), *notes])
    return figure


def finish(figure: "Figure", title: str, caption: Sequence[str]) -> None:
    """Add the title and the caption, broken into lines that fit."""
    letters = int(figure.get_figwidth() * _LETTERS_PER_INCH)
    figure.suptitle(textwrap.fill(title, letters), fontsize=10)
    figure.supxlabel(textwrap.fill(" ".join(caption), int(letters * 1.2)), fontsize=8, color="0.3")


def default_grouping(sweep: SweepTables, metrics: Sequence[str]) -> list[str]:
    """The two most important parameters for the first metric; else the first two of the spec."""
    from mislabel.analysis.studies.importance import importance_of  # loads Optuna

    try:
        table = importance_of(sweep, [metric for metric in metrics if metric in sweep.metrics][:1] or None)
    except MislabelError:
        return sweep.varying[:2]
    return [names.split(", ")[0] for names in table["parameter"]][:2]


def _levelled(sweep: SweepTables, by: Sequence[str]) -> pd.DataFrame:
    """The runs, with the values of `by` as levels."""
    for name in by:
        sweep.require_column("runs", name)
    runs = sweep.curve_runs(by)
    most = _MOST_LINES if len(by) == 1 else len(_MARKERS)
    return runs.assign(**{name: levels_of(runs[name], most) for name in by})


def _averages(runs: pd.DataFrame, by: Sequence[str]) -> str:
    """What a line averages, such as 'Mean and 95 % interval over 5 seeds. A line averages 30 cells.'"""
    groups = runs.groupby(list(by), observed=True)
    seeds, cells = (groups[column].nunique() for column in ("seed", "cell_id"))
    text = f"Mean and 95 % interval over {up_to(seeds, 'seed')}."
    return text if cells.max() == 1 else f"{text} A line averages {up_to(cells, 'cell')}."


def up_to(numbers: "pd.Series[int]", noun: str) -> str:
    """Such as '5 seeds' or '3 to 5 seeds'."""
    if numbers.empty:
        return count(0, noun)
    most = int(numbers.max())
    return count(most, noun) if numbers.min() == most else f"{numbers.min():,} to {count(most, noun)}"


def _lines(table: pd.DataFrame, names: Sequence[str]) -> Iterator[tuple[pd.DataFrame, dict[str, Any]]]:
    """The rows of each line, one per combination of levels, and the properties with which to draw it."""
    import matplotlib

    levels = [list(table[name].cat.categories) for name in names]
    colours = matplotlib.colormaps["viridis"]
    for value, rows in _drawn(table, names):
        ranks = [level.index(part) for level, part in zip(levels, value, strict=True)]
        look: dict[str, Any] = {"color": colours(0.9 * ranks[0] / max(1, len(levels[0]) - 1)), "linewidth": 1.5}
        if len(ranks) > 1:
            look |= {"marker": _MARKERS[ranks[1] % len(_MARKERS)], "markersize": 4, "markevery": max(1, len(rows) // 7)}
            if ranks[1] >= len(_MARKERS):
                look["markerfacecolor"] = "white"
        yield rows, {"label": ", ".join(map(str, value)), **look}


def _drawn(table: pd.DataFrame, names: Sequence[str]) -> list[tuple[tuple[Any, ...], pd.DataFrame]]:
    """The rows of the lines that are drawn; if there are too many, every second or third one."""
    groups = list(table.groupby(list(names), sort=True, observed=True))
    every = math.ceil(len(groups) / _MOST_LINES)
    return groups[::every]


def _left_out(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    lines, drawn = len(table[list(names)].drop_duplicates()), len(_drawn(table, names))
    return [f"{drawn} of {lines} lines are drawn."] if drawn < lines else []


def _draw_lines(axis: "Axes", sweep: SweepTables, metric: str, runs: pd.DataFrame, by: Sequence[str]) -> list[str]:
    """Draw the means of the lines with their intervals. Returns notes for the caption."""
    sweep.require_metric(metric)
    frames = sweep.frames(metric, runs)
    table = curve_table(runs, frames, by)
    table = with_clipped_band(table, metric, frames)
    remaining = (table["stopped"] > 0) | (table["diverged"] > 0) | (table["running"] > 0)
    alpha = 0.15 if len(_drawn(table, by)) <= _FEW_LINES else 0.05
    for rows, look in _lines(table, by):
        fewer = remaining[rows.index].to_numpy()
        whole = rows[~fewer]
        # The dashes begin where the line ends.
        rest = rows[fewer | (np.arange(len(rows)) == len(whole) - 1)] if fewer.any() else rows.head(0)
        axis.plot(whole["step"], whole["mean"], **look)
        axis.plot(rest["step"], rest["mean"], **{**look, "label": None, "linestyle": "--", "linewidth": 1.1})
        axis.fill_between(rows["step"], rows["low"], rows["high"], color=look["color"], alpha=alpha, linewidth=0)
    notes = _left_out(table, by)
    ended = [f"{count(n, 'run')} {how}" for how in ("stopped", "diverged") if (n := int((runs["status"] == how).sum()))]
    if training := int((runs["status"] == RUNNING).sum()):
        are = "run is" if training == 1 else "runs are"
        dashed = "; dashed: the mean is over those that reached the step" if table["running"].any() else ""
        notes.append(f"{training:,} {are} still training{dashed}.")
    if remaining.any() and ended:
        notes.append(f"Dashed: the mean is over the remaining runs, which are the better ones ({', '.join(ended)}).")
    elif ended:
        notes.append(f"Lines end where their runs ended early ({', '.join(ended)}).")
    steps = sorted(table["step"].unique())
    # The first steps are closer to each other than evenly spaced steps would be.
    if len(steps) > 2 and steps[-1] > 100 and 2 * steps[1] * (len(steps) - 1) < steps[-1]:
        axis.set_xscale("symlog", linthresh=1)
    if limit(axis, table, by):
        notes.append("Values far above all others are outside of the axis.")
    label(axis, metric.replace("_", " "), "step")
    return notes


def with_clipped_band(table: pd.DataFrame, metric: str, frames: Sequence[Frames]) -> pd.DataFrame:
    """The table with intervals inside [0, 1] if the metric is a share, such as an accuracy."""
    values = [some.value[np.isfinite(some.value)] for some in frames]
    if not metric.endswith(_SHARES) or any(own.min(initial=0) < 0 or own.max(initial=1) > 1 for own in values):
        return table
    return table.assign(low=table["low"].clip(lower=0), high=table["high"].clip(upper=1))


def limit(axis: "Axes", table: pd.DataFrame, by: Sequence[str]) -> bool:
    """Limit the axis if a line has outlying values, such as those of a run that is about to diverge.

    Set the scale of the steps before.
    """
    known = table[table["mean"].notna()]
    lines = known["mean"].abs().groupby([known[name] for name in by], observed=True)
    references = [
        _OUTLYING_LINE * float(lines.max().quantile(0.25)),
        _OUTLYING_STEP * max(float(known["mean"].abs().quantile(0.75)), float(lines.first().max())),
    ]
    largest = min((number for number in references if number > 0), default=np.inf)
    inside = known.loc[known["mean"].abs() <= largest]
    if inside.empty or max(known[name].abs().max() for name in ("mean", "low", "high")) <= largest:
        return False
    edges = pd.concat([inside[name] for name in ("mean", "low", "high")])
    edges = edges[edges.abs() <= largest]
    low, high = float(edges.min()), float(edges.max())
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axis.set_ylim(low - margin, high + margin)
    return True


def _draw_histogram(
    axis: "Axes", sweep: SweepTables, metric: str, runs: pd.DataFrame, by: Sequence[str], at: int | None
) -> list[str]:
    table = sweep.read("arrays", ["run_id", "step", "values"], {"metric": metric})
    steps = table["step"].unique()
    step = max(steps) if at is None else min(steps, key=lambda known: abs(known - at))
    table = table[table["step"] == step].merge(runs[["run_id", *by]], on="run_id")
    values = np.concatenate(table["values"].to_list())
    edges = np.histogram_bin_edges(values[np.isfinite(values)], bins="auto")
    for rows, look in _lines(table, by):
        kept = np.concatenate(rows["values"].to_list())
        counts, _ = np.histogram(kept[np.isfinite(kept)], edges)
        style = {name: look[name] for name in ("label", "color", "linewidth")}
        # Steps have no place for markers: the second parameter sets the dashes.
        rank = _MARKERS.index(look["marker"]) if "marker" in look else 0
        dashes = "-" if rank == 0 else (0, (1 + rank, 1 + rank % 3))
        axis.stairs(counts / max(1, counts.sum()), edges, linestyle=dashes, **style)
    label(axis, f"{metric.replace('_', ' ')} at step {step:,}", "value")
    axis.set_ylabel("share", fontsize=9)
    return _left_out(table, by)


def label(axis: "Axes", title: str, along: str) -> None:
    axis.set_title(textwrap.fill(title, 48), fontsize=9)
    axis.set_xlabel(along, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
