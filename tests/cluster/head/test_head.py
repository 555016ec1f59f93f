"""A cluster on this machine, from up to down: sweeps sent to it, watched, shared, stopped, killed and continued."""

import base64
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pandas as pd
import pytest
from PIL import Image

from mislabel.cluster.process import descendants
from mislabel.cluster.queue.queue import Queue
from mislabel.sweeps.process import Process
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_values, curves_of, run, runs_of
from tests.cluster.heads import Head, head, until

pytestmark = pytest.mark.ray
# Two packs each. Rough bowls are held.
LONG: dict[str, Any] = {
    "name": "long", "parameters": {"surface": "rough", "x": {"values": [0.0, 1.0]}, "steps": 2000}, "seeds": 4,
}  # fmt: skip
SHORT: dict[str, Any] = {"name": "short", "parameters": {"x": {"values": [1.0, 2.0]}}, "seeds": 4}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Head]:
    with head(tmp_path_factory.mktemp("cluster"), "--cpus", "2", "--sweeps", "2", "--data", "data") as made:
        yield made


def assert_same_as_inline(cluster: Head, values: dict[str, Any], folder: Path) -> None:
    """Value for value."""
    name = values["name"]
    undisturbed = run(Store(str(folder / name)), **values).files
    sweep = Store(cluster.state.store).sweep(name)
    pd.testing.assert_frame_equal(runs_of(sweep), runs_of(undisturbed), check_exact=True)
    pd.testing.assert_frame_equal(curves_of(sweep), curves_of(undisturbed), check_exact=True)


def answered(url: str, secret: str | None, user: str | None = None) -> int:
    """The status of the answer to a request with this token, or with this user's password."""
    word = base64.b64encode(f"{user}:{secret}".encode()).decode()
    authorization = f"Bearer {secret}" if user is None else f"Basic {word}"
    request = urllib.request.Request(url, headers={} if secret is None else {"Authorization": authorization})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_second_one_is_not_started(cluster: Head) -> None:
    said = cluster.mislabel("cluster", "up", code=2).stderr
    assert cluster.state.jobs in said


def test_who_has_no_token_is_refused(cluster: Head) -> None:
    token = cluster.folder.token.read_text()
    for path in ("/api/jobs/", "/api/version", "/nodes?view=summary"):
        url = f"{cluster.state.jobs}{path}"
        assert answered(url, None) == 401
        assert answered(url, "0" * 64) == 403
        assert answered(url, token) == 200
    wrong = cluster.work / "wrong"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    said = cluster.mislabel("list", "--cluster", cluster.state.jobs, "--token-file", str(wrong), code=2)
    assert "refuses this token" in said.stderr


def test_rays_own_server_refuses_who_has_no_token(cluster: Head) -> None:
    """What a driver or a node would ask first."""

    def ask(token: str | None) -> grpc.StatusCode:
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        with grpc.insecure_channel(cluster.state.ray) as channel:
            try:
                channel.unary_unary("/ray.rpc.NodeInfoGcsService/GetAllNodeInfo")(b"", metadata=metadata, timeout=60)
            except grpc.RpcError as error:
                return error.code()
        return grpc.StatusCode.OK

    assert ask(None) is grpc.StatusCode.UNAUTHENTICATED
    assert ask("0" * 64) is grpc.StatusCode.UNAUTHENTICATED
    assert ask(cluster.folder.token.read_text()) is grpc.StatusCode.OK


def test_the_token_is_nowhere_to_be_seen(cluster: Head) -> None:
    token = cluster.folder.token.read_text()
    family = [*cluster.state.processes.values()]
    for process in [*family, *descendants(family)]:
        assert token not in Path(f"/proc/{process.pid}/cmdline").read_text(errors="replace")
    said = [*cluster.folder.logs.iterdir(), cluster.folder.state, *Path(cluster.state.ray_folder).rglob("*.log")]
    said += [*Path(cluster.state.ray_folder).rglob("*.out"), *Path(cluster.state.ray_folder).rglob("*.err")]
    assert len(said) > 5
    assert not [path for path in said if path.is_file() and token in path.read_text(errors="replace")]


@pytest.mark.slow
def test_sweeps_share_the_cluster_and_survive_what_is_done_to_them(cluster: Head, tmp_path: Path) -> None:
    """One makes room for another, loses its driver, is stopped and goes on: its tables are those of a quiet run."""
    cluster.pace.hold("rough")
    long = cluster.write_spec(**bowl_values(**LONG))
    first = cluster.submit(long, "--owner", "ann")
    shown = cluster.mislabel("status", "long").stdout.split()[:4]
    assert shown in (["sweep", "long", "state", "starting"], ["sweep", "long", "state", "running"])
    assert first in cluster.mislabel("submit", long, code=2).stderr
    until(lambda: cluster.progress("long").get("running") == 8, 120, lambda: cluster.jobs.logs(first))

    second = cluster.submit(cluster.write_spec(**bowl_values(**SHORT)), "--owner", "ben")
    assert cluster.wait(second) == 0, cluster.jobs.logs(second)
    assert not cluster.jobs.get(first).ended, "the short one did not have to wait for the long one"
    listed = cluster.client("list").stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["long", "running"], ["short", "done"]]

    (ticket,) = [each for each in Queue(cluster.folder.queue).tickets() if each.sweep == "long"]
    assert ticket.process is not None
    driver = next(
        process for process in descendants([ticket.process]) if process.pid == cluster.progress("long")["pid"]
    )
    os.kill(driver.pid, signal.SIGKILL)
    until(lambda: "restarting it from the store" in cluster.jobs.logs(first), 120)
    until(lambda: cluster.progress("long").get("pid") not in (None, driver.pid), 180, lambda: cluster.jobs.logs(first))

    assert "long: stopping" in cluster.client("stop", "long").stderr
    assert cluster.wait(first) == 130, cluster.jobs.logs(first)
    assert cluster.progress("long")["state"] == "stopped"
    assert 0 < cluster.progress("long")["runs"] == 8 != cluster.progress("long")["done"]
    assert list(Path(cluster.state.store).glob("long/checkpoints/*.pt"))

    cluster.pace.release()
    again = cluster.mislabel("submit", long, "--wait")
    assert "from a checkpoint" in again.stdout
    assert_same_as_inline(cluster, bowl_values(**LONG), tmp_path)
    assert_same_as_inline(cluster, bowl_values(**SHORT), tmp_path)


def test_a_sweep_that_waits_can_be_told_to_leave_and_one_that_runs_can_be_cancelled(cluster: Head) -> None:
    cluster.pace.hold()
    endless = {"parameters": {"x": {"values": [0.0, 1.0]}, "steps": 2000}}
    jobs = {
        name: cluster.submit(cluster.write_spec(**bowl_values(name=name, **endless)), "--owner", "ann")
        for name in ("one", "two", "three")
    }
    queue = Queue(cluster.folder.queue)
    until(lambda: len(queue.tickets()) == 3 and sum(ticket.runs for ticket in queue.tickets()) == 2, 180)
    assert "queued, 0 ahead of it" in cluster.client("status", "three").stdout
    assert "three waits in the queue, 0 ahead of it" in cluster.client("logs", "three").stdout
    assert "three: removed" in cluster.mislabel("stop", "three").stderr
    assert cluster.wait(jobs["three"]) == 130
    for name in ("one", "two"):
        assert f"{name}: cancelled" in cluster.client("cancel", name).stderr
        until(lambda name=name: cluster.jobs.get(jobs[name]).status == "STOPPED", 120)  # type: ignore[misc]
    until(lambda: not queue.tickets(), 120)
    cluster.pace.release()
    assert "'one' is not a sweep that is running or waiting" in cluster.client("cancel", "one", code=2).stderr


def test_runs_that_failed_are_tried_again_when_asked_for_and_mlflow_shows_the_sweep(cluster: Head) -> None:
    broken = {"name": "broken", "parameters": {"trouble": {"values": [0, 1]}}, "seeds": 1, "resources": {"pack": 1}}
    spec = cluster.write_spec(**bowl_values(**broken))
    assert cluster.mislabel("submit", spec, "--wait", code=1).stdout.count("failed: ") == 1
    said = cluster.client("retry", "broken", "--failed", "--wait", code=1).stdout
    assert "broken: 2 cells × 1 seed = 2 runs, 1 in the store already" in said
    runs = Store(cluster.state.store).sweep("broken").read("runs").to_pandas()
    assert sorted(zip(runs["status"], runs["attempt"], strict=True)) == [("done", 1), ("failed", 2)]
    url = f"{cluster.state.mlflow}/api/2.0/mlflow/experiments/get-by-name?experiment_name=broken"
    assert answered(url, None) == 401
    assert answered(url, cluster.folder.mlflow_password.read_text(), "admin") == 200


def test_the_status_shows_machines_sweeps_and_servers(cluster: Head) -> None:
    told = json.loads(cluster.client("cluster", "status", "--json").stdout)
    (node,) = told["nodes"]
    assert (node["head"], node["alive"], node["cpus"], node["gpus"]) == (True, True, 2, 0)
    assert node["versions"] == told["versions"] == cluster.state.versions
    assert (told["mlflow_answers"], told["differing"], told["at_once"]) == (True, {}, 2)
    assert told["store"] == str(cluster.work / "results")


def test_sweeps_find_data_in_the_folder_that_the_cluster_was_started_with(cluster: Head) -> None:
    for shade, colour in (("dark", 20), ("light", 220)):
        folder = cluster.work / "shades" / shade
        folder.mkdir(parents=True)
        for number in range(8):
            Image.new("L", (4, 4), colour + number).save(folder / f"{number}.png")
    cluster.mislabel("data", "get", "images/shades", "--from", "shades", "--size", "4", "--folder", "data")
    parameters = {"data": "images/shades", "classes": "", "width": 4, "batch": 4, "steps": 2, "frames": 2}
    spec = cluster.write_spec(name="shades", task="clean_priority.images", parameters=parameters, seeds=1)
    job = cluster.submit(spec)
    assert cluster.wait(job) == 0, cluster.jobs.logs(job)
    assert runs_of(Store(cluster.state.store).sweep("shades"))["status"].tolist() == ["done"]


def test_leftovers_of_a_crash_are_recognised_and_after_down_no_process_is_left(cluster: Head) -> None:
    """The last one: it ends the cluster."""
    family = [*cluster.state.processes.values()]
    family += descendants(family)
    folder = cluster.state.ray_folder
    assert len(family) > 6
    os.kill(cluster.state.processes["mlflow"].pid, signal.SIGKILL)
    until(lambda: cluster.state.dead() == ["mlflow"], 60)
    assert "the cluster is down" in cluster.mislabel("cluster", "down").stderr
    assert [process for process in family if process.lives] == []
    assert [pid for pid in _naming(folder) if Process.of(pid)] == []
    assert not cluster.folder.state.exists()
    assert not cluster.folder.token.exists()
    assert not Path(folder).exists()
    assert "no cluster runs on this machine" in cluster.mislabel("cluster", "down").stderr


def _naming(folder: str) -> list[int]:
    """Processes on whose command line the folder stands."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder in path.read_text(errors="replace"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
