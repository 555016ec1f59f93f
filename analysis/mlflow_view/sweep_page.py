"""The contents of a sweep's own page in MLflow: tags, progress as metrics, and a description in Markdown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from mislabel.analysis.mlflow_view.nested_runs import INACTIVE, counted
from mislabel.analysis.mlflow_view.points import Point
from mislabel.analysis.mlflow_view.results import Results, digest_of
from mislabel.analysis.mlflow_view.saved_view import address, layout
from mislabel.sweeps.formatting import axis_text, count, value_text, values_text, with_interval
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.spec.model import Objective
from mislabel.sweeps.statistics import comparable
from mislabel.sweeps.store.outcome import WITH_RESULT

_BEST_CELLS = 10
# MLflow refuses longer tags of experiments.
_LONGEST = 5000


class SweepPage:
    """A sweep's page as plain values."""

    def __init__(
        self, results: Results, experiment: str, pages: Mapping[str, str], final: bool, important: Sequence[str]
    ) -> None:
        """`experiment` is MLflow's id of the experiment; `pages` has the ids of the nested runs by key.

        `important` are varying parameters, the most important first.
        """
        failed = not results.runs["status"].isin(WITH_RESULT).all()
        self.status = ("FAILED" if failed else "FINISHED") if final else "RUNNING"
        self.note = _note(results, experiment, pages)
        self.layout = layout(results, important)
        spec = results.spec
        facts = {
            "mlflow.source.name": "mislabel",
            "mislabel.task": spec.task,
            "mislabel.method": spec.method.name,
            "mislabel.metric": ", ".join(f"{objective.goal} {objective.name}" for objective in spec.metric),
            "mislabel.seeds": str(spec.seeds.count),
            "mislabel.cells": str(results.cells),
            "mislabel.runs": counted(results.rows["status"]) if len(results.rows) else "0",
        }
        self.tags = {**facts, **_provenance(results), "mlflow.note.content": self.note}
        self.points = list(_progress(results))
        launches = results.files.launches()
        self.inputs: dict[str, str] = dict(launches[-1].get("data") or {}) if launches else {}
        """The data sets that runs read, with their checksums."""
        self.digest = digest_of([self.status, results.spec_text, self.layout, self.tags, self.points, self.inputs])


def _provenance(results: Results) -> dict[str, str]:
    """The last launch as flat tags, such as launch.git.commit. Some are repeated under the names that MLflow shows.

    Earlier versions stored commands with their passwords, so the tags are redacted.
    """
    launches = results.files.launches()
    launch = dict(_flat("launch", launches[-1])) if launches else {}
    known = {"mlflow.user": "launch.user", "mlflow.source.git.commit": "launch.git.commit"}
    return {**launch, **{tag: launch[name] for tag, name in known.items() if name in launch}}


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(f"{name}.{re.sub(r'[^A-Za-z0-9_. -]', '_', str(key))}", part)
    else:
        yield name, redacted(value_text(value, digits=None))[:_LONGEST]


def _progress(results: Results) -> Iterator[Point]:
    if not len(results):
        return
    step, time = len(results), results.ended
    for status, number in results.runs["status"].value_counts().items():
        yield Point(f"runs_{status}", float(number), time, step)
    yield Point("cells", float(results.cells), time, step)
    for objective in results.spec.metric:
        cells = best_cells(results, objective)
        if len(cells):
            yield Point(f"best_{objective.name}", float(cells["mean"].iloc[0]), time, step)


def best_cells(results: Results, objective: Objective) -> pd.DataFrame:
    """Summary over seeds of each cell with a value, best first. Cells with a missing value come last.

    Cells that were stopped early are left out, because they are measured at another step.
    """
    if objective.name not in results.cell_tables:
        return pd.DataFrame(columns=["mean", "high", "n"])
    cells = results.cell_tables[objective.name]
    cells = cells[(cells["n"] > 0) & (cells["stopped"] == 0)]
    order = pd.DataFrame({"missing": ~comparable(cells), "mean": cells["mean"]})
    ascending = [True, objective.goal == "minimize"]
    return cells.loc[order.sort_values(["missing", "mean"], ascending=ascending, kind="stable").index]


def _note(results: Results, experiment: str, pages: Mapping[str, str]) -> str:
    """The description. The most important part comes first, because MLflow folds the rest."""
    files = results.files
    stored = (
        f"Every run and every step is stored as Parquet in `{files.address}`. This page is a view of it.\n\n"
        f"```python\nimport mislabel\nsweep = mislabel.load({files.store!r}, {files.name!r})\n"
        "sweep.runs, sweep.curves  # pandas\n```"
    )
    parts = [_heading(results, experiment)]
    if results.spec.metric:
        parts.append(_best(results, results.spec.metric[0], experiment, pages))
    parts += [_varied(results), stored]
    text = "\n\n".join(part for part in parts if part)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _heading(results: Results, experiment: str) -> str:
    spec = results.spec
    ended = counted(results.rows["status"]) if len(results.rows) else "none yet"
    cells, seeds = count(results.cells, "cell"), count(spec.seeds.count, "seed")
    text = f"**{spec.task}**, {spec.method.name}: {cells} × {seeds}. Runs: {ended}."
    if spec.track.per == "none":
        return text
    return f"{text} [Table of {spec.track.per}s]({address(experiment)}), [charts]({address(experiment, charts=True)})."


def _varied(results: Results) -> str:
    axes = results.spec.axes()
    lines = []
    for name in results.varying:
        if name in axes:
            when = f" when `{axes[name].when}`" if axes[name].when else ""
            lines.append(f"| {name} | {axis_text(axes[name])}{when} |")
        else:
            lines.append(f"| {name} | {values_text(sorted(results.runs[name].dropna().unique()))} |")
    fixed = ", ".join(
        f"{name} = {value_text(value)}" for name, value in results.spec.fixed().items() if name not in results.varying
    )
    table = "\n".join(["Varied:", "", "| parameter | values |", "|---|---|", *lines]) if lines else ""
    return "\n\n".join(part for part in (table, f"Fixed: {fixed}." if fixed else "") if part)


def _best(results: Results, objective: Objective, experiment: str, pages: Mapping[str, str]) -> str:
    cells = best_cells(results, objective)
    title = f"Best cells ({objective.goal} {objective.name}):"
    if results.front:
        goals = ", ".join(f"{other.goal} {other.name}" for other in results.spec.metric)
        title = f"Pareto front ({goals}): {len(results.front)} of {results.cells} cells, tagged `mislabel.front`."
        cells = cells[cells.index.isin(results.front)]
    cells = cells.head(_BEST_CELLS)
    if cells.empty:
        return ""
    settings = results.cell_settings
    others = [other.name for other in results.spec.metric[1:] if other.name in results.metrics]
    head = [*results.varying, f"{objective.name}, mean ± 95 % interval", *others, "seeds"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for key, mean, high, n in zip(cells.index.astype(str), cells["mean"], cells["high"], cells["n"], strict=True):
        value = with_interval(mean, high)
        linked = f"[{value}](#/experiments/{experiment}/runs/{pages[key]})" if key in pages else value
        varied = [
            INACTIVE if (value := settings.loc[key, name]) is None else value_text(value) for name in results.varying
        ]
        rest = [value_text(float(results.cell_tables[other].loc[key, "mean"])) for other in others]
        lines.append(f"| {' | '.join([*varied, linked, *rest, str(n)])} |")
    return f"{title}\n\n" + "\n".join(lines)
