"""The MLflow view in a PostgreSQL that this test starts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient

import mislabel
from mislabel.analysis.mlflow_view.database import set_aside
from mislabel.analysis.mlflow_view.view import View
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_values, run
from tests.cluster.postgres import PASSWORD, postgres

MISLABEL = str(Path(sys.executable).parent / "mislabel")
pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated")]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an empty database."""
    with postgres() as started:
        yield started.uri


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
        assert PASSWORD not in said
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
    wrong = server.replace(PASSWORD, "secret-that-is-wrong")
    with pytest.raises(MislabelError, match=r"MLflow at postgresql://…@127\.0\.0\.1") as caught:
        View(files, wrong).sync()
    assert "secret-that-is-wrong" not in str(caught.value)


def test_a_rebuild_is_refused_unless_the_database_is_empty(tmp_path: Path) -> None:
    files = run(Store(str(tmp_path))).files
    with postgres() as empty:
        assert set_aside(empty.uri) is None
        View(files, empty.uri).sync()
        with pytest.raises(MislabelError, match="empty database") as caught:
            set_aside(empty.uri)
        assert PASSWORD not in str(caught.value)
