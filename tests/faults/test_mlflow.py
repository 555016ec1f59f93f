"""MLflow away for a while: the sweep does not mind, and what was missed is shown when it is back."""

import os
from pathlib import Path

import pytest

from mislabel.analysis.mlflow_view.view import following
from mislabel.cluster.address import Address, free_ports
from mislabel.cluster.head import mlflow_server
from mislabel.cluster.process import end, start
from mislabel.sweeps.store.store import Store
from tests.bowls import run
from tests.cluster.heads import until

pytestmark = pytest.mark.server


@pytest.mark.faults
def test_a_view_is_caught_up_with_when_the_server_is_back(store: Store, tmp_path: Path, messages: list[str]) -> None:
    address = Address("127.0.0.1", free_ports("127.0.0.1", 1)[0])
    database = f"sqlite:///{tmp_path}/mlflow.db"
    environment = {**os.environ, **mlflow_server.environment(database, str(tmp_path / "artifacts"))}
    server = None
    try:
        with following(store.sweep("bowls"), address.url, every_seconds=0.5, last_seconds=120):
            run(store)
            until(lambda: messages, 120)
            server = start(mlflow_server.command(address), environment, tmp_path / "log")
            until(lambda: mlflow_server.answers(address.url), 120, (tmp_path / "log").read_text)
    finally:
        end([server] if server else [], 10)
    assert [text for text in messages if address.url in text] == messages[:1]
    assert not [text for text in messages if "does not show all" in text]
    assert store.sweep("bowls").read_json("mlflow.json")["experiment"]
