"""A finished sweep, real MLflow databases, and a real MLflow server."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient

from mislabel.analysis.mlflow_view.view import default_uri
from mislabel.cluster.address import Address, free_ports
from mislabel.cluster.head import mlflow_server
from mislabel.cluster.process import end, start
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import run
from tests.cluster.heads import until


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take seconds to create."""
    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the sweep of `bowl_values`."""
    folder = tmp_path_factory.mktemp("finished")
    run(Store(str(folder)))
    return folder


@pytest.fixture
def files(store: Store, finished: Path) -> SweepFiles:
    """A copy of the finished sweep: three cells with two seeds each."""
    shutil.copytree(finished, str(store.folder), dirs_exist_ok=True)
    return store.sweep("bowls")


@pytest.fixture
def uri(store: Store, empty_database: Path) -> str:
    """The address of the store's own database."""
    address = default_uri(store)
    assert address is not None
    assert store.folder is not None
    store.prepare()
    shutil.copy(empty_database, store.folder)
    return address


@pytest.fixture
def server(tmp_path: Path, empty_database: Path) -> Iterator[str]:
    """The address of a real MLflow server on this machine."""
    folder = tmp_path / "server"
    folder.mkdir()
    shutil.copy(empty_database, folder)
    address = Address("127.0.0.1", free_ports("127.0.0.1", 1)[0])
    storage = mlflow_server.environment(f"sqlite:///{folder}/mlflow.db", str(folder / "files"))
    process = start(mlflow_server.command(address), {**os.environ, **storage}, folder / "log")
    try:
        until(lambda: mlflow_server.answers(address.url), 120, (folder / "log").read_text)
        yield address.url
    finally:
        end([process], 10)
