"""The MLflow view in a PostgreSQL that this test starts."""

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

import mislabel
from mislabel.analysis.mlflow_view.view import View
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_values, run
from tests.cluster.objects import free_ports

MISLABEL = str(Path(sys.executable).parent / "mislabel")
pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")]


def _unprivileged() -> dict[str, Any]:
    """How to start PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("needs a user other than root to run PostgreSQL as")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an empty database."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("needs PostgreSQL: initdb and pg_ctl")
    user = _unprivileged()
    # Folders of tests are closed to other users; a socket's path may have no more than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mislabel-postgres-"))
    try:
        if user:
            os.chown(folder, user["user"], user["group"])
        data, (port,) = folder / "data", free_ports(1)
        settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"

        def call(*words: str | Path) -> None:
            subprocess.run([str(word) for word in words], check=True, cwd=folder, stdout=subprocess.DEVNULL, **user)

        (folder / "password").write_text("of-this-test-alone\n")
        if user:
            os.chown(folder / "password", user["user"], user["group"])
        call("initdb", "-D", data, "-U", "mislabel", "-A", "scram-sha-256", "--pwfile", folder / "password", "-N")
        call("pg_ctl", "-D", data, "-l", folder / "log", "-o", settings, "-w", "start")
        try:
            yield f"postgresql://mislabel:of-this-test-alone@127.0.0.1:{port}/postgres"
        finally:
            call("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder)


def test_two_sweeps_that_start_at_once_on_an_empty_database_are_shown(server: str, tmp_path: Path) -> None:
    names = ("one", "two")
    drivers = []
    for name in names:
        spec = tmp_path / f"{name}.yaml"
        spec.write_text(yaml.safe_dump(bowl_values(name=name)))
        command = [MISLABEL, "run", str(spec), "--inline", "--store", str(tmp_path / "store")]
        environment = {**os.environ, "MLFLOW_TRACKING_URI": server}
        drivers.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd=tmp_path))
    for driver in drivers:
        said = driver.communicate(timeout=200)[1]
        assert driver.returncode == 0, said
        assert "MLflow at" not in said, said
        assert "of-this-test-alone" not in said
    client: Any = MlflowClient(server)
    for name in names:
        # On a busy machine a driver may have left before all was written.
        View(Store(str(tmp_path / "store")).sweep(name), server).sync()
        sweep = mislabel.load(str(tmp_path / "store"), name)
        experiment = client.get_experiment_by_name(name).experiment_id
        runs = [run for run in client.search_runs([experiment]) if "mlflow.parentRunId" in run.data.tags]
        shown = {float(run.data.params["x"]): run.data.metrics["loss"] for run in runs}
        assert shown == pytest.approx(dict(zip(sweep.cells("loss")["x"], sweep.cells("loss")["mean"], strict=True)))


def test_a_database_that_does_not_answer_is_named_without_its_password(server: str, tmp_path: Path) -> None:
    files = run(Store(str(tmp_path))).files
    wrong = server.replace("of-this-test-alone", "secret-that-is-wrong")
    with pytest.raises(MislabelError, match=r"MLflow at postgresql://…@127\.0\.0\.1") as caught:
        View(files, wrong).sync()
    assert "secret-that-is-wrong" not in str(caught.value)
