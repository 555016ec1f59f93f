"""The MLflow view, compared with the store."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import mlflow
import pytest

import mislabel
from mislabel.analysis.mlflow_view.view import View
from mislabel.analysis.statistics.ranking import ranked
from mislabel.sweeps.run.worker import record_failure
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS, client_of, nested_runs, parent_of, runs_table
from tests.bowls import cut_short, prepared, run

pytestmark = [pytest.mark.server, MLFLOWS_OWN_WARNINGS]


def test_a_sweep_is_an_experiment_with_one_parent_and_a_nested_run_per_cell(files: SweepFiles, uri: str) -> None:
    assert View(files, uri).sync() == 3
    parent, nested = parent_of(uri), nested_runs(uri)
    assert parent.info.run_name == "bowls"
    assert parent.info.status == "FINISHED"
    assert set(nested) == {"x=0", "x=1", "x=2"}
    assert nested["x=1"].data.params["x"] == "1.0"
    assert nested["x=1"].data.params["rate"] == "0.5"
    assert nested["x=1"].data.tags["seeds"] == "2"
    assert nested["x=1"].data.tags["status"] == "2 done"
    assert parent.data.metrics["runs_done"] == 6
    assert parent.data.params == {"task": "bowl", "method": "grid"}


def test_values_are_the_means_over_seeds_in_the_store(store: Store, uri: str) -> None:
    files = run(store, seeds=4).files
    View(files, uri).sync()
    runs, curves = runs_table(files), files.read("curves").to_pandas()
    for shown in nested_runs(uri).values():
        own = runs[runs["cell_id"] == shown.data.tags["mislabel.cell"]]
        assert len(own) == 4
        for metric in ("loss", "height"):
            assert shown.data.metrics[metric] == pytest.approx(own[metric].mean())
            assert shown.data.metrics[f"{metric}_std"] == pytest.approx(own[metric].std())
        means = curves[curves["cell_id"] == own["cell_id"].iloc[0]].groupby("step")["loss"].mean()
        history = client_of(uri).get_metric_history(shown.info.run_id, "loss")
        assert {point.step: point.value for point in history} == pytest.approx(means.to_dict())
        assert "rest_step" not in shown.data.metrics  # absent in every run


def test_times_are_those_of_the_runs(files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    runs = runs_table(files)
    for shown in nested_runs(uri).values():
        own = runs[runs["cell_id"] == shown.data.tags["mislabel.cell"]]
        assert shown.info.start_time == int(own["started_at"].min().timestamp() * 1000)
        assert shown.info.end_time == int(own["finished_at"].max().timestamp() * 1000)
    assert parent_of(uri).info.start_time == int(runs["started_at"].min().timestamp() * 1000)


def test_the_parent_shows_parameters_best_cells_and_provenance(store: Store, uri: str) -> None:
    files = run(
        store, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "rate": {"min": 0.4, "max": 0.8, "points": 2}}
    ).files
    View(files, uri).sync()
    parent = parent_of(uri)
    best = runs_table(files).groupby("cell_id")["loss"].mean().min()
    assert parent.data.metrics["best_loss"] == pytest.approx(best)
    note = parent.data.tags["mlflow.note.content"]
    assert "6 cells × 2 seeds" in note
    assert "| x | 0, 1, 2 |" in note
    assert "| rate | 0.4 … 0.8 (2 points) |" in note
    assert f"| 2 | 0.8 | [{best:.4g} ± " in note
    assert f"mislabel.load({store.address!r}, 'bowls')" in note
    launch = files.launches()[-1]
    assert parent.data.tags["launch.versions.torch"] == launch["versions"]["torch"]
    assert parent.data.tags["launch.host"] == launch["host"]
    spec = client_of(uri).download_artifacts(parent.info.run_id, "spec.yaml")
    assert Path(spec).read_text() == files.read_text("spec.yaml")


def test_a_cell_is_open_until_all_its_seeds_have_ended_or_the_sweep_has(store: Store, uri: str) -> None:
    launch = prepared(store, resources={"pack": 1})
    order = launch.driver.next()
    assert order is not None
    record_failure(order, launch.files, "RuntimeError: the bowl broke\nsomewhere")
    assert View(launch.files, uri).sync(final=False) == 1
    assert parent_of(uri).info.status == "RUNNING"
    (shown,) = nested_runs(uri).values()
    assert shown.info.status == "RUNNING"
    assert View(launch.files, uri).sync() == 1
    (shown,) = nested_runs(uri).values()
    assert shown.info.status == "FAILED"
    assert shown.data.tags["mislabel.error"] == "RuntimeError: the bowl broke"
    assert parent_of(uri).info.status == "FAILED"


def test_a_sweep_without_runs_has_a_page(store: Store, uri: str) -> None:
    files = prepared(store).files
    assert View(files, uri).sync(final=False) == 0
    assert parent_of(uri).info.status == "RUNNING"
    assert nested_runs(uri) == {}


def test_diverged_runs_have_a_curve_and_no_value_at_the_end(store: Store, uri: str) -> None:
    files = run(store, parameters={"x": 1.0, "trouble": {"values": [0, 2]}, "frames": 9, "spacing": "linear"}).files
    View(files, uri).sync()
    nested = nested_runs(uri)
    assert nested["trouble=2"].data.tags["status"] == "2 diverged"
    assert "loss" in nested["trouble=0"].data.metrics
    history = client_of(uri).get_metric_history(nested["trouble=2"].info.run_id, "loss")
    assert history
    assert all(abs(point.value) < 1e6 for point in history)
    assert "loss_std" not in nested["trouble=2"].data.metrics
    last = runs_table(files).query("trouble == 2")["step"].max()
    assert max(point.step for point in history) < last


def test_cells_are_tagged_while_they_are_on_the_front(store: Store, uri: str) -> None:
    both = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
    space: dict[str, Any] = {"x": {"values": [0.0, 3.0]}, "rate": 1.0, "level": {"values": [1]}}

    def tagged() -> set[str]:
        return {name for name, shown in nested_runs(uri).items() if shown.data.tags.get("mislabel.front") == "yes"}

    View(run(store, parameters=space, metric=both).files, uri).sync()
    assert tagged() == {"x=0", "x=3"}
    assert (
        "Pareto front (minimize loss, maximize height): 2 of 2 cells" in parent_of(uri).data.tags["mlflow.note.content"]
    )
    # The same cells with a greater height dominate the first two.
    space["level"] = {"values": [1, 100]}
    files = run(store, parameters=space, metric=both).files
    View(files, uri).sync()
    means = mislabel.load(store.address, "bowls").front()
    assert tagged() == {f"x={row['x']:g} level={row['level']}" for _, row in means.iterrows()}
    assert tagged() >= {"x=0 level=100", "x=3 level=100"}
    assert View(files, uri).sync() == 0


def test_stopped_cells_are_tagged_and_not_listed_as_best(store: Store, uri: str) -> None:
    files = run(store, parameters={"x": {"values": [0.0, 1.0, 3.0]}}).files
    sweep = mislabel.load(store.address, "bowls")
    best = sweep.read("runs", ["run_id"], {"x": 3})["run_id"].tolist()
    cut_short(files, best[:1], 1)
    View(files, uri).sync()
    nested = nested_runs(uri)
    assert nested["x=3"].data.tags["mislabel.stopped"] == "1"
    assert "mislabel.stopped" not in nested["x=1"].data.tags
    loss = sweep.cells("loss", where={"x": 1})["mean"].iloc[0]
    assert parent_of(uri).data.metrics["best_loss"] == pytest.approx(loss)
    assert "| 3 |" not in parent_of(uri).data.tags["mlflow.note.content"]


def test_nested_runs_can_be_per_run(store: Store, uri: str) -> None:
    files = run(store, track={"per": "run"}).files
    assert View(files, uri).sync() == 6
    nested = nested_runs(uri)
    assert set(nested) == {f"x={x} seed={seed}" for x in (0, 1, 2) for seed in (0, 1)}
    runs = runs_table(files).set_index("run_id")
    for shown in nested.values():
        assert shown.data.metrics["loss"] == pytest.approx(runs.loc[shown.data.tags["mislabel.run"], "loss"])
        assert "loss_std" not in shown.data.metrics
        assert shown.data.params["seed"] == shown.info.run_name[-1]


def saved_view(uri: str, name: str = "bowls") -> dict[str, Any]:
    view = json.loads(client_of(uri).get_experiment_by_name(name).tags["mlflow.sharedViewState.cells"])
    state: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(view["state"].removeprefix("deflate;"))))
    return state


def in_order(uri: str, state: dict[str, Any]) -> list[str]:
    """The cells in the order of the saved view."""
    experiment = client_of(uri).get_experiment_by_name("bowls").experiment_id
    order = f"{state['orderByKey']} {'ASC' if state['orderByAsc'] else 'DESC'}"
    found = client_of(uri).search_runs([experiment], state["searchFilter"], order_by=[order])
    return [shown.data.tags["mislabel.cell"] for shown in found]


def test_the_saved_view_shows_the_objective_then_parameters_then_status(files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    state = saved_view(uri)
    tags = ["tags.`status`", "tags.`seeds`", "tags.`step`"]
    assert state["selectedColumns"] == ["metrics.`loss`", "params.`x`", *tags]
    assert (
        in_order(uri, state)
        == mislabel.load(files.store, "bowls").cells("loss").sort_values("mean")["cell_id"].tolist()
    )


@pytest.mark.parametrize("goal", ["minimize", "maximize"])
def test_cells_are_ranked_as_on_the_command_line(goal: str, store: Store, uri: str) -> None:
    parameters = {"x": {"values": [0.0, 1.0, 1.5, 2.0, 3.0]}, "trouble": {"values": [0, 2]}, "frames": 9}
    files = run(store, metric={"name": "loss", "goal": goal}, parameters={**parameters, "spacing": "linear"}).files
    sweep = mislabel.load(store.address, "bowls")
    for x, step in ((3.0, 1), (2.0, 2), (1.5, 2)):
        cut_short(files, sweep.read("runs", ["run_id"], {"x": x, "trouble": 0})["run_id"].tolist(), step)
    View(files, uri).sync()
    ranking = ranked(mislabel.load(store.address, "bowls"))
    assert (ranking["stopped"] > 0).sum() == 3
    valued = ranking[ranking["loss"].notna()]["cell_id"].tolist()
    assert [cell for cell in in_order(uri, saved_view(uri)) if cell in valued] == valued


def test_inactive_parameters_are_shown_as_such(store: Store, uri: str) -> None:
    parameters = {"x": {"values": [0.0, 1.0]}, "level": {"values": [1, 5], "when": "x > 0"}}
    View(run(store, parameters=parameters).files, uri).sync()
    assert {(shown.data.params["x"], shown.data.params["level"]) for shown in nested_runs(uri).values()} == {
        ("0.0", "–"),
        ("1.0", "1"),
        ("1.0", "5"),
    }
    charts = saved_view(uri)["compareRunCharts"]
    assert [chart for chart in charts if chart["type"] == "PARALLEL"] == []


def test_large_sweeps_have_brief_cells_and_complete_best_cells(store: Store, uri: str) -> None:
    space = {"x": {"min": 0.0, "max": 3.0, "points": 60}, "rate": 0.1, "steps": 30, "frames": 31, "spacing": "linear"}
    files = run(store, parameters=space, seeds=2, resources={"pack": 60}).files
    view = View(files, uri)
    assert view.sync() == 60
    sweep = mislabel.load(store.address, "bowls")
    cells = {metric: sweep.cells(metric).set_index("cell_id")["mean"] for metric in ("loss", "height")}
    best = set(cells["loss"].sort_values().index[:5])
    for shown in nested_runs(uri).values():
        cell = shown.data.tags["mislabel.cell"]
        for metric, means in cells.items():
            assert shown.data.metrics[metric] == pytest.approx(means[cell])
        lengths = [len(client_of(uri).get_metric_history(shown.info.run_id, metric)) for metric in ("loss", "height")]
        assert (lengths[0] > 11) == (cell in best)
        assert lengths[0] >= 10
        assert ("rate" in shown.data.params) == (cell in best)
    lines = [chart for chart in saved_view(uri)["compareRunCharts"] if chart["type"] == "LINE"]
    assert [chart["metricKey"] for chart in lines] == ["loss"]
    assert View(files, uri).sync() == 0


def test_search_runs_returns_a_parent_and_a_child_per_cell(files: SweepFiles, uri: str) -> None:
    View(files, uri).sync()
    mlflow.set_tracking_uri(uri)
    try:
        table = mlflow.search_runs(experiment_names=["bowls"])
    finally:
        mlflow.set_tracking_uri(None)
    cells = mislabel.load(files.store, "bowls").cells("loss")
    children = table[table["tags.mislabel.kind"] == "cell"].set_index("tags.mislabel.cell")
    assert len(table) == 1 + len(cells)
    assert set(children["tags.mlflow.parentRunId"]) == set(table[table["tags.mislabel.kind"] == "sweep"]["run_id"])
    assert children["metrics.loss"].to_dict() == pytest.approx(cells.set_index("cell_id")["mean"].to_dict())


def test_there_are_no_charts_with_a_single_point(store: Store, uri: str) -> None:
    View(run(store, parameters={"x": 1.0}).files, uri).sync()
    charts = [chart for chart in saved_view(uri)["compareRunCharts"] if not chart["deleted"]]
    assert {chart["type"] for chart in charts} == {"LINE"}
    assert {chart["metricKey"] for chart in charts} == {"loss", "height", "rest_step"}


def test_a_real_task_is_shown(store: Store, uri: str) -> None:
    sizes = {"samples": 16, "dim": 4, "width": 8, "test_samples": 16, "steps": 20, "frames": 5}
    files = run(
        store,
        name="xor",
        task="xor_clusters",
        metric={"name": "test_accuracy", "goal": "maximize"},
        parameters={**sizes, "noise_rate": {"values": [0.0, 0.25]}},
    ).files
    assert View(files, uri).sync() == 2
    means = runs_table(files).groupby("noise_rate")["test_accuracy"].mean()
    for rate, shown in zip(
        (0.0, 0.25), (nested_runs(uri, "xor")[name] for name in ("noise_rate=0", "noise_rate=0.25")), strict=True
    ):
        assert shown.data.metrics["test_accuracy"] == pytest.approx(means[rate])
        assert shown.data.params["dim"] == "4"
