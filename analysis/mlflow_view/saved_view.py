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
from collections.abc import Iterator
from typing import Any

from mislabel.analysis.mlflow_view.results import Results

_KEY = "cells"
TAG = f"mlflow.sharedViewState.{_KEY}"
# The kind of experiment, which MLflow's page would otherwise guess.
EXPERIMENT_TAGS = {"mlflow.experimentKind": "custom_model_development"}
# These log a line for every migration when MLflow creates its tables.
MIGRATION_LOGGERS = ("mlflow.store.db.utils", "alembic")
MOST_LINES = 10
"""The number of nested runs that charts show at first: the best ones."""
_COLUMNS = 8
_SCATTERS = 2


def address(experiment: str, charts: bool = False) -> str:
    """The address of the experiment's saved view, relative to the server's address."""
    shown = "&compareRunsMode=CHART" if charts else ""
    return f"#/experiments/{experiment}/runs?viewStateShareKey={_KEY}&workflowType=machine_learning{shown}"


def layout(results: Results) -> str:
    """The saved view, as the value of its tag."""
    objectives = results.spec.metric
    first = [objective.name for objective in objectives if objective.name in results.metrics]
    metrics = list(dict.fromkeys([*first, *results.metrics]))
    spreads = [f"{name}_std" for name in first] if results.by == "cell_id" else []
    columns = [*(f"params.`{name}`" for name in results.varying), *(f"metrics.`{name}`" for name in [*first, *spreads])]
    curves = "Curves, mean over seeds" if results.by == "cell_id" else "Curves"
    sections = {**({"settings": f"{first[0]} by setting"} if first else {}), "curves": curves}
    state = {
        "searchFilter": f"tags.`mislabel.kind` = '{results.spec.track.per}'",
        "orderByKey": f"metrics.`{first[0]}`" if first else "attributes.start_time",
        "orderByAsc": bool(first) and objectives[0].goal == "minimize",
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
        "selectedColumns": [*columns, *(f"metrics.`{name}`" for name in metrics[len(first) : _COLUMNS])],
        "runsHiddenMode": f"FIRST_{MOST_LINES}_RUNS",
        "compareRunCharts": [*_settings(results, first), *_curves(results, metrics)],
        "isAccordionReordered": True,
        "compareRunSections": [
            {"uuid": uuid, "name": name, "display": True, "isReordered": True, "deleted": False, "isGenerated": False}
            for uuid, name in sections.items()
        ],
    }
    title = "Cells" if results.by == "cell_id" else "Runs"
    # The browser compresses it too: as plain text, it would be too long for a tag.
    packed = base64.b64encode(zlib.compress(json.dumps(state).encode())).decode()
    view = {"name": title, "createdAt": results.started, "updatedAt": results.started, "state": f"deflate;{packed}"}
    return json.dumps(view)


def _settings(results: Results, objectives: list[str]) -> Iterator[dict[str, Any]]:
    """Charts of the objective over the varying parameters."""
    if not objectives:
        return
    if len(results.varying) > 1:
        chosen = {"selectedParams": results.varying, "selectedMetrics": objectives}
        yield _chart("PARALLEL", "settings", "all", **chosen, showAllRuns=True)
    for name in results.varying[:_SCATTERS]:
        x, y = {"type": "PARAM", "key": name}, {"type": "METRIC", "key": objectives[0]}
        yield _chart("SCATTER", "settings", name, xaxis=x, yaxis=y)


def _curves(results: Results, metrics: list[str]) -> Iterator[dict[str, Any]]:
    spacing = results.runs.get("spacing")
    logarithmic = spacing is not None and len(spacing) and (spacing == "log").all()
    for name in metrics:
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
    for name in ["train_seconds", *(f"{name}_std" for name in [*metrics, "train_seconds"])]:
        yield {**_chart("BAR", "curves", name, isGenerated=True, deleted=True), "metricKey": name}


def _chart(kind: str, section: str, name: str, **more: Any) -> dict[str, Any]:
    chart = {"uuid": f"{section}-{name}", "type": kind, "metricSectionId": section, "runsCountToCompare": 100}
    return {**chart, "deleted": False, "isGenerated": False, **more}
