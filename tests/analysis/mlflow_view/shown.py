"""Read back from MLflow what it shows of a sweep."""

from typing import Any

import pandas as pd
import pytest
from mlflow import MlflowClient

from mislabel.cluster.address import free_ports
from mislabel.sweeps.store.store import SweepFiles

MLFLOWS_OWN_WARNINGS = pytest.mark.filterwarnings(
    "ignore:The ``noload`` loader strategy is deprecated",  # MLflow's own use of SQLAlchemy
    "ignore:unclosed database:ResourceWarning",  # its pool is closed with the process
)


def client_of(uri: str) -> Any:
    return MlflowClient(uri)


def shown_runs(uri: str, name: str = "bowls") -> list[Any]:
    client = client_of(uri)
    experiment = client.get_experiment_by_name(name)
    return list(client.search_runs([experiment.experiment_id], max_results=1000))


def parent_of(uri: str, name: str = "bowls") -> Any:
    (parent,) = [run for run in shown_runs(uri, name) if "mlflow.parentRunId" not in run.data.tags]
    return parent


def nested_runs(uri: str, name: str = "bowls") -> dict[str, Any]:
    """The nested runs by name."""
    parent = parent_of(uri, name).info.run_id
    nested = [run for run in shown_runs(uri, name) if run.data.tags.get("mlflow.parentRunId") == parent]
    assert len({run.info.run_name for run in nested}) == len(nested) == len(shown_runs(uri, name)) - 1
    return {run.info.run_name: run for run in nested}


def runs_table(files: SweepFiles) -> pd.DataFrame:
    frame: pd.DataFrame = files.read("runs").to_pandas()
    return frame


def nobodys_address(user: str = "") -> str:
    """The address of a server that does not exist."""
    (port,) = free_ports("127.0.0.1", 1)
    return f"http://{user}127.0.0.1:{port}"
