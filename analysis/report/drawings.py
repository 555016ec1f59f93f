"""Drawings for a report: functions from tables to SVG text.

Colours of text, lines and the two main series are variables of the page, so that drawings are readable on dark and
light pages. Text stays text. Nothing uses pyplot, whose state is global.
"""

import io
import itertools
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mislabel.analysis.report.figures import limit
from mislabel.sweeps.formatting import value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Placeholder colours that no drawing uses, and the page's variable that replaces each.
_NAMES = ("ink", "faint", "accent", "second", "card")
_VARIABLES = {f"#0a0a{i:02}": f"--{name}" for i, name in enumerate(_NAMES, 1)}
INK, FAINT, ACCENT, SECOND, CARD = _VARIABLES
_STYLE: Any = {
    "svg.fonttype": "none", "font.size": 9, "axes.titlesize": 9.5, "axes.labelsize": 9, "xtick.labelsize": 8,
    "ytick.labelsize": 8, "legend.fontsize": 8, "text.color": INK, "axes.labelcolor": INK, "axes.titlecolor": INK,
    "axes.edgecolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK,
    "ytick.labelcolor": INK, "axes.grid": True, "grid.color": FAINT, "grid.alpha": 0.25, "grid.linewidth": 0.5,
    "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "axes.formatter.limits": (-4, 5),
}  # fmt: skip
# More points than this are drawn as one bitmap.
_MANY_POINTS = 1500
_ACROSS = 4
_FEW_TICKS = 6


@dataclass(frozen=True)
class Dimension:
    """A parameter as an axis of a drawing."""

    name: str
    log: bool = False
    listed: bool = False
    """Whether it has a few values, each in many cells."""
    categorical: bool = False

    def set_scale(self, axis: "Axes", along: str = "x") -> None:
        if self.log:
            getattr(axis, f"set_{along}scale")("log")
        getattr(axis, f"set_{along}label")(self.name)


def history(cells: pd.DataFrame, metric: str, goal: str | None) -> str:
    """The metric of each cell in the order in which the cells started, the best so far, and its distribution."""

    def draw(axes: np.ndarray) -> None:
        left, right = axes.flat
        held = cells[cells["complete"]]
        left.scatter(held.index, held["mean"], s=14, color=ACCENT, alpha=0.55, linewidth=0, rasterized=_many(held))
        _draw_stopped(left, cells.index.to_series(), cells)
        if goal is not None:
            best = held["mean"].cummin() if goal == "minimize" else held["mean"].cummax()
            left.step(best.index, best, where="post", color=SECOND, linewidth=1.5, label="best so far")
            left.legend(loc="best")
        left.set(xlabel="cell, in order of start", ylabel=metric)
        ordered = np.sort(held["mean"].to_numpy())
        right.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", color=ACCENT, linewidth=1.5)
        right.set(xlabel=metric, ylabel="share of cells at or below", ylim=(0, 1.02))

    return _drawn(draw, 10, 2.9, 1, 2, widths=[1.6, 1])


def slices(cells: pd.DataFrame, metric: str, dimensions: Sequence[Dimension]) -> str:
    """The metric of each cell over each parameter. For listed values, a line connects the means at each value.

    If cells were stopped early, there is no line: the means would be those of the better cells.
    """
    down = -(-len(dimensions) // _ACROSS)
    across = max(2, -(-len(dimensions) // down))

    def draw(axes: np.ndarray) -> None:
        for axis in axes.flat[len(dimensions) :]:
            axis.set_visible(False)
        for axis, dimension in zip(axes.flat, dimensions, strict=False):
            known = cells[cells[dimension.name].notna()]
            every = _positions(known[dimension.name], dimension)
            own, positions = known[known["complete"]], every[known["complete"]]
            if dimension.categorical:
                levels = sorted(known[dimension.name].unique(), key=str)
                axis.set_xticks(range(len(levels)), map(str, levels))
                axis.set_xlim(-0.6, len(levels) - 0.4)
            axis.scatter(positions, own["mean"], s=12, color=ACCENT, alpha=0.45, linewidth=0, rasterized=_many(own))
            _draw_stopped(axis, every, known)
            if dimension.listed and not (cells["stopped"] > 0).any():
                means = own["mean"].groupby(positions).mean()
                axis.plot(means.index, means, "o-", color=SECOND, linewidth=1.3, markersize=3.5)
            dimension.set_scale(axis)
            if dimension.listed and not dimension.categorical and positions.nunique() <= _FEW_TICKS:
                levels = sorted(positions.unique())
                axis.set_xticks(levels, [value_text(level, digits=3) for level in levels])
                axis.set_xticks([], minor=True)
        for row in axes:
            row[0].set_ylabel(metric)

    return _drawn(draw, 10, 0.3 + 2.3 * down, down, across, sharey=True)


def contour(cells: pd.DataFrame, metric: str, x: Dimension, y: Dimension) -> str:
    """The metric over two parameters: a heat map if both are listed, else contours between the cells."""
    from matplotlib.patches import Rectangle
    from matplotlib.tri import Triangulation

    held = cells[cells["complete"] & cells[x.name].notna() & cells[y.name].notna()]

    def draw(axes: np.ndarray) -> None:
        (axis,) = axes.flat
        if x.listed and y.listed:
            every = cells[cells[x.name].notna() & cells[y.name].notna()]
            rows, columns = sorted(every[y.name].unique()), sorted(every[x.name].unique())
            means = held.pivot_table(index=y.name, columns=x.name, values="mean", aggfunc="mean")
            table = means.reindex(index=rows, columns=columns)
            shown = axis.pcolormesh(np.ma.masked_invalid(table.to_numpy()), cmap="viridis", rasterized=True)
            diverged = every[every["diverged"] > 0]
            squares = zip(diverged[x.name].map(columns.index), diverged[y.name].map(rows.index), strict=True)
            for square in set(squares):
                axis.add_patch(Rectangle(square, 1, 1, fill=False, hatch="///", edgecolor=FAINT, linewidth=0))
            for along, dimension, levels in (("x", x, table.columns), ("y", y, table.index)):
                at = range(0, len(levels), max(1, len(levels) // 8))
                getattr(axis, f"set_{along}ticks")([i + 0.5 for i in at], [value_text(levels[i], digits=3) for i in at])
                getattr(axis, f"set_{along}label")(dimension.name)
            axis.grid(False)
        else:
            at_x, at_y = (_positions(held[d.name], d) for d in (x, y))
            try:
                # The triangles connect cells that are near on the axes' own scales.
                found = Triangulation(_scaled(at_x, x.log), _scaled(at_y, y.log)).triangles
                low, high = held["mean"].min(), held["mean"].max()
                margin = (high - low or 1.0) * 1e-6  # values at the outermost levels are not drawn
                edges = np.linspace(low - margin, high + margin, 15)
                shown = axis.tricontourf(at_x, at_y, found, held["mean"], levels=edges, cmap="viridis")
                axis.scatter(at_x, at_y, s=7, color=CARD, edgecolor=INK, linewidth=0.4, rasterized=_many(held))
            except (RuntimeError, ValueError):  # all cells lie on a line
                shown = axis.scatter(at_x, at_y, s=20, c=held["mean"], cmap="viridis")
            x.set_scale(axis)
            y.set_scale(axis, "y")
        axis.figure.colorbar(shown, ax=axis, label=metric, format="%.3g")

    return _drawn(draw, 4.9, 3.4)


def importances(table: pd.DataFrame) -> str:
    """A bar with its interval for each parameter and metric."""
    metrics, lows, highs = (table.columns[i::3] for i in (1, 2, 3))

    def draw(axes: np.ndarray) -> None:
        (axis,) = axes.flat
        height = 0.7 / len(metrics)
        colours = itertools.cycle((ACCENT, SECOND, FAINT))
        for i, (metric, low, high, colour) in enumerate(zip(metrics, lows, highs, colours, strict=False)):
            at = np.arange(len(table)) + i * height
            value = table[metric].to_numpy()
            reach = np.clip([value - table[low], table[high] - value], 0, None)
            axis.barh(at, value, height * 0.9, color=colour, label=metric)
            axis.errorbar(value, at, xerr=reach, fmt="none", ecolor=INK, elinewidth=0.9, capsize=2)
        axis.set_yticks(np.arange(len(table)) + 0.35 - height / 2, table["parameter"])
        axis.invert_yaxis()
        axis.grid(False, axis="y")
        axis.set(xlim=(0, 1.02), xlabel="importance")
        if len(metrics) > 1:
            axis.legend(loc="lower right")

    left = 0.3 + 0.075 * max(len(str(name)) for name in table["parameter"])
    return _drawn(draw, 4.9, max(1.6, 0.9 + 0.36 * len(table)), left=left)


def front(cells: pd.DataFrame, objectives: Sequence[str]) -> str:
    """A panel for each pair of objectives: all cells, and the cells on the front with their intervals."""
    pairs = list(itertools.combinations(objectives, 2))

    def draw(axes: np.ndarray) -> None:
        for axis, (a, b) in zip(axes.flat, pairs, strict=True):
            others, best = cells[~cells["front"] & (cells["stopped"] == 0)], cells[cells["front"]].sort_values(a)
            axis.scatter(others[a], others[b], s=12, color=FAINT, alpha=0.5, linewidth=0, rasterized=_many(others))
            if len(objectives) == 2:
                axis.plot(best[a], best[b], color=SECOND, linewidth=1, alpha=0.6)
            reach = [np.nan_to_num((best[f"{m}_high"] - best[m]).to_numpy()) for m in (a, b)]
            axis.errorbar(best[a], best[b], reach[1], reach[0], fmt="none", ecolor=SECOND, elinewidth=0.8, alpha=0.6)
            axis.scatter(best[a], best[b], s=26, color=SECOND, zorder=3, label="on the front")
            axis.set(xlabel=a, ylabel=b)
        axes.flat[0].legend(loc="best")

    return _drawn(draw, 4.9 if len(pairs) == 1 else 10, 3.4 if len(pairs) == 1 else 3.0, 1, len(pairs))


def curves(tables: Mapping[str, pd.DataFrame], metric: str) -> str:
    """Mean and interval over steps, a panel per title. The line is dashed where some runs have ended early."""
    import matplotlib

    def draw(axes: np.ndarray) -> None:
        for axis, (title, table) in zip(axes.flat, tables.items(), strict=True):
            groups = list(table.groupby("group", sort=False, observed=True))
            for i, (label, rows) in enumerate(groups):
                colour: Any = matplotlib.colormaps["viridis"](0.35 + 0.45 * i / max(1, len(groups) - 1))
                whole = rows[rows["stopped"] + rows["diverged"] == 0]
                fewer = rows[rows["step"] >= whole["step"].max()] if len(whole) < len(rows) else rows.head(0)
                axis.plot(whole["step"], whole["mean"], color=colour, linewidth=1.6, label=str(label))
                axis.plot(fewer["step"], fewer["mean"], "--", color=colour, linewidth=1.2)
                axis.fill_between(rows["step"], rows["low"], rows["high"], color=colour, alpha=0.18, linewidth=0)
            if table["step"].max() > 100:
                axis.set_xscale("symlog", linthresh=1)
            limit(axis, table, ["group"])
            axis.set_title(title, loc="left")
            axis.set_xlabel("step")
            if len(groups) > 1:
                axis.legend(loc="best")
        axes.flat[0].set_ylabel(metric)

    return _drawn(draw, 10 if len(tables) > 1 else 6, 3.0, 1, len(tables), sharey=True)


def parallel(cells: pd.DataFrame, metric: str, goal: str | None, dimensions: Sequence[Dimension]) -> str:
    """A line per cell through its parameters, with the best tenth highlighted."""
    from matplotlib.collections import LineCollection

    names = [*(dimension.name for dimension in dimensions), metric]
    held = cells[cells["complete"]].dropna(subset=names[:-1])
    value = _scaled(held["mean"].astype(float), False)
    lines = np.column_stack([*(_scaled(_positions(held[d.name], d), d.log) for d in dimensions), value])
    cost = value if goal == "minimize" else -value
    best = cost <= np.quantile(cost, 0.1) if goal else np.zeros(len(cost), bool)

    def draw(axes: np.ndarray) -> None:
        (axis,) = axes.flat
        at = np.arange(len(dimensions) + 1)
        for chosen, colour, alpha in ((~best, FAINT, 0.25), (best, SECOND, 0.8)):
            segments = [np.column_stack([at, line]) for line in lines[chosen]]
            drawn = LineCollection(segments, colors=colour, alpha=alpha, linewidths=0.8, rasterized=_many(held))
            axis.add_collection(drawn)
        for i, name in enumerate(names):
            axis.axvline(i, color=FAINT, linewidth=0.8)
            values = held[name if i < len(dimensions) else "mean"].unique()
            ordered = sorted(values, key=lambda value: (value if isinstance(value, str) else "", value))
            low, high = (value_text(ordered[end], digits=3) for end in (0, -1))
            axis.text(i, -0.04, low, ha="center", va="top", fontsize=7.5)
            axis.text(i, 1.04, high, ha="center", va="bottom", fontsize=7.5)
        axis.set_xticks(at, names)
        axis.tick_params(length=0, pad=14)
        axis.set(yticks=[], ylim=(-0.02, 1.02), xlim=(-0.15, len(names) - 0.85))
        axis.spines[:].set_visible(False)
        axis.grid(False)

    return _drawn(draw, 10, 3.1)


def _drawn(
    draw: Callable[[np.ndarray], None], width: float, height: float, down: int = 1, across: int = 1,
    sharey: bool = False, widths: Sequence[float] | None = None, left: float = 0.75,
) -> str:  # fmt: skip
    """SVG text with the page's colours and with ids that are unique in the page. `left` is a margin in inches.

    Margins are fixed: matplotlib's layout engines draw everything twice to find them.
    """
    import matplotlib
    from matplotlib.figure import Figure

    from mislabel.analysis.report.ticks import draw_ticks

    margins = {
        "left": left / width, "right": 1 - 0.2 / width, "bottom": 0.5 / height, "top": 1 - 0.32 / height,
        "wspace": (0.25 if sharey else 0.75) * across / (width - left), "hspace": 0.6 * down / height,
    }  # fmt: skip
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        axes = figure.subplots(down, across, squeeze=False, sharey=sharey, width_ratios=widths, gridspec_kw=margins)
        draw(axes)
        draw_ticks(axes.flat)
        file = io.StringIO()
        figure.savefig(file, format="svg", dpi=150, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    prefix = f"f{zlib.crc32(text.encode()):08x}-"
    text = re.sub(r'(\bid="|url\(#|href="#)', lambda match: match[1] + prefix, text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    head, rest = text.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    return f'{head} role="img" style="max-width: {width * 96:.0f}px">{rest}'


def _draw_stopped(axis: "Axes", positions: "pd.Series[Any]", cells: pd.DataFrame) -> None:
    """Draw the cells that were stopped early as hollow dots."""
    stopped = cells["stopped"] > 0
    if not stopped.any():
        return
    held = cells[stopped]
    axis.scatter(positions[stopped], held["mean"], s=12, facecolor="none", edgecolor=FAINT, linewidth=0.7,
                 rasterized=_many(held))  # fmt: skip


def _many(cells: pd.DataFrame) -> bool:
    return len(cells) > _MANY_POINTS


def _positions(values: "pd.Series[Any]", dimension: Dimension) -> "pd.Series[Any]":
    """The values as numbers: a word's number is its index in alphabetical order."""
    if not dimension.categorical:
        return values.astype(float)
    levels = {level: i for i, level in enumerate(sorted(values.unique(), key=str))}
    return values.map(levels).astype(float)


def _scaled(values: "pd.Series[Any]", log: bool) -> np.ndarray:
    numbers = np.log(values.to_numpy()) if log else values.to_numpy()
    reach = np.ptp(numbers) if len(numbers) else 0
    return np.asarray((numbers - numbers.min()) / reach if reach else np.full(len(numbers), 0.5))
