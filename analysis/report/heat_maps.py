"""Heat maps of a sweep over two parameters: means, differences, and the best cells of a search's branches.

Where runs diverged, a square is hatched: that boundary is often the result. A difference that is not significant has no
colour.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mislabel.analysis.report.figures import finish, label, up_to
from mislabel.analysis.statistics.comparison import SIGNIFICANT, compare
from mislabel.analysis.statistics.ranking import best_cells, best_of_branches, ranked
from mislabel.analysis.statistics.tables import At, SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import count, value_text, with_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_BRANCH_AXES = 3
# The colours of a heat map are logarithmic if the largest value is more than this many times the smallest.
_WIDE = 3
# Text is dark on colours above this part of the scale.
_LIGHT = 0.6
_MOST_TEXTS = 120
_HATCHED = "Hatched: runs diverged (close lines: all of them)."


def heat_map(
    sweep: SweepTables, metric: str | None = None, x: str | None = None, y: str | None = None, at: At = "end"
) -> "Figure":
    """The metric over two parameters, by default the first objective over the first two parameters that vary.

    A square is the mean over the cells with these values. If both parameters have `grid: true`, it is the best cell.
    """
    shown = _metric(sweep, metric)
    across, down = _axes(sweep, x, y)
    is_best = bool(sweep.spec.metric) and {across, down} <= set(sweep.spec.branch_axes())
    if is_best:
        table = best_cells(sweep, [down, across], [shown], at)
    else:
        table = ranked(sweep, [shown], [down, across], at)
    runs = sweep.ended_runs([down, across])
    figure = _drawn({"": table}, shown, across, down, _diverged(runs, down, across), lambda row: [])
    others = [name for name in sweep.varying if name not in (across, down)]
    notes = [f"Mean and 95 % interval over {_seeds(runs)}."]
    if is_best and others:
        notes.append("Each square is the best cell.")
    elif others:
        notes.append(f"Each square averages the cells that differ in {', '.join(others)}.")
    if "stopped_cells" in table and (left_out := int(table["stopped_cells"].sum())):
        notes.append(f"Left out: {count(left_out, 'cell')} stopped early.")
    notes += [_HATCHED] if (runs["status"] == "diverged").any() else []
    finish(figure, f"{sweep.name}: {shown.replace('_', ' ')}{_when(at)}", notes)
    return figure


def difference_map(
    sweep: SweepTables, a: Mapping[str, Any], b: Mapping[str, Any], metric: str | None = None,
    x: str | None = None, y: str | None = None, at: At = "end",
) -> "Figure":  # fmt: skip
    """The difference b - a of the metric over two parameters. Differences that are not significant have no colour."""
    from matplotlib.colors import Normalize

    shown = _metric(sweep, metric)
    table = compare((sweep, sweep), (a, b), shown, at)
    free = [name for name in sweep.varying if name not in {*a, *b}]
    across, down = _axes(sweep, x, y, free)
    if table.duplicated([down, across]).any():
        rest = [name for name in free if name not in (across, down)]
        raise MislabelError(f"several cells differ in {', '.join(rest)}; name a value of each in both sides")
    largest = float(table["difference"].abs().max())
    table = table.assign(**{shown: table["difference"].where(table["p_holm"] < SIGNIFICANT)})
    runs = pd.concat([sweep.ended_runs([down, across], own) for own in (a, b)])
    texts = {"text": [f"{value_text(row['difference'], digits=2)}" for _, row in table.iterrows()]}
    norm = Normalize(-largest, largest)
    marks = _diverged(runs, down, across)
    figure = _drawn({"": table.assign(**texts)}, shown, across, down, marks, lambda row: [], norm, "RdBu_r")
    names = [", ".join(f"{name} {value_text(value)}" for name, value in own.items()) for own in (b, a)]
    notes = ["Grey: not significant (paired by seed, 5 %, Holm's correction)."]
    notes += [_HATCHED] if (runs["status"] == "diverged").any() else []
    finish(figure, f"{sweep.name}: {shown.replace('_', ' ')} at {names[0]} minus {names[1]}{_when(at)}", notes)
    return figure


def branch_figure(sweep: SweepTables, metric: str | None = None) -> "Figure":
    """The best cell of each branch of a search: a heat map of the metric, by default the first objective.

    Each square shows mean and 95 % interval, and below it the values that the search found. The last two parameters
    with `grid: true` are the axes. The one before them, if there is one, makes the panels.
    """
    table = best_of_branches(sweep, [metric] if metric else [])
    axes = sweep.spec.branch_axes()
    if len(axes) > _MOST_BRANCH_AXES:
        raise MislabelError(f"{sweep.name} has {len(axes)} parameters with `grid: true`; at most three can be drawn")
    panel, down, across = ["", "", *axes][-3:]
    shown = metric or sweep.spec.metric[0].name
    searched = [name for name in sweep.varying if name not in axes]
    best = sweep.ended_runs(axes, {"cell_id": table["cell_id"].tolist()}).assign(**{"": ""})
    table = table.assign(**{"": ""})  # the value of a parameter that is not there

    def found(row: "pd.Series[Any]") -> list[str]:
        return [f"{name.replace('_', ' ')} {value_text(row[name], digits=2)}" for name in searched]

    panels = {f"{panel} {value_text(value)}".strip(): own for value, own in table.groupby(panel)}
    figure = _drawn(panels, shown, across, down, _diverged(best, panel, down, across), found, panel=panel)
    notes = [f"Mean and 95 % interval over {_seeds(best)}."]
    if (table["stopped"] > 0).any():
        notes.append("Branches without a finished cell show the cell that was stopped last.")
    notes += [_HATCHED] if (best["status"] == "diverged").any() else []
    finish(figure, f"{sweep.name}: the best cell of each branch", notes)
    return figure


def _drawn(
    panels: Mapping[str, pd.DataFrame], shown: str, across: str, down: str, diverged: Mapping[Any, float],
    more: "Callable[[pd.Series[Any]], Sequence[str]]", norm: Any = None, colours: str = "viridis", panel: str = "",
) -> "Figure":  # fmt: skip
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.figure import Figure

    tables = pd.concat(panels.values())
    lines = 1 + max(len(more(row)) for _, row in tables.iterrows())
    columns, rows = _levels(tables[across]), _levels(tables[down])
    width, height = len(columns) * len(panels), len(rows)
    size = (max(5.5, 2.2 + min(1.2, 24 / width) * width), 1.7 + min(0.3 + 0.2 * lines, 12 / height) * height)
    figure = Figure(figsize=size, layout="constrained")
    low, high = tables[shown].min(), tables[shown].max()
    if norm is None:
        norm = LogNorm(low, high) if low > 0 and high > _WIDE * low else Normalize(low, high)
    for axis, (title, cells) in zip(figure.subplots(1, len(panels), squeeze=False).flat, panels.items(), strict=True):
        grid = np.full((len(rows), len(columns)), np.nan)
        for _, cell in cells.iterrows():
            at = _place(columns, cell[across]), _place(rows, cell[down])
            grid[at[1], at[0]] = cell[shown]
            key = tuple(_key(cell[name]) for name in ([panel] if panel else []) + [down, across])
            _hatch(axis, at, diverged.get(key if panel else key[-2:], 0.0))
            if width * height <= _MOST_TEXTS:
                text = "\n".join([_text(cell, shown), *more(cell)])
                colour = "black" if np.isnan(cell[shown]) or _is_light(norm, cell[shown], colours) else "white"
                axis.text(*at, text, ha="center", va="center", fontsize=6.5, color=colour)
        axis.set_facecolor("0.88")
        image = axis.imshow(np.ma.masked_invalid(grid), cmap=colours, aspect="auto", origin="lower", norm=norm)
        axis.set_xticks(range(len(columns)), [value_text(value) for value in columns])
        axis.set_yticks(range(len(rows)), [value_text(value) for value in rows])
        if len(columns) > 8:
            axis.tick_params(axis="x", rotation=90)
        label(axis, title, across)
        axis.set_ylabel(down, fontsize=9)
    bar = figure.colorbar(image, ax=figure.axes, format="%.3g")
    bar.set_label(shown.replace("_", " "), fontsize=9)
    bar.ax.tick_params(labelsize=8)
    if np.isfinite(low) and low < high:
        bar.set_ticks([float(norm.inverse(part)) for part in (0, 0.25, 0.5, 0.75, 1)])
        bar.minorticks_off()
    return figure


def _hatch(axis: "Axes", at: tuple[int, int], share: float) -> None:
    """Hatch a square: close lines if all its runs diverged, wide ones if some did."""
    from matplotlib.patches import Rectangle

    if share:
        hatch = "////" if share == 1 else "//"
        square = Rectangle((at[0] - 0.5, at[1] - 0.5), 1, 1, fill=False, hatch=hatch, edgecolor="0.35", linewidth=0)
        axis.add_patch(square)


def _diverged(runs: pd.DataFrame, *names: str) -> dict[Any, float]:
    """By the values of these parameters: the share of the runs that diverged."""
    shares = (runs["status"] == "diverged").groupby([runs[name] for name in names], dropna=False, observed=True).mean()
    keys: list[Any] = shares.index.tolist()
    return {tuple(map(_key, key)): float(share) for key, share in zip(keys, shares, strict=True)}


def _key(value: Any) -> Any:
    return None if value is None or pd.isna(value) else value


def _levels(values: "pd.Series[Any]") -> list[Any]:
    """The distinct values in order; the mark of an inactive parameter is last."""
    known = sorted({_key(value) for value in values} - {None})
    return [*known, *([None] if values.isna().any() else [])]


def _place(levels: Sequence[Any], value: Any) -> int:
    return list(levels).index(_key(value))


def _text(cell: "pd.Series[Any]", shown: str) -> str:
    return str(cell["text"]) if "text" in cell else with_interval(cell[shown], cell[f"{shown}_high"])


def _is_light(norm: Any, value: float, colours: str) -> bool:
    part = float(norm(value))
    return 0.2 < part < 0.8 if colours == "RdBu_r" else part >= _LIGHT


def _metric(sweep: SweepTables, metric: str | None) -> str:
    chosen = metric or next((objective.name for objective in sweep.spec.metric), *sweep.metrics[:1])
    sweep.require_metric(chosen)
    return chosen


def _axes(sweep: SweepTables, x: str | None, y: str | None, free: Sequence[str] | None = None) -> tuple[str, str]:
    names = list(sweep.varying if free is None else free)
    for name in (x, y):
        if name is not None:
            sweep.require_column("runs", name)
    chosen = [name for name in (x, y) if name is not None]
    rest = [name for name in names if name not in chosen]
    if len(chosen) + len(rest) < 2:
        raise MislabelError(f"a heat map of {sweep.name} needs two parameters that vary; it has {', '.join(names)}")
    across = x if x is not None else rest.pop(0)
    down = y if y is not None else rest.pop(0)
    if across == down:
        raise MislabelError(f"--x and --y are both {across}; choose two parameters")
    return across, down


def _seeds(runs: pd.DataFrame) -> str:
    return up_to(runs.groupby("cell_id")["seed"].nunique(), "seed")


def _when(at: At) -> str:
    return "" if at == "end" else ", each cell at its best step" if at == "best" else f" at step {at:,}"
