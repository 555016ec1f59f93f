"""A distinct secret is planted in every address and variable that we read. It is stored, logged and shown nowhere."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
import yaml

from mislabel.cluster.address import free_ports
from mislabel.cluster.process import descendants, end
from mislabel.sweeps.process import Process
from tests.bowls import bowl_values
from tests.cluster.heads import head, until
from tests.pace import Pace

pytestmark = [pytest.mark.faults, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
MISLABEL = str(Path(sys.executable).parent / "mislabel")
# Our own variables, and those of libraries through which users give us addresses and passwords.
PLAIN = {
    "AZURE_STORAGE_ACCOUNT",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "BOWL_PAUSE",
    "CXX",
    "LOCALAPPDATA",
    "PYTHONPATH",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
}
PATHS = {"MISLABEL_CLUSTER_DIR", "MISLABEL_DATA", "MISLABEL_TICKET", "MISLABEL_TOKEN_FILE"}
REFUSED = {"MISLABEL_STORE", "MISLABEL_CLUSTER", "RAY_ADDRESS"}
"""Addresses that may not contain a password, or whose password is never used."""
ADDRESSES = {"MLFLOW_TRACKING_URI", "MISLABEL_MLFLOW_BACKEND"}
OF_LIBRARIES = [
    "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD",
    "AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_CLIENT_SECRET",
]  # fmt: skip
SPEC = bowl_values(parameters={"x": {"values": [0.0, 1.0]}, "trouble": {"values": [0, 1]}}, budget={"failures": 1})


def secret_of(name: str) -> str:
    return f"planted-in-{name.lower().replace('_', '-')}"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """By variable, its secret. Runs that fail say all of them."""
    secrets = {name: secret_of(name) for name in OF_LIBRARIES}
    secrets["HTTPS_PROXY"] = secret_of("proxy")
    for name, secret in secrets.items():
        monkeypatch.setenv(name, f"http://me:{secret}@127.0.0.1:9" if name == "HTTPS_PROXY" else secret)
    monkeypatch.setenv("BOWL_SAYS", ", said " + " and ".join(secrets.values()))
    return secrets


def test_every_variable_that_we_read_is_known_here() -> None:
    """A new one must be planted too, or be listed as one that contains no secret."""
    read = set()
    for folder in ("tasks", "sweeps", "cluster", "analysis"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text()
            read |= set(re.findall(r"(?:envvar=|\"envvar\": |os\.environ\.get\(|os\.environ\[)\"([A-Z_]+)\"", text))
    assert read - PLAIN - PATHS - REFUSED - ADDRESSES == {"MISLABEL_SWEEPS"}


def found_in(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """Where files below the folder contain one of the secrets."""
    found = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        text = path.read_bytes()
        if path.suffix == ".parquet":  # its pages are compressed
            text += str(pq.read_table(path).to_pylist()).encode()
        found += [f"{path}: {name}" for name, secret in secrets.items() if secret.encode() in text]
    return found


def command_lines(pids: list[int]) -> list[str]:
    lines = []
    for pid in pids:
        try:
            lines.append(" ".join(psutil.Process(pid).cmdline()))
        except psutil.Error:
            continue
    return lines


def shown(text: str, secrets: Mapping[str, str]) -> list[str]:
    return [name for name, secret in secrets.items() if secret in text]


@contextmanager
def started(*words: str, log: Path, **environment: str) -> Iterator[Process]:
    with log.open("w") as stream:
        child = subprocess.Popen(
            [MISLABEL, *words], stdout=stream, stderr=stream, env={**os.environ, **environment}, cwd=log.parent
        )
        process = Process.of(child.pid)
        assert process is not None
        try:
            yield process
        finally:
            end([process, *descendants([process])], 10)
            child.wait()


@pytest.mark.server
@pytest.mark.parametrize("way", ["argument", "variable"])
def test_no_secret_is_in_the_store_the_reports_the_logs_or_the_process_list(
    way: str, planted: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's database does not answer, so its errors are logged too. Then the same with the store's own database."""
    secrets = {**planted, "MLFLOW_TRACKING_URI": "planted-in-tracking-uri"}
    (port,) = free_ports("127.0.0.1", 1)
    address = f"postgresql://me:{secrets['MLFLOW_TRACKING_URI']}@127.0.0.1:{port}/db"
    (tmp_path / "bowls.yaml").write_text(yaml.safe_dump(SPEC))
    words = ["run", "bowls.yaml", "--inline"] + (["--mlflow", address] if way == "argument" else [])
    if way == "variable":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    log = tmp_path / "run.log"
    with started(*words, log=log) as driver:
        until(lambda: "MLflow at" in log.read_text() or not driver.lives, 120, log.read_text)
        lines = command_lines([driver.pid, *(process.pid for process in descendants([driver]))])
        until(lambda: not driver.lives, 200)
    assert len(lines) == 2, "the driver and the process that writes the view"
    assert shown("\n".join(lines), secrets) == []
    said = log.read_text()
    assert ("MLFLOW_TRACKING_URI instead" in said) == (way == "argument")
    assert "MLflow at postgresql://…@127.0.0.1" in said
    assert "the bowl broke, said … and" in said

    def mislabel(*words: str) -> None:
        done = subprocess.run([MISLABEL, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        (tmp_path / f"{words[0]}.log").write_text(done.stdout + done.stderr)

    mislabel("report", "bowls")
    mislabel("status", "bowls", "--json")
    mislabel("results", "bowls")
    mislabel("--debug", "sync", *words[3:])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    mislabel("sync", "bowls")
    assert (tmp_path / "results" / "mlflow.db").exists()
    assert (tmp_path / "bowls.html").exists()
    assert found_in(tmp_path, secrets) == []


@pytest.mark.server
def test_the_address_of_a_database_is_not_in_the_process_list_of_the_ui(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (port,) = free_ports("127.0.0.1", 1)
    address = f"postgresql://me:planted-in-tracking-uri@127.0.0.1:{port}/db"
    with started("ui", "--mlflow", address, log=tmp_path / "ui.log") as ui:

        def lines() -> list[str]:
            return command_lines([ui.pid, *(process.pid for process in descendants([ui]))])

        until(lambda: "-m mlflow ui" in "".join(lines()), 120)
        seen = set()
        deadline = time.monotonic() + 10
        while ui.lives and time.monotonic() < deadline:
            seen |= set(lines())
            time.sleep(0.2)
    assert any(" ui " in line for line in seen)
    assert shown("\n".join(seen), {"address": "planted-in-tracking-uri"}) == []


@pytest.mark.ray
def test_no_secret_is_in_the_files_of_a_local_ray(planted: dict[str, str], tmp_path: Path, pace: Pace) -> None:
    """Tune copies AWS credentials to its actors, and Ray logs the settings of actors."""
    secrets = {**planted, "MLFLOW_TRACKING_URI": "planted-in-tracking-uri"}
    address = f"postgresql://me:{secrets['MLFLOW_TRACKING_URI']}@127.0.0.1:9/db"
    held = bowl_values(parameters={"x": {"values": [0.0, 1.0]}, "steps": 2000})
    (tmp_path / "bowls.yaml").write_text(yaml.safe_dump(held))
    pace.hold()
    log = tmp_path / "run.log"
    with started("run", "bowls.yaml", "--mlflow", address, log=log) as driver:

        def lines() -> list[str]:
            return command_lines([driver.pid, *(process.pid for process in descendants([driver]))])

        until(lambda: any("Trainable" in line for line in lines()), 240, log.read_text)
        (folder,) = set(re.findall(r"/tmp/mislabel-[^/ ]+(?=/ray)", " ".join(lines())))
        assert shown("\n".join(lines()), secrets) == []
        assert len(list(Path(folder).rglob("*.log"))) > 3
        assert found_in(Path(folder), secrets) == []
    assert found_in(tmp_path, secrets) == []


@pytest.mark.ray
def test_no_secret_of_a_cluster_is_in_its_logs_its_store_or_the_process_list(tmp_path: Path) -> None:
    backend = f"sqlite:///{tmp_path}/mlflow.db?password=planted-in-backend"
    with head(tmp_path / "c", "--cpus", "2", "--mlflow-backend", backend) as cluster:
        files = [cluster.folder.token, cluster.folder.mlflow_password]
        secrets = {"backend": "planted-in-backend", **{file.name: file.read_text() for file in files}}
        cluster.write_spec(**{**SPEC, "name": "bowls"})
        job = cluster.submit("bowls.yaml")
        cluster.wait(job)
        family = list(cluster.state.processes.values())
        lines = command_lines([process.pid for process in [*family, *descendants(family)]])
        assert len(lines) > 5
        assert shown("\n".join(lines), secrets) == []
        assert shown(cluster.jobs.logs(job), secrets) == []
        assert shown(str(cluster.jobs.list()), secrets) == []
        found = {*found_in(tmp_path, secrets), *found_in(Path(cluster.state.ray_folder), secrets)}
        assert found == {f"{file}: {file.name}" for file in files}
