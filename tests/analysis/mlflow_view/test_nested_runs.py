"""Curves and last values in MLflow: few points, and only finite ones."""

import gc
from pathlib import Path

import pandas as pd
import pytest

import mislabel
from mislabel.analysis.mlflow_view import nested_runs as module
from mislabel.analysis.mlflow_view.results import Results
from mislabel.analysis.mlflow_view.view import View
from mislabel.sweeps.store.store import Store
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS, client_of, nested_runs, runs_table
from tests.bowls import cut_short, run

pytestmark = [pytest.mark.long, MLFLOWS_OWN_WARNINGS]


def test_a_curve_ends_where_the_first_run_was_stopped_in_the_mean_of_the_tables(store: Store, uri: str) -> None:
    files = run(store, parameters={"x": 1.0, "steps": 3, "frames": 4, "spacing": "linear"}).files
    cut_short(files, files.read("runs")["run_id"].to_pylist()[:1], 1)
    View(files, uri).sync()
    (shown,) = nested_runs(uri).values()
    losses = files.read("curves").to_pandas().groupby("step")["loss"].mean()
    history = client_of(uri).get_metric_history(shown.info.run_id, "loss")
    assert {point.step: point.value for point in history} == pytest.approx({0: losses[0], 1: losses[1]})
    (row,) = mislabel.load(store.address, "bowls").cells("loss").to_dict("records")
    assert shown.data.metrics["loss"] == pytest.approx(row["mean"])
    assert shown.data.metrics["loss_std"] == pytest.approx(row["std"])


def test_thinned_curves_keep_both_ends_and_the_limit(store: Store, uri: str) -> None:
    parameters = {"x": {"values": [0.0, 1.0]}, "rate": 0.05, "steps": 60, "frames": 61, "spacing": "linear"}
    files = run(store, parameters=parameters, track={"points": 7}).files
    View(files, uri).sync()
    means = runs_table(files).groupby("cell_id")["loss"].mean()
    for shown in nested_runs(uri).values():
        history = client_of(uri).get_metric_history(shown.info.run_id, "loss")
        steps = sorted(point.step for point in history)
        assert len(steps) == 7
        assert (steps[0], steps[-1]) == (0, 60)
        assert shown.data.metrics["loss"] == pytest.approx(means[shown.data.tags["mislabel.cell"]])


def test_memory_does_not_depend_on_the_number_of_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a single run are large, so they are made for a few runs at a time."""
    monkeypatch.setattr(module, "_RUNS_AT_ONCE", 10)
    most = {}
    for seeds in (10, 30):
        results = Results(run(Store(str(tmp_path / str(seeds))), seeds=seeds, track={"per": "run"}).files)
        most[seeds] = 0
        stages = results.stages(final=True)
        for i, _ in enumerate(module.nested_runs(results, stages, list(stages), brief=False)):
            if i % 5 == 0:
                tables = sum(type(each) is pd.DataFrame for each in gc.get_objects())
                most[seeds] = max(most[seeds], tables)
    assert most[30] <= most[10] + 10
