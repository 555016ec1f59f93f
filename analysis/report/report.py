"""A sweep's report: one HTML file that shows what was run, the results, and what they depend on.

The report is written from the store alone and at any time: also for a sweep that is running, that has no objective, or
whose runs all failed.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mislabel.analysis.report import drawings, html, sections
from mislabel.analysis.report.drawings import Dimension
from mislabel.analysis.report.figures import with_clipped_band
from mislabel.analysis.report.levels import levels_of
from mislabel.analysis.report.text_tables import text_rows
from mislabel.analysis.statistics.checkout import commits, modified
from mislabel.analysis.statistics.ranking import ranked
from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import count, duration, value_text, with_interval
from mislabel.sweeps.statistics import comparable, curve_table
from mislabel.sweeps.store.outcome import Status

if TYPE_CHECKING:
    from mislabel.analysis.studies.study import Cells

_BEST = 10
_MOST_SLICES = 8
_MOST_LINES = 8
_FEWEST = 3
_LISTED = 12


class Report:
    """The report on the objectives, or on these metrics."""

    def __init__(self, sweep: SweepTables, metrics: Sequence[str] = ()) -> None:
        self.sweep = sweep
        self.spec = sweep.spec
        for metric in metrics:
            sweep.require_metric(metric)
        objectives = [objective.name for objective in self.spec.metric]
        self.metrics = [m for m in (list(metrics) or objectives or sweep.metrics[:1]) if m in sweep.metrics]
        self.metric = self.metrics[0] if self.metrics else ""
        self.goals = {objective.name: objective.goal for objective in self.spec.metric}
        self.goal = self.goals.get(self.metric)
        self.runs = sweep.runs

    def html(self) -> str:
        spec = self.spec
        kind = {"grid": "grid", "random": "random cells", "qmc": "evenly spread cells"}.get(spec.method.name)
        goals = ", ".join(f"{goal} {name}" for name, goal in self.goals.items()) or "no objective"
        lead = f"{spec.task} · {kind or f'search by {spec.method.name}'} · {goals}"
        parts = [self.tiles(), self.best(), self.front(), self.curves(), self.dependence(), self.search()]
        parts += [sections.stopping(self.sweep), sections.failures(self.sweep), sections.swept(self.sweep)]
        closing = (
            "± is half of the 95 % interval of the mean over seeds (Student's t). The best of many cells looks better "
            "than it is: run it with new seeds before you rely on its value. "
            f"Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC from {self.sweep.files.address}."
        )
        parts += [sections.provenance(self.sweep), html.footer(closing)]
        return html.page(spec.name, lead, parts)

    def tiles(self) -> str:
        counts = self.runs["status"].value_counts().to_dict() if len(self.runs) else {}
        cells = self.runs["cell_id"].nunique() if len(self.runs) else 0
        facts = [(f"{cells:,}", "cells", False), (f"{len(self.runs):,}", "runs ended", False)]
        planned = self.sweep.files.progress().get("runs") or 0
        if planned > len(self.runs):
            facts.append((f"{planned:,}", "runs planned", False))
        facts += [
            (f"{counts[status]:,}", status.value, status not in (Status.DONE, Status.STOPPED))
            for status in Status
            if status in counts
        ]
        if changed := len(modified(commits(self.sweep))):
            facts.append((f"{changed:,}", "runs from a modified checkout", True))
        if len(self.runs):
            facts.append((duration(float(self.runs["train_seconds"].sum())), "training time, all runs", False))
        return html.tiles(facts)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        return ranked(self.sweep, self.metrics) if self.metrics else pd.DataFrame()

    def best(self) -> str:
        if not len(self.runs):
            return html.section("Results", html.paragraph("No run has ended yet."))
        if not self.metrics:
            return html.section("Results", html.paragraph("No run has a result. See Failures below."))
        table = self.ranking
        first = table.head(_BEST)
        header, rows = text_rows(first.drop(columns="front", errors="ignore"))
        marked = first["front"].tolist() if "front" in first else []
        more = f"The first {_BEST} of {len(table):,} cells. " if len(table) > _BEST else ""
        note = html.paragraph(more + ("Marked cells are on the Pareto front. " if any(marked) else ""))
        title = "Best cells" if self.goal else "Cells"
        return html.section(title, html.paragraph(self._verdict()), html.table(header, rows, marked), note)

    def _verdict(self) -> str:
        """A sentence on the best cell, and on how many other cells are not clearly worse."""
        table = self.ranking
        if self.goal is None or "front" in table:
            return ""
        complete = table[table["cell_id"].isin(self.cells.loc[self.cells["complete"], "cell_id"])]
        if complete.empty:
            return ""
        best = complete.iloc[0]
        active = [name for name in self.sweep.varying if not pd.isna(best[name])]
        at = ", ".join(f"{name} = {value_text(best[name])}" for name in active)
        text = f"Best {self.metric}: {_interval(best, self.metric)} over {count(best['runs'], 'seed')}"
        text += f", at {at}." if at else "."
        low, high = complete[f"{self.metric}_low"], complete[f"{self.metric}_high"]
        overlap = (low <= best[f"{self.metric}_high"]) & (high >= best[f"{self.metric}_low"])
        others = int(overlap.iloc[1:].sum())
        if others:
            text += f" The 95 % intervals of {count(others, 'other cell')} overlap with this one."
        return text

    def front(self) -> str:
        if "front" not in self.ranking or len(self.metrics) < 2 or not self.ranking["front"].any():
            return ""
        found, cells = int(self.ranking["front"].sum()), count(len(self.ranking), "cell")
        text = f"{found:,} of {cells}. No other cell is as good in all objectives and better in one."
        caption = "Means over seeds, with 95 % intervals for the cells on the front."
        drawn = drawings.front(self.ranking, [m for m in self.metrics if m in self.goals])
        return html.section("Pareto front", html.paragraph(text), html.figure(drawn, caption))

    def curves(self) -> str:
        if not self.metrics or self.ranking.empty:
            return ""
        runs = self.sweep.curve_runs(self.sweep.varying)
        frames = self.sweep.frames(self.metric, runs)
        if len({step for some in frames for step in np.unique(some.step).tolist()}) < 2:
            return ""
        groupings = {}
        if self._by_importance:
            first = self._by_importance[0]
            title = f"by {first.name}, averaged over the other parameters"
            groupings[title] = levels_of(runs[first.name], _MOST_LINES)
        if self.goal and len(self.ranking) > 1:
            best = self.ranking["cell_id"].iloc[0]
            names = ["all other cells", "best cell" if len(self.metrics) == 1 else "first cell of the front"]
            rest = pd.Categorical(np.where(runs["cell_id"] == best, names[1], names[0]), names)
            groupings[f"{names[1]} and all others"] = pd.Series(rest, runs.index)
        if not groupings:
            groupings["mean over all cells"] = pd.Series("all cells", runs.index)
        shown = {}
        for title, groups in groupings.items():
            found = curve_table(runs.assign(group=groups), frames, ["group"])
            if found["mean"].notna().any():
                shown[title] = with_clipped_band(found[found["mean"].notna()], self.metric, frames)
        if not shown:
            return ""
        note = ""
        if any((table["stopped"] + table["diverged"] > 0).any() for table in shown.values()):
            note = (
                " Dashed: some runs were stopped or diverged. The mean is over the others, which are the better ones."
            )
        caption = f"Mean and 95 % interval over seeds, after averaging within cells.{note}"
        return html.section(f"{self.metric} over training", html.figure(drawings.curves(shown, self.metric), caption))

    @cached_property
    def _study(self) -> "Cells":
        from mislabel.analysis.studies.study import Cells  # loads Optuna

        return Cells(self.sweep)

    @cached_property
    def cells(self) -> pd.DataFrame:
        """The cells in the order in which they started: active parameters, and the mean of the metric.

        Cells that are not `complete` were stopped or diverged. Their mean is that of an earlier step or of fewer seeds.
        """
        found = self._study
        table = pd.DataFrame({"cell_id": found.ids})
        for name in found.names:
            table[name] = pd.Series(found.values[name]).where(pd.Series(found.active[name], dtype=bool))
        means = self.sweep.cells(self.metric, by="cell_id").set_index("cell_id")
        means = means.assign(complete=comparable(means)).reindex(found.ids).reset_index(drop=True)
        counted = means[["diverged", "stopped"]].fillna(0).astype(int)
        return table.assign(mean=means["mean"], complete=means["complete"].fillna(False).astype(bool), **counted)

    @cached_property
    def dimensions(self) -> list[Dimension]:
        """Parameters with several values in the complete cells."""
        found = self._study
        held = self.cells[self.cells["complete"]]
        dimensions = []
        for name in found.names:
            spread = found.distributions[name]
            levels = held[name].nunique()
            if levels > 1:
                listed = levels <= _LISTED and levels < len(held[name].dropna())
                log = bool(getattr(spread, "log", False))
                dimensions.append(Dimension(name, log, listed, categorical=not hasattr(spread, "log")))
        return dimensions

    @cached_property
    def importance(self) -> tuple[pd.DataFrame | None, str]:
        """The table of importances, or the reason why there is none."""
        from mislabel.analysis.studies.importance import importance_of  # loads Optuna

        try:
            return importance_of(self.sweep, self.metrics), ""
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
            caption = f"Mean {self.metric} by the two most important parameters."
            if not (dimensions[0].listed and dimensions[1].listed):
                caption += " Each dot is a cell."
            elif (self.cells["diverged"] > 0).any():
                caption += " Hatched: runs diverged."
            shown += html.figure(drawings.contour(self.cells, self.metric, *dimensions[:2]), caption)
        slices = ""
        if dimensions:
            has_lines = any(dimension.listed for dimension in dimensions) and not (self.cells["stopped"] > 0).any()
            lines = " The line is the mean over the cells with that value." if has_lines else ""
            drawn = drawings.slices(self.cells, self.metric, dimensions[:_MOST_SLICES])
            slices = html.figure(drawn, f"{self._dots}{lines}")
        return html.section(f"What {self.metric} depends on", html.paragraph(why_not), html.pair(shown), slices)

    @property
    def _dots(self) -> str:
        """What the dots of a drawing are."""
        text = "Each dot is a cell's mean over seeds at the end of training."
        if stopped := int((self.cells["stopped"] > 0).sum()):
            text += f" Hollow: {count(stopped, 'cell')} stopped early, at their last common step. They are not judged."
        return text

    def search(self) -> str:
        if not self.metrics or self.ranking.empty or self.cells["complete"].sum() < _FEWEST:
            return ""
        history = drawings.history(self.cells, self.metric, self.goal)
        lines = ""
        dimensions = [d for d in self._by_importance if self.cells.loc[self.cells["complete"], d.name].notna().all()]
        if len(dimensions) > 1 and self.goal:
            drawn = drawings.parallel(self.cells, self.metric, self.goal, dimensions[:_MOST_SLICES])
            lines = html.figure(drawn, "One line per cell that was trained to the end. The best tenth is highlighted.")
        title = "All cells" if not self.spec.method.learns else "Search"
        return html.section(title, html.figure(history, self._dots), lines)


def _how(table: pd.DataFrame) -> str:
    cells = ", ".join(f"{number:,}" for number in dict.fromkeys(table.attrs["cells"].values()))
    how = {
        "fanova": "Share of the variance that each parameter explains alone (fANOVA). The rest is interactions and "
        "noise over seeds",
        "ped_anova": "How much each parameter differs between the best tenth of the cells and all cells (PED-ANOVA), "
        "scaled to a sum of 1",
    }[table.attrs["method"]]
    at = _at(table.attrs["step"])
    return f"{how}. Based on {cells} cells{at}. Whiskers: two standard deviations over resamples of seeds and cells."


def _at(step: int | None) -> str:
    """The step at which cells are compared, for captions."""
    return "" if step is None else f" at step {step:,}, where the first run was stopped"


def _interval(row: "pd.Series[Any]", metric: str) -> str:
    return with_interval(row[metric], row[f"{metric}_high"])
