"""Sweeps on a real Ray on this machine: same numbers as inline, and packs that survive their workers."""

import platform
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import ray
import torch

import mislabel
from mislabel.cluster.process import descendants
from mislabel.cluster.tune.capacity import worker_memory_bytes, worker_slots
from mislabel.cluster.tune.runner import connected, run_on_ray
from mislabel.cluster.tune.stopper_actor import remote_stopper
from mislabel.cluster.tune.trainable import device_from_ray
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import MislabelError, UnreachableError
from mislabel.sweeps.process import Process
from mislabel.sweeps.run.launch import Launch, Machine, prepare, run_inline
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.spec.model import Resources
from mislabel.sweeps.stopping.stopper import Entry, StoredRun
from mislabel.sweeps.store.outcome import INTERRUPTED, Status
from mislabel.sweeps.store.store import Store
from mislabel.tasks.data.images import keep
from tests.bowls import bowl_values
from tests.cluster.heads import title_of
from tests.pace import Pace

pytestmark = [
    pytest.mark.ray,
    # Ray leaves sockets and files to the end of the process.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
LINEAR: dict[str, Any] = {
    "name": "linear",
    "task": "label_noise_sgd.linear",
    "metric": {"name": "test_loss", "goal": "minimize"},
    "parameters": {
        "samples": 50,
        "dim": 10,
        "width": 16,
        "steps": 400,
        "frames": 6,
        "sigma": {"values": [0.1, 0.5, 1.0]},
    },
    "seeds": 4,
}
# Two packs, which end when the test lets them.
BOWLS = bowl_values(
    parameters={"x": {"values": [0.0, 1.0, 2.0]}, "steps": 2000}, seeds=4, resources={"cpu": 0.5, "pack": 6}
)


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    with connected(None):
        yield


def _launched(values: dict[str, Any], store: Store, workers: int = 2) -> Launch:
    spec, task = checked_spec(Document("test", values))
    return prepare(spec, task, store).start(Machine(workers, 1 << 30, torch.device("cpu")))


def _on_ray(values: dict[str, Any], store: Store, show: Callable[[Launch], None] = lambda launch: None) -> Launch:
    launch = _launched(values, store)
    run_on_ray(launch.driver, store, launch.plan.spec.resources, 2, lambda: show(launch))
    launch.finish()
    return launch


def _inline(values: dict[str, Any], store: Store) -> Launch:
    torch.set_num_threads(1)
    launch = _launched(values, store, workers=1)
    run_inline(launch.driver, launch.files, torch.device("cpu"), lambda: None)
    launch.finish()
    return launch


def _metrics(store: Store, name: str) -> pd.DataFrame:
    sweep = mislabel.load(store.address, name)
    return sweep.runs.set_index("run_id").sort_index()[["status", "step", *sweep.metrics]]


DOTS: dict[str, Any] = {
    "name": "dots",
    "task": "clean_priority.images",
    "parameters": {
        "data": "images/dots", "classes": "", "width": 8, "batch": 10, "noise_rate": 0.3, "steps": 4, "frames": 2,
    },
    "seeds": 2,
}  # fmt: skip


def _keep_dots(folder: Path) -> None:
    """Store random dots; no two calls give the same."""
    x, y = torch.randint(256, (40, 1, 8, 8), dtype=torch.uint8), torch.arange(40) % 2
    keep("images/dots", (x, y), (x, y), ["few", "many"], folder)


def test_a_ray_that_does_not_start_in_time_is_reported_as_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray itself raises a plain Exception for this."""

    def timed_out(*arguments: Any, **options: Any) -> None:
        raise Exception("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", timed_out)
    with pytest.raises(UnreachableError, match="on this machine"), connected(None):
        pass
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:9"), connected("127.0.0.1:9"):
        pass


def test_workers_use_the_data_folder_of_the_driver(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray was started before the folder was chosen, as a cluster is."""
    _keep_dots(tmp_path / "data")
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path / "data"))
    launch = _on_ray(DOTS, Store(str(tmp_path / "store")))
    assert launch.driver.progress.statuses == {"done": 2}, launch.driver.errors


def test_workers_refuse_data_that_differ_from_the_drivers(
    local_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _keep_dots(tmp_path / "data")
    monkeypatch.setenv("MISLABEL_DATA", str(tmp_path / "data"))
    store = Store(str(tmp_path / "store"))
    launch = _launched(DOTS, store)
    _keep_dots(tmp_path / "data")
    run_on_ray(launch.driver, store, launch.plan.spec.resources, 2, lambda: None)
    launch.finish()
    errors = store.sweep("dots").read("runs", ["error"])["error"].to_pylist()
    assert launch.driver.progress.statuses == {"failed": 2}
    assert all(f"on {platform.node()}, images/dots has other contents" in error for error in errors), errors


def test_a_run_has_the_same_metrics_inline_on_ray_alone_and_packed(local_ray: None, tmp_path: Path) -> None:
    stores = [Store(str(tmp_path / name)) for name in ("ray", "inline", "alone")]
    _on_ray(LINEAR, stores[0])
    _inline({**LINEAR, "resources": {"pack": 12}}, stores[1])
    _inline({**LINEAR, "resources": {"pack": 1}}, stores[2])
    on_ray, inline, alone = (_metrics(store, "linear") for store in stores)
    assert len(on_ray) == 12
    pd.testing.assert_frame_equal(on_ray, inline, rtol=1e-4, atol=1e-6)
    pd.testing.assert_frame_equal(alone, inline, rtol=1e-4, atol=1e-6)


def test_a_pack_whose_worker_is_killed_is_resumed_by_another(
    local_ray: None, tmp_path: Path, pace: Pace, messages: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    pace.hold()
    killed: list[Process] = []

    def kill_one(launch: Launch) -> None:
        if not killed and launch.driver.progress.steps_done:
            killed.append(_a_worker())
            killed[0].send(signal.SIGKILL)
            pace.release()

    store = Store(str(tmp_path / "ray"))
    launch = _on_ray(BOWLS, store, kill_one)
    assert killed
    assert launch.driver.progress.statuses == {"done": 12}
    (death,) = [text for text in messages if "its worker died" in text]
    assert death.endswith("restarting it, 1 of 5")
    assert "Traceback" not in "".join(capfd.readouterr())
    _inline(BOWLS, Store(str(tmp_path / "inline")))
    pd.testing.assert_frame_equal(_metrics(store, "bowls"), _metrics(Store(str(tmp_path / "inline")), "bowls"))


def _a_worker() -> Process:
    """The process of an actor that this test's own Ray started: Ray names it after what it runs."""
    return next(process for process in descendants([Process.own()]) if "Trainable" in title_of(process))


def test_a_search_on_ray_asks_and_tells_until_its_budget_of_cells_is_used(local_ray: None, tmp_path: Path) -> None:
    values = {
        **LINEAR,
        "name": "search",
        "method": {"name": "tpe", "startup": 4},
        "parameters": {**LINEAR["parameters"], "sigma": {"min": 0.0, "max": 2.0}},
        "budget": {"cells": 12},
        "seeds": 2,
    }
    launch = _on_ray(values, Store(str(tmp_path)))
    assert launch.driver.progress.statuses == {"done": 24}
    assert mislabel.load(str(tmp_path), "search").runs["cell_id"].nunique() == 12


HALVED: dict[str, Any] = {
    **LINEAR,
    "name": "halved",
    "parameters": {**LINEAR["parameters"], "steps": 8000, "frames": 20, "sigma": {"min": 0.1, "max": 2.0, "points": 9}},
    "early_terminate": {"type": "asha", "min_steps": 500, "eta": 3},
    "resources": {"pack": 12},
}


def _assert_halved(launch: Launch, store: Store) -> None:
    sweep = mislabel.load(store.address, "halved")
    runs = sweep.runs
    assert len(runs) == runs["run_id"].nunique() == 36
    assert launch.driver.progress.statuses == runs["status"].value_counts().to_dict()
    assert {"done", "stopped"} == set(runs["status"])
    assert launch.driver.progress.steps_done == runs["step"].sum() < 36 * 8000 / 2
    last = sweep.curves.groupby("run_id")["step"].max()
    assert (last.reindex(runs["run_id"]).to_numpy() == runs["step"]).all()


def test_runs_are_stopped_early_on_ray(local_ray: None, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    _assert_halved(_on_ray(HALVED, store), store)


def test_two_sweeps_on_one_ray_have_separate_stoppers(local_ray: None, tmp_path: Path) -> None:
    launches = [_launched(HALVED, Store(str(tmp_path / name))) for name in ("one", "two")]
    with remote_stopper(launches[0].driver.stopper) as near, remote_stopper(launches[1].driver.stopper) as far:
        assert near is not None
        assert far is not None
        runs = [Entry(f"c{i}", 0) for i in range(3)]
        assert near.decide(500, runs, [1.0, 2.0, 3.0]) == [False, True, True]
        assert far.decide(500, runs[2:], [3.0]) == [False]
    assert near.decide(500, runs, [1.0, 2.0, 3.0]) == [False] * 3, "a stopper that can't be reached stops no run"


def test_runs_that_a_search_copies_on_ray_are_not_trained_and_reach_the_stopper(
    local_ray: None, tmp_path: Path
) -> None:
    """With a larger budget, the search then trains one more cell."""
    store = Store(str(tmp_path))
    search = {
        "method": {"name": "tpe", "startup": 9}, "budget": {"cells": 8}, "seeds": 2,
        "parameters": {"x": {"min": 0, "max": 6}, "steps": 30, "frames": 11, "spacing": "linear", "rate": 0.1},
    }  # fmt: skip
    rule = {"type": "asha", "min_steps": 3, "eta": 2}
    first = _on_ray(bowl_values(name="first", **search), store)
    second = _on_ray(bowl_values(name="second", early_terminate=rule, **search), store)
    assert second.driver.progress.steps_done == 0
    cells = set(second.files.read("runs", ["cell_id"])["cell_id"].to_pylist())
    assert cells == set(first.files.read("runs", ["cell_id"])["cell_id"].to_pylist())
    third = _on_ray(bowl_values(name="second", early_terminate=rule, **{**search, "budget": {"cells": 9}}), store)
    assert sum(third.driver.progress.statuses.values()) == 2


def test_a_stopper_on_ray_learns_from_stored_runs(local_ray: None, tmp_path: Path) -> None:
    launch = _launched(HALVED, Store(str(tmp_path)))
    with remote_stopper(launch.driver.stopper) as stopper:
        assert stopper is not None
        stored = [StoredRun(Entry(f"c{i}", 0), Status.DONE, 1000, {500: float(i)}) for i in range(3)]
        stopper.learn(stored)
        assert stopper.decide(500, [Entry("c4", 0)], [4.0]) == [True]
        assert stopper.decide(500, [Entry("c2", 1)], [4.0]) == [False], "another seed was trained to the end"


def test_a_sweep_that_is_stopped_on_ray_leaves_checkpoints_and_continues(
    local_ray: None, tmp_path: Path, pace: Pace
) -> None:
    store = Store(str(tmp_path))
    pace.hold()

    def stop(launch: Launch) -> None:
        if launch.driver.progress.running == 12 and launch.driver.progress.steps_done:
            launch.driver.stop(INTERRUPTED)
            launch.heartbeat.beat()

    first = _on_ray(BOWLS, store, stop)
    assert first.driver.stop_reason == INTERRUPTED
    assert len(list(first.files.checkpoints())) == 2
    pace.release()
    second = _on_ray(BOWLS, store)
    assert len(second.plan.resumed) == 2
    assert second.driver.progress.statuses == {"done": 12}
    assert second.driver.progress.steps_done < 12 * 2000, "checkpoints saved steps"


def test_resources_that_the_cluster_does_not_have_are_refused(local_ray: None) -> None:
    with pytest.raises(MislabelError, match=r"^resources: .* 1 CPU and 1 GPU.* 0 GPU"):
        worker_slots(Resources(gpu=1.0))
    assert worker_slots(Resources(cpu=1.0)) == ray.cluster_resources()["CPU"]
    assert worker_memory_bytes(Resources(cpu=1.0)) > 1 << 28


def test_outside_of_an_actor_with_a_gpu_the_device_is_the_cpu(local_ray: None) -> None:
    assert device_from_ray() == torch.device("cpu")
