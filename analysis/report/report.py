"""A sweep's report: one HTML file that says what was run, what came out, and what it depends on.

It is made from the store alone, at any time: of a sweep that runs, of one without an objective, of one that failed.
"""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.report import drawings, html, sections
from mislabel.analysis.report.drawings import Dimension
from mislabel.analysis.report.html import value_text, with_interval
from mislabel.analysis.statistics.comparison import common_step, values_of
from mislabel.analysis.statistics.intervals import summarized
from mislabel.analysis.statistics.ranking import ranked
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError

_BEST = 10
_MOST_SLICES = 8
_MOST_LINES = 8
_FEWEST = 3
_LISTED = 12


def report_of(sweep: Sweep, metrics: Sequence[str] = ()) -> str:
    """The report as HTML; on other metrics than the objectives where some are named."""
    return _Report(sweep, metrics).html()


class _Report:
    def __init__(self, sweep: Sweep, metrics: Sequence[str]) -> None:
        self.sweep = sweep
        self.spec = sweep.spec
        for metric in metrics:
            sweep.require_metric(metric)
        objectives = [objective.name for objective in self.spec.metric]
        self.metrics = [m for m in (list(metrics) or objectives or sweep.metrics[:1]) if m in sweep.metrics]
        self.goals = {objective.name: objective.goal for objective in self.spec.metric}
        self.runs = sweep.runs

    def html(self) -> str:
        spec = self.spec
        kind = {"grid": "a grid", "random": "random draws", "qmc": "evenly spread draws"}.get(spec.method.name)
        lead = f"{spec.task} · {kind or f'a search by {spec.method.name}'} · {_objectives(self.goals)}"
        parts = [self.tiles(), self.best(), self.front(), self.curves(), self.dependence(), self.search()]
        parts += [sections.stopping(self.sweep), sections.failures(self.sweep), sections.swept(self.sweep)]
        parts += [sections.provenance(self.sweep), html.footer(self._closing())]
        return html.page(spec.name, lead, parts)

    # What came out

    def tiles(self) -> str:
        counts = self.runs["status"].value_counts().to_dict() if len(self.runs) else {}
        cells = self.runs["cell_id"].nunique() if len(self.runs) else 0
        facts = [(f"{cells:,}", "cells", False), (f"{len(self.runs):,}", "runs ended", False)]
        planned = (self.sweep.files.read_json("progress.json") or {}).get("runs") or 0
        if planned > len(self.runs):
            facts.append((f"{planned:,}", "runs planned", False))
        facts += [
            (f"{counts[status]:,}", label, status not in ("done", "stopped"))
            for status, label in _STATUSES.items()
            if status in counts
        ]
        if len(self.runs):
            facts.append((_duration(float(self.runs["train_seconds"].sum())), "training, all runs added", False))
        return html.tiles(facts)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        return ranked(self.sweep, self.metrics) if self.metrics else pd.DataFrame()

    @property
    def metric(self) -> str:
        return self.metrics[0]

    @property
    def goal(self) -> str | None:
        return self.goals.get(self.metric) if self.metrics else None

    def best(self) -> str:
        if not len(self.runs):
            return html.section("Results", html.words("No run has ended yet."))
        if not self.metrics:
            return html.section("Results", html.words("No run has a result: see what failed below."))
        table = self.ranking
        rows, marked = [], []
        hidden = {name for name in ("diverged", "stopped") if not table[name].any()}
        counts = [name for name in ("runs", "diverged", "stopped", "step") if name not in hidden]
        if "stopped" in hidden:
            counts.remove("step")
        varying = [name for name in self.sweep.varying if name in table]
        for _, row in table.head(_BEST).iterrows():
            values = [value_text(row[name]) for name in (*varying, *counts)]
            rows.append([*values, *(_interval(row, metric) for metric in self.metrics)])
            marked.append(bool(row.get("front", False)))
        header = [*varying, *({"runs": "seeds", "step": "at step"}.get(name, name) for name in counts), *self.metrics]
        more = f"The first {_BEST} of {len(table):,} cells. " if len(table) > _BEST else ""
        title = "Best cells" if self.goal else "Cells"
        note = more + ("Marked cells are on the Pareto front. " if any(marked) else "")
        return html.section(title, html.words(self._verdict()), html.table(header, rows, marked), html.words(note))

    def _verdict(self) -> str:
        """The best cell in a sentence, and how many others can't be told from it."""
        table = self.ranking
        complete = table[(table["stopped"] == 0) & table[self.metric].notna()]
        if self.goal is None or complete.empty or "front" in table:
            return ""
        best = complete.iloc[0]
        at = ", ".join(f"{name} = {value_text(best[name])}" for name in self.sweep.varying)
        text = f"Best {self.metric}: {_interval(best, self.metric)} over {best['runs']} seeds" + (
            f", at {at}." if at else "."
        )
        low, high = complete[f"{self.metric}_low"], complete[f"{self.metric}_high"]
        overlap = (low <= best[f"{self.metric}_high"]) & (high >= best[f"{self.metric}_low"])
        others = int(overlap.iloc[1:].sum())
        if others:
            text += f" The 95 % intervals of {others:,} other cell{'s' * (others != 1)} overlap with its own."
        return text

    def front(self) -> str:
        if "front" not in self.ranking or len(self.metrics) < 2 or not self.ranking["front"].any():
            return ""
        count = int(self.ranking["front"].sum())
        text = f"{count:,} of {len(self.ranking):,} cells: none other is better in one objective and as good in all."
        caption = "Means over seeds, with 95 % intervals on the front."
        drawn = drawings.front(self.ranking, [m for m in self.metrics if m in self.goals])
        return html.section("Pareto front", html.words(text), html.figure(drawn, caption))

    # Over steps

    def curves(self) -> str:
        if not self.metrics or self.ranking.empty:
            return ""
        table = self.sweep.read("curves", ["run_id", "cell_id", "step", self.metric])
        if table["step"].nunique() < 2:
            return ""
        groupings = {}
        if (first := self._most_important()) is not None:
            labels = self._labels(first)
            groupings[f"by {first.name}, mean over all else"] = table["cell_id"].map(labels)
        if self.goal and len(self.ranking) > 1:
            best = self.ranking["cell_id"].iloc[0]
            names = ["all other cells", "the best cell" if len(self.metrics) == 1 else "the first cell of the front"]
            rest = pd.Categorical(np.where(table["cell_id"] == best, names[1], names[0]), names)
            groupings[f"{names[1]} and the others"] = pd.Series(rest, table.index)
        if not groupings:
            groupings["mean over all cells"] = pd.Series("all cells", table.index)
        shown = {}
        for title, groups in groupings.items():
            told = summarized(table.assign(group=groups).dropna(subset=["group"]), self.metric, ["group", "step"])
            shown[title] = told[told["mean"].notna()]
        shown = {title: told for title, told in shown.items() if len(told)}
        if not shown:
            return ""
        ended = self.runs["status"].isin(["stopped", "diverged"]).any()
        note = "Dashed: some runs were stopped or diverged, and the mean is over those that remain." if ended else ""
        caption = f"Mean and 95 % interval over runs. {note}"
        return html.section(f"{self.metric} over training", html.figure(drawings.curves(shown, self.metric), caption))

    def _most_important(self) -> Dimension | None:
        dimensions = self._by_importance
        return dimensions[0] if dimensions else None

    def _labels(self, dimension: Dimension) -> "pd.Series[Any]":
        """By cell: the parameter's value, or the quarter of its range, in order."""
        cells = self.cells.dropna(subset=[dimension.name]).set_index("cell_id")[dimension.name]
        if cells.nunique() <= _MOST_LINES:
            levels = sorted(cells.unique(), key=lambda value: (isinstance(value, str), value))
            order = [value_text(level) for level in levels]
            labels = cells.map(dict(zip(levels, order, strict=True)))
            return labels.astype(pd.CategoricalDtype(order, ordered=True))
        if dimension.words:
            return cells.where(cells.isin(cells.value_counts().index[:_MOST_LINES])).dropna().astype("category")
        edges = np.unique(np.quantile(cells.astype(float), [0, 0.25, 0.5, 0.75, 1]))
        names = [f"{value_text(float(a))} … {value_text(float(b))}" for a, b in itertools.pairwise(edges)]
        parts = np.clip(np.searchsorted(edges, cells.astype(float), side="right") - 1, 0, len(names) - 1)
        return pd.Series(pd.Categorical([names[part] for part in parts], names), cells.index)

    # What it depends on

    @cached_property
    def cells(self) -> pd.DataFrame:
        """In the order begun: what varies, where it does; mean of the metric; whether it is one to compare."""
        from mislabel.analysis.studies.study import Cells

        found = Cells(self.sweep)
        table = pd.DataFrame({"cell_id": found.ids})
        for name in found.names:
            table[name] = pd.Series(found.values[name]).where(pd.Series(found.active[name], dtype=bool))
        values = values_of(self.sweep, self.metric, self.step)
        means = values.groupby("cell_id")["value"].agg(lambda own: own.mean(skipna=False))
        mean = table["cell_id"].map(means)
        return table.assign(mean=mean, complete=np.isfinite(mean))

    @cached_property
    def step(self) -> int | None:
        return common_step(self.sweep)

    @property
    def _where(self) -> str:
        """At which step cells are compared, for captions."""
        return "" if self.step is None else f" at step {self.step:,}, where the first run was stopped"

    @cached_property
    def dimensions(self) -> list[Dimension]:
        """Parameters that took several values in cells that can be compared."""
        from mislabel.analysis.studies.study import Cells

        found = Cells(self.sweep)
        held = self.cells[self.cells["complete"]]
        dimensions = []
        for name in found.names:
            spread = found.distributions[name]
            count = held[name].nunique()
            if count > 1:
                listed = count <= _LISTED and count < len(held[name].dropna())
                log = bool(getattr(spread, "log", False))
                dimensions.append(Dimension(name, log, listed, words=not hasattr(spread, "log")))
        return dimensions

    @cached_property
    def importance(self) -> tuple[pd.DataFrame | None, str]:
        """The table, or why there is none."""
        try:
            return self.sweep.importance(self.metrics), ""
        except MislabelError as error:
            return None, f"{str(error)[:1].upper()}{str(error)[1:]}."

    @cached_property
    def _by_importance(self) -> list[Dimension]:
        table, _ = self.importance
        if table is None:
            return self.dimensions
        names = [name for names in table["parameter"] for name in names.split(", ")]
        return sorted(self.dimensions, key=lambda dimension: names.index(dimension.name))

    def dependence(self) -> str:
        if not self.metrics or not self.sweep.varying or self.ranking.empty:
            return ""
        table, why_not = self.importance
        shown = html.figure(drawings.importances(table), _how(table)) if table is not None else ""
        dimensions = self._by_importance if self.cells["complete"].sum() >= _FEWEST else []
        if len(dimensions) > 1:
            caption = f"Mean {self.metric} over the two parameters that matter most{self._where}."
            if not (dimensions[0].listed and dimensions[1].listed):
                caption += " Each dot is a cell."
            shown += html.figure(drawings.contour(self.cells, self.metric, *dimensions[:2]), caption)
        slices = ""
        if dimensions:
            lines = " The line is the mean over the cells of each value." if any(d.listed for d in dimensions) else ""
            drawn = drawings.slices(self.cells, self.metric, dimensions[:_MOST_SLICES])
            slices = html.figure(drawn, f"Each dot is a cell: its mean over seeds{self._where}.{lines}")
        return html.section(f"What {self.metric} depends on", html.words(why_not), html.pair(shown), slices)

    def search(self) -> str:
        if not self.metrics or self.ranking.empty or self.cells["complete"].sum() < _FEWEST:
            return ""
        history = drawings.history(self.cells, self.metric, self.goal)
        lines = ""
        dimensions = [d for d in self._by_importance if self.cells.loc[self.cells["complete"], d.name].notna().all()]
        if len(dimensions) > 1 and self.goal:
            drawn = drawings.parallel(self.cells, self.metric, self.goal, dimensions[:_MOST_SLICES])
            lines = html.figure(drawn, f"A line per cell{self._where}; those of the best tenth stand out.")
        title = "All cells" if not self.spec.method.learns else "The search"
        return html.section(title, html.figure(history, f"Cells with their mean over seeds{self._where}."), lines)

    def _closing(self) -> str:
        return (
            "± is half of the 95 % interval of the mean over seeds (Student's t). The best of many cells looks better "
            "than it is: run it from new seeds before relying on its value. "
            f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC from {self.sweep.files.address}."
        )


_STATUSES = {"done": "done", "stopped": "stopped early", "diverged": "diverged", "failed": "failed", "lost": "lost"}


def _objectives(goals: dict[str, Any]) -> str:
    return ", ".join(f"{goal} {name}" for name, goal in goals.items()) or "no objective"


def _how(table: pd.DataFrame) -> str:
    cells = ", ".join(f"{count:,}" for count in dict.fromkeys(table.attrs["cells"].values()))
    how = {
        "fanova": "Share of the variance that each parameter explains by itself (fANOVA); what is missing to 1 is "
        "interactions, and noise over seeds",
        "ped_anova": "How far the best tenth of the cells differ from all in each parameter (PED-ANOVA), scaled to 1",
    }[table.attrs["method"]]
    at = "" if table.attrs["step"] is None else f" at step {table.attrs['step']:,}, where the first run was stopped"
    return (
        f"{how}. From {cells} cells{at}; the whiskers reach two standard deviations over resamples of seeds and cells."
    )


def _interval(row: "pd.Series[Any]", metric: str) -> str:
    return with_interval(row[metric], row[f"{metric}_high"])


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 0.1 else "under 0.1 s"
