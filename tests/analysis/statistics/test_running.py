"""Curves, tables and figures of a sweep whose runs are still training."""

from typing import Any

import pytest

import mislabel
from mislabel.analysis.report.figures import curve_figure
from mislabel.sweeps.run import live_rows
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.run.worker import Worker
from mislabel.sweeps.store.store import Store
from tests.bowls import CPU, orders_of, prepared, run

VALUES: dict[str, Any] = {
    "parameters": {"x": {"values": [0.0, 1.0, 2.0]}, "steps": 40, "frames": 11, "snapshots": 2},
    "seeds": 2,
    "resources": {"pack": 2},
}


@pytest.fixture(autouse=True)
def rows_after_every_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "EVERY_SECONDS", "LONGEST_SECONDS"):
        monkeypatch.setattr(live_rows, name, 0.0)


@pytest.fixture
def training(store: Store) -> Launch:
    """A sweep whose first cell is done, whose second one is half-way, and whose third one has not begun."""
    launch = prepared(store, **VALUES)
    first, second, _ = orders_of(launch)
    done = Worker(first, launch.files, CPU)
    while done.pack_group.live:
        done.work(1.0)
    half_way = Worker(second, launch.files, CPU)
    while half_way.pack_group.step < 10:
        half_way.work(0.0)
    return launch


def test_curves_contain_running_runs_and_runs_do_not(training: Launch, store: Store) -> None:
    sweep = mislabel.load(store.address, "bowls")
    assert sweep.runs["x"].unique().tolist() == [0.0]
    assert sweep.running["x"].unique().tolist() == [1.0]
    assert len(sweep.curves["cell_id"].unique()) == 2
    assert not sweep.curves.duplicated(["run_id", "step"]).any()
    assert set(sweep.read("curves", ["run_id"], {"x": 1.0})["run_id"]) == set(sweep.running["run_id"])
    assert len(sweep.arrays["run_id"].unique()) >= 2


def test_the_curve_of_a_running_cell_is_the_beginning_of_its_final_curve(training: Launch, store: Store) -> None:
    sweep = mislabel.load(store.address, "bowls")
    final = mislabel.load(run(Store(f"{store.address}-complete"), **VALUES).files.store, "bowls").curve("loss")
    found = sweep.curve("loss")
    assert set(found["x"]) == {0.0, 1.0}
    joined = found.merge(final, on=["x", "step"], suffixes=("", "_final"))
    assert len(joined) == len(found)
    for name in ("mean", "low", "high", "n", "runs"):
        assert joined[name].tolist() == joined[f"{name}_final"].tolist()
    last = found[found["x"] == 1.0]["step"].max()
    assert 0 < last < 40


def test_runs_that_have_not_reached_a_step_are_counted(training: Launch, store: Store) -> None:
    curve = mislabel.load(store.address, "bowls").curve("loss", by="task")
    last = mislabel.load(store.address, "bowls").running["step"].iloc[0]
    assert set(curve.loc[curve["step"] <= last, "running"]) == {0}
    assert set(curve.loc[curve["step"] > last, "running"]) == {2}


def test_a_complete_sweep_has_no_running_runs(store: Store) -> None:
    sweep = mislabel.load(run(store, **VALUES).files.store, "bowls")
    assert len(sweep.running) == 0
    assert {"x", "seed", "step", "expected_end"} <= set(sweep.running.columns)


def test_cells_count_ended_runs_only(training: Launch, store: Store) -> None:
    assert mislabel.load(store.address, "bowls").cells("loss")["x"].tolist() == [0.0]


def test_a_figure_says_how_many_runs_are_still_training(training: Launch, store: Store) -> None:
    figure = curve_figure(mislabel.load(store.address, "bowls"), ["loss"], ["x"])
    assert "2 runs are still training" in figure.get_supxlabel().replace("\n", " ")
    labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    assert labels == ["0", "1"]


def test_a_sweep_without_an_ended_run_has_a_curve(store: Store) -> None:
    launch = prepared(store, **VALUES)
    worker = Worker(orders_of(launch)[0], launch.files, CPU)
    while worker.pack_group.step < 10:
        worker.work(0.0)
    sweep = mislabel.load(store.address, "bowls")
    assert len(sweep.runs) == 0
    assert sweep.metrics[:2] == ["loss", "height"]
    curve = sweep.curve("loss", by="x", where={"x": 0.0})
    assert set(curve["x"]) == {0.0}
    assert set(curve["n"]) == {2}


def test_sql_sees_running_runs_in_curves_only(training: Launch, store: Store) -> None:
    sweep = mislabel.load(store.address, "bowls")
    rows = sweep.sql("select count(*) as rows, count(distinct run_id) as runs from curves").iloc[0]
    assert (rows["rows"], rows["runs"]) == (len(sweep.curves), 4)
    assert sweep.sql("select count(*) as runs from runs")["runs"].item() == 2
