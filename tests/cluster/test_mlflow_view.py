"""The MLflow view against the store that it is a view of, on real databases and a real server."""

import base64
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mlflow import MlflowClient

import analysis
from cluster.mlflow_points import Span, finals_of, points_of
from cluster.mlflow_view import View, default_uri, following, sync
from sweeps.errors import MislabelError
from sweeps.inline import run_inline
from sweeps.store import Store, SweepFiles
from sweeps.worker import record_failure
from tests.bowls import CPU, cut_short, prepared, run

pytestmark = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy is deprecated",  # MLflow's own use of SQLAlchemy
    "ignore:unclosed database:ResourceWarning",  # its pool is closed with the process
)


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With MLflow's tables, which take seconds to make."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the sweep of `bowl_values`."""
    folder = tmp_path_factory.mktemp("finished")
    run(Store(str(folder)))
    return folder


@pytest.fixture
def files(store: Store, finished: Path) -> SweepFiles:
    """A finished sweep in a store of its own: three cells from two seeds."""
    shutil.copytree(finished, str(store.folder), dirs_exist_ok=True)
    return store.sweep("bowls")


@pytest.fixture
def uri(store: Store, empty_database: Path) -> str:
    """The store's own database."""
    address = default_uri(store)
    assert address is not None
    assert store.folder is not None
    store.prepare()
    shutil.copy(empty_database, store.folder)
    return address


def _client(uri: str) -> Any:
    return MlflowClient(uri)


def _runs(uri: str, name: str = "bowls") -> list[Any]:
    client = _client(uri)
    experiment = client.get_experiment_by_name(name)
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def _parent(uri: str, name: str = "bowls") -> Any:
    (parent,) = [run for run in _runs(uri, name) if "mlflow.parentRunId" not in run.data.tags]
    return parent


def _nested(uri: str, name: str = "bowls") -> dict[str, Any]:
    """By name."""
    parent = _parent(uri, name).info.run_id
    nested = [run for run in _runs(uri, name) if run.data.tags.get("mlflow.parentRunId") == parent]
    assert len({run.info.run_name for run in nested}) == len(nested) == len(_runs(uri, name)) - 1
    return {run.info.run_name: run for run in nested}


def _table(files: SweepFiles) -> pd.DataFrame:
    frame: pd.DataFrame = files.read("runs").to_pandas()
    return frame


def test_a_sweep_is_an_experiment_with_one_parent_and_a_nested_run_per_cell(files: SweepFiles, uri: str) -> None:
    assert sync(files, uri) == 3
    parent, nested = _parent(uri), _nested(uri)
    assert parent.info.run_name == "bowls"
    assert parent.info.status == "FINISHED"
    assert set(nested) == {"x=0", "x=1", "x=2"}
    assert nested["x=1"].data.params["x"] == "1.0"
    assert nested["x=1"].data.params["rate"] == "0.5"
    assert nested["x=1"].data.tags["mislabel.seeds"] == "2"
    assert nested["x=1"].data.tags["mislabel.status"] == "2 done"
    assert parent.data.metrics["runs_done"] == 6
    assert parent.data.params == {"task": "bowl", "method": "grid"}


def test_values_are_the_stores_means_over_seeds(store: Store, uri: str) -> None:
    files = run(store, seeds=4).files
    sync(files, uri)
    runs, curves = _table(files), files.read("curves").to_pandas()
    for shown in _nested(uri).values():
        own = runs[runs["cell_id"] == shown.data.tags["mislabel.cell"]]
        assert len(own) == 4
        for metric in ("loss", "height"):
            assert shown.data.metrics[metric] == pytest.approx(own[metric].mean())
            assert shown.data.metrics[f"{metric}_std"] == pytest.approx(own[metric].std())
        means = curves[curves["cell_id"] == own["cell_id"].iloc[0]].groupby("step")["loss"].mean()
        history = _client(uri).get_metric_history(shown.info.run_id, "loss")
        assert {point.step: point.value for point in history} == pytest.approx(means.to_dict())
        assert "rest_step" not in shown.data.metrics  # absent in every run


def test_times_are_those_of_the_runs(files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    runs = _table(files)
    for shown in _nested(uri).values():
        own = runs[runs["cell_id"] == shown.data.tags["mislabel.cell"]]
        assert shown.info.start_time == int(own["started_at"].min().timestamp() * 1000)
        assert shown.info.end_time == int(own["finished_at"].max().timestamp() * 1000)
    assert _parent(uri).info.start_time == int(runs["started_at"].min().timestamp() * 1000)


def test_the_parent_tells_what_varied_what_is_best_and_where_it_comes_from(store: Store, uri: str) -> None:
    files = run(
        store, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "rate": {"min": 0.4, "max": 0.8, "points": 2}}
    ).files
    sync(files, uri)
    parent = _parent(uri)
    best = _table(files).groupby("cell_id")["loss"].mean().min()
    assert parent.data.metrics["best_loss"] == pytest.approx(best)
    note = parent.data.tags["mlflow.note.content"]
    assert "6 cells × 2 seeds" in note
    assert "| x | 0.0, 1.0, 2.0 |" in note
    assert "| rate | 0.4 … 0.8 (linear, 2 points) |" in note
    assert f"| 2 | 0.8 | [{best:.4g} ± " in note
    assert f"analysis.load({store.address!r}, 'bowls')" in note
    launch = files.launches()[-1]
    assert parent.data.tags["launch.versions.torch"] == launch["versions"]["torch"]
    assert parent.data.tags["launch.host"] == launch["host"]
    spec = _client(uri).download_artifacts(parent.info.run_id, "spec.yaml")
    assert Path(spec).read_text() == files.read_text("spec.yaml")


def test_syncing_twice_changes_nothing(files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    before = [run.to_dictionary() for run in _runs(uri)]
    assert sync(files, uri) == 0
    assert [run.to_dictionary() for run in _runs(uri)] == before


def test_more_seeds_replace_a_cell_and_more_values_add_to_it(store: Store, files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    old = {name: shown.info.run_id for name, shown in _nested(uri).items()}
    run(store, parameters={"x": {"values": [0.0, 1.0, 2.0, 4.0]}})
    assert sync(files, uri) == 1
    assert old.items() <= {name: shown.info.run_id for name, shown in _nested(uri).items()}.items()
    run(store, parameters={"x": {"values": [0.0, 1.0, 2.0, 4.0]}}, seeds=3)
    assert sync(files, uri) == 4
    nested = _nested(uri)
    assert {shown.data.tags["mislabel.seeds"] for shown in nested.values()} == {"3"}
    assert not set(old.values()) & {shown.info.run_id for shown in nested.values()}


def test_a_parameter_that_begins_to_vary_is_in_every_name(store: Store, files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    run(store, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "level": {"values": [1, 5]}})
    assert sync(files, uri) == 6
    assert set(_nested(uri)) == {f"x={x} level={level}" for x in (0, 1, 2) for level in (1, 5)}


def test_what_was_deleted_is_written_again(files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    values = {name: shown.data.metrics for name, shown in _nested(uri).items()}

    def restored(written: int) -> None:
        assert sync(files, uri) == written
        assert {name: shown.data.metrics for name, shown in _nested(uri).items()} == values
        assert sync(files, uri) == 0

    client = _client(uri)
    client.delete_run(_nested(uri)["x=1"].info.run_id)
    restored(1)
    client.delete_run(_parent(uri).info.run_id)
    restored(3)
    client.delete_experiment(client.get_experiment_by_name("bowls").experiment_id)
    restored(0)
    client.rename_experiment(client.get_experiment_by_name("bowls").experiment_id, "other")
    restored(3)


def test_artifacts_lie_beside_the_database(files: SweepFiles, uri: str, tmp_path: Path) -> None:
    other = tmp_path / "other folder"
    other.mkdir()
    shutil.copy(uri.removeprefix("sqlite:///"), other)
    assert sync(files, f"sqlite:///{other}/mlflow.db") == 3
    assert list(other.glob("mlartifacts/bowls/*/artifacts/spec.yaml"))


def test_a_write_that_was_cut_off_is_mended(files: SweepFiles, uri: str) -> None:
    written = []

    def cut_off() -> bool:
        written.append(1)
        return len(written) > 2

    with pytest.raises(MislabelError):
        View(files, uri).sync(True, cancelled=cut_off)
    unfinished = _nested(uri)
    assert len(unfinished) == 2
    _client(uri).delete_tag(unfinished["x=0"].info.run_id, "mislabel.digest")  # as if it had ended before its last word
    assert sync(files, uri) == 2
    assert set(_nested(uri)) == {"x=0", "x=1", "x=2"}


def test_a_cell_is_shown_when_all_its_seeds_have_ended_or_the_sweep_has(store: Store, uri: str) -> None:
    launch = prepared(store, resources={"pack": 1})
    order = launch.feed.next()
    assert order is not None
    record_failure(order, launch.files, "RuntimeError: the bowl broke\nsomewhere")
    assert sync(launch.files, uri, final=False) == 0
    assert _parent(uri).info.status == "RUNNING"
    assert sync(launch.files, uri, final=True) == 1
    (shown,) = _nested(uri).values()
    assert shown.info.status == "FAILED"
    assert shown.data.tags["mislabel.error"] == "RuntimeError: the bowl broke"
    assert _parent(uri).info.status == "FAILED"


def test_a_sweep_without_any_run_yet_has_its_page(store: Store, uri: str) -> None:
    files = prepared(store).files
    assert sync(files, uri, final=False) == 0
    assert _parent(uri).info.status == "RUNNING"
    assert _nested(uri) == {}


def test_runs_that_diverged_count_with_what_they_have(store: Store, uri: str) -> None:
    files = run(store, parameters={"x": 1.0, "trouble": {"values": [0, 2]}}).files
    sync(files, uri)
    nested = _nested(uri)
    assert nested["trouble=2"].data.tags["mislabel.status"] == "2 diverged"
    assert "loss" in nested["trouble=0"].data.metrics
    history = _client(uri).get_metric_history(nested["trouble=2"].info.run_id, "loss")
    assert history
    assert all(abs(point.value) < 1e6 for point in history)


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
    cut.write_results("part", {"runs": runs, "curves": pa.Table.from_pandas(curves, preserve_index=False)})
    sync(cut, uri)
    (shown,) = _nested(uri).values()
    losses = curves[curves["run_id"] == other].set_index("step")["loss"]
    start = curves[curves["step"] == 0]["loss"].mean()
    expected = {0: start} | {step: (losses[step] + last["loss"]) / 2 for step in (1, 2, 3)}
    history = _client(uri).get_metric_history(shown.info.run_id, "loss")
    assert {point.step: point.value for point in history} == pytest.approx(expected)


def test_cells_on_the_front_are_tagged_as_long_as_they_are_on_it(store: Store, uri: str) -> None:
    both = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
    space: dict[str, Any] = {"x": {"values": [0.0, 3.0]}, "rate": 1.0, "level": {"values": [1]}}

    def tagged() -> set[str]:
        return {name for name, shown in _nested(uri).items() if shown.data.tags.get("mislabel.front") == "yes"}

    sync(run(store, parameters=space, metric=both).files, uri)
    assert tagged() == {"x=0", "x=3"}
    assert (
        "Pareto front (minimize loss, maximize height): 2 of 2 cells" in _parent(uri).data.tags["mlflow.note.content"]
    )
    # The same with a greater height: the first two are beaten in one objective, and no better in the other.
    space["level"] = {"values": [1, 100]}
    files = run(store, parameters=space, metric=both).files
    sync(files, uri)
    means = analysis.load(store.address, "bowls").front()
    assert tagged() == {f"x={row['x']:g} level={row['level']}" for _, row in means.iterrows()}
    assert tagged() >= {"x=0 level=100", "x=3 level=100"}
    assert sync(files, uri) == 0


def test_cells_that_were_stopped_are_tagged_and_are_not_among_the_best(store: Store, uri: str) -> None:
    files = run(store, parameters={"x": {"values": [0.0, 1.0, 3.0]}}).files
    sweep = analysis.load(store.address, "bowls")
    best = sweep.read("runs", ["run_id"], {"x": 3})["run_id"].tolist()
    cut_short(files, best[:1], 1)
    sync(files, uri)
    nested = _nested(uri)
    assert nested["x=3"].data.tags["mislabel.stopped"] == "1"
    assert "mislabel.stopped" not in nested["x=1"].data.tags
    loss = sweep.cells("loss", where={"x": 1})["mean"].iloc[0]
    assert _parent(uri).data.metrics["best_loss"] == pytest.approx(loss)
    assert "| 3 |" not in _parent(uri).data.tags["mlflow.note.content"]


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
    means = _table(files).groupby("cell_id")["loss"].mean()
    for shown in _nested(uri).values():
        history = _client(uri).get_metric_history(shown.info.run_id, "loss")
        steps = sorted(point.step for point in history)
        assert len(steps) == 7
        assert (steps[0], steps[-1]) == (0, 60)
        assert shown.data.metrics["loss"] == pytest.approx(means[shown.data.tags["mislabel.cell"]])


def test_of_a_flat_stretch_only_the_ends_are_written() -> None:
    curves = pd.DataFrame({"accuracy": [0.5, 0.7, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]})
    finals = finals_of(pd.DataFrame({"accuracy": [1.0]}), ["accuracy"])
    points = [(p.step, p.value) for p in points_of(finals, curves, Span(0, 9, 9), most=50)]
    assert points == [(0, 0.5), (1, 0.7), (2, 0.9), (3, 1.0), (9, 1.0)]


def test_per_run_there_is_a_nested_run_for_every_run(store: Store, uri: str) -> None:
    files = run(store, track={"per": "run"}).files
    assert sync(files, uri) == 6
    nested = _nested(uri)
    assert set(nested) == {f"x={x} seed={seed}" for x in (0, 1, 2) for seed in (0, 1)}
    runs = _table(files).set_index("run_id")
    for shown in nested.values():
        assert shown.data.metrics["loss"] == pytest.approx(runs.loc[shown.data.tags["mislabel.run"], "loss"])
        assert "loss_std" not in shown.data.metrics
        assert shown.data.params["seed"] == shown.info.run_name[-1]


def test_another_choice_of_nested_runs_replaces_the_first(store: Store, files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    sync(run(store, track={"per": "run"}).files, uri)
    assert len(_nested(uri)) == 6
    sync(run(store, track={"per": "none"}).files, uri)
    assert _nested(uri) == {}
    assert _parent(uri).data.metrics["runs_done"] == 6


def test_sweeps_of_one_name_in_two_stores_leave_each_other_alone(files: SweepFiles, uri: str, tmp_path: Path) -> None:
    sync(files, uri)
    others = run(Store(str(tmp_path / "other")), parameters={"x": {"values": [5.0]}}).files
    assert sync(others, uri) == 1
    assert sync(files, uri) == 0
    assert len(_runs(uri)) == 4 + 2


def test_the_saved_view_lists_what_varies_and_ranks_by_the_objective(files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    tag = _client(uri).get_experiment_by_name("bowls").tags["mlflow.sharedViewState.cells"]
    view = json.loads(tag)
    state = json.loads(zlib.decompress(base64.b64decode(view["state"].removeprefix("deflate;"))))
    assert state["selectedColumns"][:3] == ["params.`x`", "metrics.`loss`", "metrics.`loss_std`"]
    assert (state["orderByKey"], state["orderByAsc"]) == ("metrics.`loss`", True)
    found = _client(uri).search_runs(["1"], state["searchFilter"], order_by=["metrics.`loss` ASC"])
    assert [shown.info.run_name for shown in found] == ["x=2", "x=1", "x=0"]


def test_a_real_task_is_shown(store: Store, uri: str) -> None:
    sizes = {"samples": 16, "dim": 4, "width": 8, "test_samples": 16, "steps": 20, "frames": 5}
    files = run(
        store,
        name="xor",
        task="xor_clusters",
        metric={"name": "test_accuracy", "goal": "maximize"},
        parameters={**sizes, "noise_rate": {"values": [0.0, 0.25]}},
    ).files
    assert sync(files, uri) == 2
    means = _table(files).groupby("noise_rate")["test_accuracy"].mean()
    for rate, shown in zip(
        (0.0, 0.25), (_nested(uri, "xor")[name] for name in ("noise_rate=0", "noise_rate=0.25")), strict=True
    ):
        assert shown.data.metrics["test_accuracy"] == pytest.approx(means[rate])
        assert shown.data.params["dim"] == "4"


def test_making_the_database_says_nothing(store: Store, files: SweepFiles, uri: str) -> None:
    Path(uri.removeprefix("sqlite:///")).unlink()
    code = (
        "import sys; from sweeps.store import Store; from cluster.mlflow_view import sync\n"
        "sync(Store(sys.argv[1]).sweep('bowls'), sys.argv[2])"
    )
    done = subprocess.run([sys.executable, "-c", code, store.address, uri], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert len(_nested(uri)) == _table(files)["cell_id"].nunique()


def test_a_running_sweep_is_followed_to_its_end(store: Store, uri: str) -> None:
    launch = prepared(store)
    said: list[str] = []
    with following(launch.files, uri, said.append, every_seconds=0.1):
        run_inline(launch.feed, launch.files, CPU, lambda: None)
        _wait_for(lambda: _client(uri).get_experiment_by_name("bowls") is not None)
        launch.finish()
    assert [text for text in said if not text.startswith("writing")] == []
    assert set(_nested(uri)) == {"x=0", "x=1", "x=2"}
    assert _parent(uri).info.status == "FINISHED"


def test_a_server_that_is_down_is_told_once_and_the_sweep_goes_on(store: Store) -> None:
    launch = prepared(store)
    said: list[str] = []
    address = f"http://127.0.0.1:{_free_port()}"
    with following(launch.files, address, said.append, every_seconds=0.05):
        run_inline(launch.feed, launch.files, CPU, lambda: None)
        launch.finish()
        _wait_for(lambda: bool(said))
        time.sleep(1)
    assert said[0].startswith(f"MLflow at {address}: can't be reached; the sweep goes on")
    assert said[-1] == "MLflow does not show all of bowls yet; `mislabel sync bowls` completes it"
    assert [text for text in said[1:-1] if not text.startswith("writing")] == []
    assert len(_table(launch.files)) == 6
    with pytest.raises(MislabelError, match="can't be reached"):
        sync(launch.files, address)


def test_leaving_a_sweep_waits_for_mlflow_only_so_long(store: Store, uri: str) -> None:
    launch = prepared(store)
    said: list[str] = []
    began = time.monotonic()
    with following(launch.files, uri, said.append, last_seconds=0.2):
        pass
    assert time.monotonic() - began < 2
    assert said[-1] == "MLflow does not show all of bowls yet; `mislabel sync bowls` completes it"


def test_a_sweep_that_is_all_there_is_left_at_once(store: Store, files: SweepFiles, uri: str) -> None:
    sync(files, uri)
    said: list[str] = []
    with following(files, uri, said.append, last_seconds=0):
        pass
    assert said == []
    Path(uri.removeprefix("sqlite:///")).unlink()
    with following(files, uri, said.append, last_seconds=0):
        pass
    assert said == ["MLflow does not show all of bowls yet; `mislabel sync bowls` completes it"]


def test_an_error_of_the_sweep_is_not_lost_in_the_view(store: Store) -> None:
    files = prepared(store).files
    with (
        pytest.raises(ZeroDivisionError),
        following(files, f"http://127.0.0.1:{_free_port()}", lambda text: None, last_seconds=0.1),
    ):
        raise ZeroDivisionError


def test_the_follower_ends_with_the_sweeps_process(store: Store, uri: str) -> None:
    files = prepared(store).files
    command = [sys.executable, "-m", "cluster.mlflow_follower", store.address, files.name, "60"]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri}
    follower = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    follower.communicate(timeout=30)  # closes its stdin, as the end of this process would
    assert follower.returncode == 1


def test_without_an_address_there_is_no_view(store: Store) -> None:
    with following(prepared(store).files, None, pytest.fail):
        pass


def test_a_password_in_the_address_is_not_shown(files: SweepFiles) -> None:
    with pytest.raises(MislabelError) as caught:
        sync(files, f"http://me:secret@127.0.0.1:{_free_port()}")
    assert "secret" not in str(caught.value)


def test_a_server_shows_what_a_database_shows(files: SweepFiles, uri: str, server: str) -> None:
    sync(files, uri)
    assert sync(files, server) == 3
    assert sync(files, server) == 0
    assert {name: shown.data.metrics for name, shown in _nested(server).items()} == {
        name: shown.data.metrics for name, shown in _nested(uri).items()
    }
    assert _client(server).list_artifacts(_parent(server).info.run_id)[0].path == "spec.yaml"


@pytest.fixture
def server(tmp_path: Path, empty_database: Path) -> Iterator[str]:
    """A real MLflow server on a port of this machine."""
    folder = tmp_path / "server"
    folder.mkdir()
    shutil.copy(empty_database, folder)
    port = _free_port()
    storage = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "files")]
    command = [sys.executable, "-m", "mlflow", "server", *storage, "--port", str(port), "--workers", "1"]
    faster = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, env={**os.environ, **faster}, start_new_session=True
        )
    try:
        _wait_for(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the server's own processes with it
        process.wait()


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
