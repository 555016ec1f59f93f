"""The saved view with which MLflow's browser page shows a sweep: its columns and charts.

MLflow shows no parameter and no metric until the user selects each one, so every sweep gets a saved view, "Cells".
MLflow has no public interface for this: the view is an experiment tag in the format that MLflow's button "Views"
writes. A page that does not know the format ignores the tag and shows MLflow's default columns.

This is the only module that relies on MLflow's internals: tags and addresses that MLflow does not document, and the
names of its loggers. They were tested with MLflow 3.17.
"""

import base64
import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from mislabel.analysis.mlflow_view.results import RANK, Results

_KEY = "cells"
TAG = f"mlflow.sharedViewState.{_KEY}"
# The kind of experiment, which MLflow's page would otherwise guess.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
# These log a line for every migration when MLflow creates its tables.
MIGRATION_LOGGERS = ("mlflow.store.db.utils", "alembic")
_SCATTERS = 2
# More axes of parallel coordinates are too close to each other.
_AXES = 6


EXPERIMENTS = "#/experiments"
"""The address of the list of experiments, relative to the server's address."""


def address(experiment: str, charts: bool = False) -> str:
    """The address of the experiment's saved view, relative to the server's address."""
    shown = "&compareRunsMode=CHART" if charts else ""
    return f"#/experiments/{experiment}/runs?viewStateShareKey={_KEY}&workflowType=machine_learning{shown}"


def layout(results: Results, important: Sequence[str] = ()) -> str:
    """The saved view, as the value of its tag. `important` are varying parameters, the most important first."""
    first = results.objectives
    metrics = list(dict.fromkeys([*first, *results.metrics]))
    tags = ["status", *(["seeds"] if results.by == "cell_id" else []), "step"]
    # The page has groups for metrics, params and tags, in this order, and sorts each by name.
    columns = [
        *(f"metrics.`{name}`" for name in first or metrics[:1]),
        *(f"params.`{name}`" for name in results.varying),
        *(f"tags.`{name}`" for name in tags),
    ]
    settings, parallel = list(_settings(results, first, important)), list(_parallel(results, first, important))
    sections = [
        *([_section("settings", f"{first[0]} by parameter", 2)] if settings else []),
        *([_section("parallel", f"{first[0]} and all parameters", 1)] if parallel else []),
        _section("curves", "Curves, mean over seeds" if results.by == "cell_id" else "Curves", 3),
    ]
    state = {
        "searchFilter": f"tags.`mislabel.kind` = '{results.spec.track.per}'",
        "orderByKey": f"metrics.`{RANK}`" if first else "attributes.start_time",
        "orderByAsc": bool(first),
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": columns,
        "runsHiddenMode": "SHOWALL",
        "compareRunCharts": [*settings, *parallel, *_curves(results, metrics)],
        "isAccordionReordered": True,
        "compareRunSections": sections,
    }
    title = "Cells" if results.by == "cell_id" else "Runs"
    # The browser compresses it too: as plain text, it would be too long for a tag.
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": title, "createdAt": results.started, "updatedAt": results.started, "state": f"deflate;{packed}"}
    return json.dumps(view)


def _section(uuid: str, name: str, columns: int) -> dict[str, Any]:
    flags = {"display": True, "isReordered": True, "deleted": False, "isGenerated": False}
    return {"uuid": uuid, "name": name, "columns": columns, **flags}


def _settings(results: Results, objectives: list[str], important: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Charts of the objective over the most important parameters, if at least two cells have ended."""
    if not objectives or len(results.ranks) < 2:
        return
    for name in _by_importance(results, important)[:_SCATTERS]:
        x, y = {"type": "PARAM", "key": name}, {"type": "METRIC", "key": objectives[0]}
        yield _chart("SCATTER", "settings", name, xaxis=x, yaxis=y)


def _parallel(results: Results, objectives: list[str], important: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A chart of the objective over all parameters at once."""
    if not objectives or len(results.ranks) < 2:
        return
    # An axis with numbers and "–" would list every number as a word.
    names = [name for name in _by_importance(results, important) if results.settings[name].notna().all()][:_AXES]
    if len(names) > 1:
        chosen = {"selectedParams": names, "selectedMetrics": objectives[:1]}
        yield _chart("PARALLEL", "parallel", "all", **chosen, showAllRuns=True)


def _by_importance(results: Results, important: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*(name for name in important if name in results.varying), *results.varying]))


def _curves(results: Results, metrics: list[str]) -> Iterator[dict[str, Any]]:
    spacing = results.rows.get("spacing")
    logarithmic = spacing is not None and len(spacing) and (spacing == "log").all()
    # Brief nested runs have curves of the objectives alone.
    curved = metrics if results.has_few else results.objectives or metrics[:1]
    for name in curved:
        yield {
            **_chart("LINE", "curves", name, isGenerated=True, displayName=name),
            "metricKey": name,
            "xAxisKey": "step",
            "xAxisScaleType": "log" if logarithmic else "linear",
            "yAxisKey": "metric",
            "scaleType": "linear",
            "lineSmoothness": 0,
            "range": {},
            "useGlobalXaxisKey": True,
            "useGlobalLineSmoothing": True,
        }
    # MLflow adds a chart for every metric that is not listed. These metrics have a single point, so their charts are
    # listed as deleted.
    single = [RANK, "train_seconds", *(f"{name}_std" for name in metrics)]
    for name in [*single, *(name for name in metrics if name not in curved)]:
        yield {**_chart("BAR", "curves", name, isGenerated=True, deleted=True), "metricKey": name}


def _chart(kind: str, section: str, name: str, **more: Any) -> dict[str, Any]:
    chart = {"uuid": f"{section}-{name}", "type": kind, "metricSectionId": section, "runsCountToCompare": 100}
    return {**chart, "deleted": False, "isGenerated": False, **more}
