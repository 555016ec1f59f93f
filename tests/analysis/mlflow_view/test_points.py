"""Curves and last values as MLflow shows them: few points, all of them finite."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from mislabel.analysis.mlflow_view.points import Span, finals_of, points_of
from mislabel.analysis.mlflow_view.view import sync
from mislabel.sweeps.store.store import Store
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS, client_of, nested_runs, runs_table
from tests.bowls import run

pytestmark = MLFLOWS_OWN_WARNINGS


def test_a_run_that_stopped_early_counts_on_with_its_last_value(store: Store, uri: str, tmp_path: Path) -> None:
    whole = run(store, parameters={"x": 1.0, "steps": 3, "frames": 4, "spacing": "linear"}).files
    runs, curves = whole.read("runs"), whole.read("curves").to_pandas()
    early, other = runs["run_id"].to_pylist()
    curves = curves[(curves["run_id"] != early) | (curves["step"] <= 1)]
    last = curves[(curves["run_id"] == early) & (curves["step"] == 1)].iloc[0]
    for column, value in {"status": "stopped", "step": 1, "loss": last["loss"]}.items():
        changed = pa.array([value, runs[column][1].as_py()])
        runs = runs.set_column(runs.column_names.index(column), column, changed)
    cut = Store(str(tmp_path / "cut")).sweep("bowls")
    cut.revise_spec(str(whole.read_text("spec.yaml")))
    cut.write_part("part", {"runs": runs, "curves": pa.Table.from_pandas(curves, preserve_index=False)})
    sync(cut, uri)
    (shown,) = nested_runs(uri).values()
    losses = curves[curves["run_id"] == other].set_index("step")["loss"]
    start = curves[curves["step"] == 0]["loss"].mean()
    expected = {0: start} | {step: (losses[step] + last["loss"]) / 2 for step in (1, 2, 3)}
    history = client_of(uri).get_metric_history(shown.info.run_id, "loss")
    assert {point.step: point.value for point in history} == pytest.approx(expected)


def test_values_that_are_not_finite_are_left_out() -> None:
    curves = pd.DataFrame({"loss": [8.0, np.nan, 2.0], "margin": [np.nan] * 3}, index=[0, 1, 2])
    finals = finals_of(
        pd.DataFrame({"loss": [1.0, 3.0, np.inf], "margin": [np.nan, -np.inf, np.nan]}), ["loss", "margin"]
    )
    points = list(points_of(finals, curves, Span(1000, 3000, 2), most=50))
    assert [(p.metric, p.value, p.time, p.step) for p in points] == [
        ("loss", 8.0, 1000, 0),
        ("loss", 2.0, 3000, 2),
        ("loss_std", pytest.approx(2**0.5), 3000, 2),
    ]


def test_thinning_keeps_both_ends_and_the_limit(store: Store, uri: str) -> None:
    parameters = {"x": {"values": [0.0, 1.0]}, "rate": 0.05, "steps": 60, "frames": 61, "spacing": "linear"}
    files = run(store, parameters=parameters, track={"points": 7}).files
    sync(files, uri)
    means = runs_table(files).groupby("cell_id")["loss"].mean()
    for shown in nested_runs(uri).values():
        history = client_of(uri).get_metric_history(shown.info.run_id, "loss")
        steps = sorted(point.step for point in history)
        assert len(steps) == 7
        assert (steps[0], steps[-1]) == (0, 60)
        assert shown.data.metrics["loss"] == pytest.approx(means[shown.data.tags["mislabel.cell"]])


def test_of_a_flat_stretch_only_the_ends_are_written() -> None:
    curves = pd.DataFrame({"accuracy": [0.5, 0.7, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]})
    finals = finals_of(pd.DataFrame({"accuracy": [1.0]}), ["accuracy"])
    points = [(p.step, p.value) for p in points_of(finals, curves, Span(0, 9, 9), most=50)]
    assert points == [(0, 0.5), (1, 0.7), (2, 0.9), (3, 1.0), (9, 1.0)]
