"""A cluster of three machines, used from a fourth: two of them and a driver are lost, and no result is."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from mislabel.cluster.head_state import Folder, State, read_state
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import bowl_values, curves_of, run, runs_of
from tests.cluster.heads import MISLABEL, until
from tests.cluster.hosts import Host, hosts, reason_against_hosts

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.faults]
CUT_SECONDS = 30.0
RUNS = 24
PARAMETERS = {"x": {"values": [0.0, 1.0, 2.0, 4.0, 5.0, 6.0]}, "steps": 400, "frames": 9, "snapshots": 3}
# Each sweep has six packs. Those of the first sweep can only run on the host with the GPU. The sweeps have different
# surfaces, so that the test can slow down one of them.
SURFACES = {"shiny": "smooth", "plain": "rough"}
SWEEPS: dict[str, dict[str, Any]] = {
    "shiny": bowl_values(
        name="shiny", parameters={**PARAMETERS, "surface": SURFACES["shiny"]}, seeds=4,
        resources={"cpu": 0.5, "gpu": 0.5, "pack": 4},
    ),
    "plain": bowl_values(
        name="plain", method={"name": "random", "seed": 5}, budget={"cells": 6}, seeds={"count": 4, "first": 10},
        parameters={**PARAMETERS, "surface": SURFACES["plain"], "x": {"min": -4.0, "max": 4.0}},
        resources={"cpu": 0.5, "pack": 4},
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cluster:
    head: Host
    gpu: Host
    cpu: Host
    client: Host

    @property
    def state(self) -> State:
        state = read_state(Folder(self.head.folder / "cluster"))
        assert state is not None
        return state

    @property
    def password(self) -> str:
        """Of MLflow's user."""
        return (self.head.folder / "cluster" / "mlflow-password").read_text()

    @property
    def store(self) -> Store:
        return Store(self.state.store)

    @property
    def access(self) -> list[str]:
        """What a client knows of the cluster."""
        return ["--cluster", self.state.jobs, "--token-file", str(self.client.folder / "token")]

    def join(self, host: Host, *words: str) -> "subprocess.Popen[bytes]":
        at = ["cluster", "join", self.state.jobs, "--token-file", str(host.folder / "token"), "--host", host.address]
        return host.start(MISLABEL, *at, *words)

    def submit(self, sweep: str) -> None:
        spec = self.client.folder / f"{sweep}.yaml"
        spec.write_text(yaml.safe_dump(SWEEPS[sweep]))
        self.client.mislabel("submit", spec.name, *self.access)

    def asked(self, *words: str) -> Any:
        return json.loads(self.client.mislabel(*words, "--json", *self.access).stdout)

    def logs(self, sweep: str) -> str:
        said = self.client.mislabel("logs", sweep, *self.access, code=None)
        return said.stdout + said.stderr

    def said(self) -> str:
        """What all have said, where something went wrong."""
        told = [host.log.read_text() for host in (self.gpu, self.cpu) if host.log.exists()]
        return "\n".join([*told, *(self.logs(sweep) for sweep in SWEEPS)])

    def machines(self) -> list[tuple[float, float]]:
        """CPUs and GPUs of each."""
        nodes = self.asked("cluster", "status")["nodes"]
        return sorted((node["cpus"], node["gpus"]) for node in nodes if node["alive"])

    def done(self, sweep: str) -> int:
        return int(self.progress(sweep).get("done", 0))

    def have_begun(self) -> bool:
        """Whether runs of both sweeps have ended. The other runs of such a sweep take longer than this test."""
        begun = [sweep for sweep in SWEEPS if self.done(sweep) >= 4]
        for sweep in begun:
            self.head.pace.take_for_a_step(2.5, SURFACES[sweep])
        return len(begun) == len(SWEEPS)

    def progress(self, sweep: str) -> dict[str, Any]:
        return self.store.sweep(sweep).progress()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head that trains nothing itself, and two hosts that have joined it."""
    if reason := reason_against_hosts():
        pytest.skip(reason)
    with hosts(tmp_path_factory.mktemp("hosts"), ["head", "gpu-host", "cpu-host", "client"]) as made:
        cluster = Cluster(*made.values())
        head = cluster.head
        head.pace.take_for_a_step(0.05)
        head.mislabel(
            "cluster", "up", "--host", head.address, "--store", str(head.shared / "store"), "--cpus", "0", "--gpus", "0"
        )
        for host in (cluster.gpu, cluster.cpu, cluster.client):
            shutil.copy(head.folder / "cluster" / "token", host.folder / "token")
        yield cluster


def test_of_hosts_nothing_is_left_even_where_their_test_was_killed(tmp_path: Path) -> None:
    if reason := reason_against_hosts():
        pytest.skip(reason)
    killed = subprocess.Popen(["true"])
    killed.wait()
    leftover = f"mislabel-{killed.pid}-head"
    subprocess.run(["ip", "netns", "add", leftover], check=True)
    forgotten = subprocess.Popen(["ip", "netns", "exec", leftover, "sleep", "600"])
    try:
        with hosts(tmp_path, ["one", "two"]) as made:
            assert forgotten.wait(60) == -signal.SIGKILL
            one, two = made.values()
            server = one.start(sys.executable, "-m", "http.server", "--bind", one.address)
            until(lambda: two.status_of(f"http://{one.address}:8000/") == 200, 60, one.log.read_text)
            assert two.run("cat", "/proc/sys/kernel/hostname").stdout == "two\n"
            assert one.trains() is False
            two.cut_off()
            assert two.status_of(f"http://{one.address}:8000/", "--connect-timeout", "1") == 0
            two.connect()
            assert two.status_of(f"http://{one.address}:8000/") == 200
            spaces = subprocess.check_output(["ip", "netns", "list"], text=True)
            assert leftover not in spaces
            assert one.space in spaces
        assert server.returncode == -signal.SIGKILL
        assert one.space not in subprocess.check_output(["ip", "netns", "list"], text=True)
    finally:
        forgotten.kill()
        forgotten.wait()


def test_who_has_no_token_and_no_password_is_refused(cluster: Cluster) -> None:
    state, client = cluster.state, cluster.client
    token = (client.folder / "token").read_text()
    assert client.status_of(f"{state.jobs}/api/jobs/") == 401
    assert client.status_of(f"{state.jobs}/api/jobs/", "--header", f"Authorization: Bearer {'0' * 64}") == 403
    assert client.status_of(f"{state.jobs}/api/jobs/", "--header", f"Authorization: Bearer {token}") == 200
    experiments = f"{state.mlflow}/api/2.0/mlflow/experiments/search?max_results=5"
    assert client.status_of(experiments) == 401
    assert client.status_of(experiments, "--user", "admin:password1234") == 401
    assert client.status_of(experiments, "--user", f"admin:{cluster.password}") == 200

    wrong = client.folder / "wrong"
    wrong.write_text("0" * 64)
    wrong.chmod(0o600)
    for words in (["cluster", "join", state.jobs], ["list", "--cluster", state.jobs]):
        assert "refuses this token" in client.mislabel(*words, "--token-file", str(wrong), code=2).stderr


def test_a_host_a_cable_and_a_driver_are_lost_and_no_result_is(cluster: Cluster, tmp_path: Path) -> None:
    for name in SWEEPS:
        cluster.submit(name)
    until(lambda: all("Waiting for a machine" in cluster.logs(name) for name in SWEEPS), 120, cluster.said)
    steady = cluster.join(cluster.gpu, "--cpus", "1", "--gpus", "1")
    doomed = cluster.join(cluster.cpu, "--cpus", "1", "--gpus", "0")
    until(lambda: cluster.machines() == [(0, 0), (1, 0), (1, 1)], 180, cluster.said)
    until(cluster.have_begun, 240, cluster.said)
    until(lambda: cluster.gpu.trains() and cluster.cpu.trains(), 120, cluster.said)
    cluster.cpu.kill()
    assert doomed.wait(60) == -signal.SIGKILL
    cluster.gpu.cut_off()
    cut = time.monotonic()
    # Of one sweep the driver dies, after its packs; that of the other has a pack on the host that is cut off.
    driver = cluster.progress("plain")["pid"]
    assert driver in [process.pid for process in cluster.head.processes()]
    os.kill(driver, signal.SIGKILL)
    until(lambda: "restarting it from the store" in cluster.logs("plain"), 120, cluster.said)
    time.sleep(max(0.0, cut + CUT_SECONDS - time.monotonic()))
    assert all(cluster.done(name) < RUNS for name in SWEEPS), "the sweeps were over before anything was lost"
    cluster.gpu.connect()
    cluster.cpu.connect()
    replaced = cluster.join(cluster.cpu, "--cpus", "1", "--gpus", "0")
    cluster.head.pace.release()

    for name, values in SWEEPS.items():
        followed = cluster.client.run(MISLABEL, "logs", "-f", name, *cluster.access, seconds=400, code=None)
        assert followed.returncode == 0, cluster.said()
        assert cluster.asked("status", name)["state"] == "done", cluster.said()
        assert_same(cluster.store.sweep(name), run(Store(str(tmp_path / name)), **values).files)
    where = {name: set(cluster.store.sweep(name).read("runs")["host"].to_pylist()) for name in SWEEPS}
    assert where["shiny"] == {"gpu-host"}
    assert where["plain"] <= {"gpu-host", "cpu-host"}
    assert [(sweep["name"], sweep["state"]) for sweep in cluster.asked("list")] == [
        ("plain", "done"),
        ("shiny", "done"),
    ]
    assert cluster.asked("status", "plain")["statuses"] == {"done": RUNS}
    for name in SWEEPS:
        url = f"{cluster.state.mlflow}/api/2.0/mlflow/experiments/get-by-name?experiment_name={name}"
        assert cluster.client.status_of(url, "--user", f"admin:{cluster.password}") == 200

    for member in (steady, replaced):
        member.terminate()
    assert [member.wait(180) for member in (steady, replaced)] == [0, 0], cluster.said()
    assert "the cluster is down" in cluster.head.mislabel("cluster", "down").stderr
    for host in (cluster.head, cluster.gpu, cluster.cpu, cluster.client):
        assert host.processes() == []
    for host in (cluster.head, cluster.gpu, cluster.client):  # the other one was killed
        assert [path.name for path in host.tmp.iterdir() if path.name.startswith(("mislabel", "ray"))] == []


def assert_same(sweep: SweepFiles, undisturbed: SweepFiles) -> None:
    """Value for value, and each run once."""
    runs = runs_of(sweep)
    assert list(runs["status"]) == ["done"] * RUNS
    pd.testing.assert_frame_equal(runs, runs_of(undisturbed), check_exact=True)
    pd.testing.assert_frame_equal(curves_of(sweep), curves_of(undisturbed), check_exact=True)
    assert arrays_of(sweep) == arrays_of(undisturbed)


def arrays_of(sweep: SweepFiles) -> list[tuple[Any, ...]]:
    table = sweep.read("arrays").to_pandas()
    return sorted(zip(table["run_id"], table["step"], table["metric"], table["values"].map(tuple), strict=True))
