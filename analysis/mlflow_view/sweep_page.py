"""What stands on a sweep's own page in MLflow: facts as tags, progress as metrics, and a description in Markdown."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from mislabel.analysis.mlflow_view.nested_runs import WITHOUT_RESULT, Results, counted, digest_of, shown
from mislabel.analysis.mlflow_view.points import Final, Point, with_interval
from mislabel.analysis.mlflow_view.saved_view import address, layout
from mislabel.sweeps.spec.model import Axis, Objective

_BEST_CELLS = 10
_LISTED = 20
# MLflow refuses longer tags of experiments.
_LONGEST = 5000


class SweepPage:
    """The page of a sweep, in plain values."""

    def __init__(self, results: Results, experiment: str, pages: Mapping[str, str], final: bool) -> None:
        """`experiment` and `pages` are MLflow's ids of the experiment and, by key, of the nested runs."""
        self.status = _status(results) if final else "RUNNING"
        self.note = _note(results, experiment, pages)
        self.layout = layout(results)
        self.tags = {**_facts(results), **_provenance(results), "mlflow.note.content": self.note}
        self.points = list(_progress(results))
        self.digest = digest_of([self.status, results.spec_text, self.layout, self.tags, self.points])


def _status(results: Results) -> str:
    return "FAILED" if len(results) and results.runs["status"].isin(WITHOUT_RESULT).any() else "FINISHED"


def _facts(results: Results) -> dict[str, str]:
    spec = results.spec
    return {
        "mlflow.source.name": "mislabel",
        "mislabel.task": spec.task,
        "mislabel.method": spec.method.name,
        "mislabel.metric": ", ".join(f"{objective.goal} {objective.name}" for objective in spec.metric),
        "mislabel.seeds": str(spec.seeds.count),
        "mislabel.cells": str(results.cells),
        "mislabel.runs": counted(results.runs["status"]) if len(results) else "0",
        "mislabel.store": results.files.address,
    }


def _provenance(results: Results) -> dict[str, str]:
    """The last launch, flat: launch.git.commit and the like; what MLflow has a column for also under MLflow's name."""
    launches = results.files.launches()
    launch = dict(_flat("launch", launches[-1])) if launches else {}
    known = {"mlflow.user": "launch.user", "mlflow.source.git.commit": "launch.git.commit"}
    return {**launch, **{tag: launch[name] for tag, name in known.items() if name in launch}}


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(f"{name}.{re.sub(r'[^A-Za-z0-9_. -]', '_', str(key))}", part)
    else:
        yield name, shown(value)[:_LONGEST]


def _progress(results: Results) -> Iterator[Point]:
    if not len(results):
        return
    step, time = len(results), results.ended
    for status, count in results.runs["status"].value_counts().items():
        yield Point(f"runs_{status}", float(count), time, step)
    yield Point("cells", float(results.cells), time, step)
    for objective in results.spec.metric:
        cells = best_cells(results, objective)
        if len(cells):
            yield Point(f"best_{objective.name}", float(cells["mean"].iloc[0]), time, step)


def best_cells(results: Results, objective: Objective) -> pd.DataFrame:
    """Mean, standard deviation and runs of each cell that has a result, best first.

    Cells of which a run has no value come last. Those that were stopped early are measured at another step, and are not
    among them.
    """
    if objective.name not in results.metrics:
        return pd.DataFrame(columns=["mean", "std", "count"])
    cells = results.runs.groupby("cell_id")[objective.name].agg(["mean", "std", "count"])
    stopped = results.runs.loc[results.runs["status"] == "stopped", "cell_id"]
    cells = cells[(cells["count"] > 0) & ~cells.index.isin(stopped)]
    order = pd.DataFrame({"without": ~cells.index.isin(results.comparable.index), "mean": cells["mean"]})
    ascending = [True, objective.goal == "minimize"]
    return cells.loc[order.sort_values(["without", "mean"], ascending=ascending, kind="stable").index]


def _note(results: Results, experiment: str, pages: Mapping[str, str]) -> str:
    """The most important first: MLflow shows a few lines until asked for more."""
    parts = [_heading(results, experiment)]
    if results.spec.metric:
        parts.append(_best(results, results.spec.metric[0], experiment, pages))
    parts += [_varied(results), _files(results)]
    text = "\n\n".join(part for part in parts if part)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _heading(results: Results, experiment: str) -> str:
    spec = results.spec
    ended = counted(results.runs["status"]) if len(results) else "none yet"
    cells = f"{results.cells} cell{'s' * (results.cells != 1)}"
    seeds = f"{spec.seeds.count} seed{'s' * (spec.seeds.count != 1)}"
    text = f"**{spec.task}**, {spec.method.name}: {cells} × {seeds}. Runs: {ended}."
    if spec.track.per == "none":
        return text
    return f"{text} [Table of {spec.track.per}s]({address(experiment)}), [charts]({address(experiment, charts=True)})."


def _varied(results: Results) -> str:
    axes = results.spec.axes()
    lines = [
        f"| {name} | {_range(axes[name]) if name in axes else _listed(sorted(results.runs[name].dropna().unique()))} |"
        for name in results.varying
    ]
    fixed = ", ".join(
        f"{name} = {shown(value)}" for name, value in results.spec.fixed().items() if name not in results.varying
    )
    table = "\n".join(["Varied:", "", "| parameter | values |", "|---|---|", *lines]) if lines else ""
    return "\n\n".join(part for part in (table, f"Fixed: {fixed}." if fixed else "") if part)


def _range(axis: Axis) -> str:
    when = f" when `{axis.when}`" if axis.when else ""
    if axis.values is not None:
        return _listed(axis.values) + when
    assert axis.min is not None
    assert axis.max is not None
    points = f", {axis.points} points" if axis.points else ""
    return f"{axis.min:g} … {axis.max:g} ({axis.scale}{points}){when}"


def _listed(values: Sequence[Any]) -> str:
    return ", ".join(map(shown, values[:_LISTED])) + (f", … ({len(values)} values)" if len(values) > _LISTED else "")


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
    settings = results.runs.drop_duplicates("cell_id").set_index("cell_id")
    others = [other for other in results.spec.metric[1:] if other.name in results.metrics]
    means = results.runs.groupby("cell_id")[[other.name for other in others]].mean()
    head = [*results.varying, f"{objective.name}, mean ± 95 % interval", *(other.name for other in others), "seeds"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for key, (mean, std, count) in zip(cells.index.astype(str), cells.to_numpy(), strict=True):
        value = with_interval(Final(mean, std, int(count)))
        linked = f"[{value}](#/experiments/{experiment}/runs/{pages[key]})" if key in pages else value
        varied = [shown(settings.loc[key, name], digits=4) for name in results.varying]
        rest = [f"{means[other.name][key]:.4g}" for other in others]
        lines.append(f"| {' | '.join([*varied, linked, *rest, str(int(count))])} |")
    return f"{title}\n\n" + "\n".join(lines)


def _files(results: Results) -> str:
    files = results.files
    store = files.store
    return (
        f"Every run and every step is in Parquet under `{files.address}`; this page is a view of it.\n\n"
        f"```python\nimport mislabel\nsweep = mislabel.load({store!r}, {files.name!r})\n"
        "sweep.runs, sweep.curves  # pandas\n```"
    )
