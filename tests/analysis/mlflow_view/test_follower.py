"""The view of a running sweep follows it, and neither delays nor breaks it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mislabel.analysis.mlflow_view.database import only_one
from mislabel.analysis.mlflow_view.view import View, following
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.run.launch import run_inline
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.analysis.mlflow_view.shown import (
    MLFLOWS_OWN_WARNINGS,
    client_of,
    nested_runs,
    nobodys_address,
    parent_of,
    runs_table,
)
from tests.bowls import CPU, prepared
from tests.cluster.heads import until

pytestmark = [pytest.mark.server, MLFLOWS_OWN_WARNINGS]


def test_a_running_sweep_is_followed_to_its_end(store: Store, uri: str, messages: list[str]) -> None:
    launch = prepared(store)
    with following(launch.files, uri, every_seconds=0.1, last_seconds=200):
        run_inline(launch.driver, launch.files, CPU, lambda: None)
        until(lambda: client_of(uri).get_experiment_by_name("bowls") is not None, 120, lambda: messages)
        launch.finish()
    assert [text for text in messages if not text.startswith("writing")] == []
    assert set(nested_runs(uri)) == {"x=0", "x=1", "x=2"}
    assert parent_of(uri).info.status == "FINISHED"


def test_a_server_that_is_down_is_reported_once_and_the_sweep_continues(store: Store, messages: list[str]) -> None:
    launch = prepared(store)
    address = nobodys_address()
    with following(launch.files, address, every_seconds=0.05):
        run_inline(launch.driver, launch.files, CPU, lambda: None)
        launch.finish()
        until(lambda: bool(messages), 120)
        time.sleep(1)
    assert address in messages[0]
    assert "mislabel sync bowls" in messages[-1]
    assert [text for text in messages[1:-1] if not text.startswith("writing")] == []
    assert len(runs_table(launch.files)) == 6
    with pytest.raises(MislabelError, match=address):
        View(launch.files, address).sync()


def test_the_end_of_a_sweep_waits_for_mlflow_up_to_a_limit(store: Store, uri: str, messages: list[str]) -> None:
    launch = prepared(store)
    # The view is not written while another process holds the lock.
    with only_one(uri), following(launch.files, uri, last_seconds=0.2):
        pass
    assert "mislabel sync bowls" in messages[-1]


def test_a_complete_view_needs_no_waiting(store: Store, files: SweepFiles, uri: str, messages: list[str]) -> None:
    View(files, uri).sync()
    with following(files, uri, last_seconds=0):
        pass
    assert messages == []
    Path(uri.removeprefix("sqlite:///")).unlink()
    with following(files, uri, last_seconds=0):
        pass
    (text,) = messages
    assert "mislabel sync bowls" in text


def test_an_error_of_the_sweep_is_raised_through_the_view(store: Store) -> None:
    files = prepared(store).files
    with (
        pytest.raises(ZeroDivisionError),
        following(files, nobodys_address(), last_seconds=0.1),
    ):
        raise ZeroDivisionError


def test_the_follower_ends_with_the_sweeps_process(store: Store, uri: str) -> None:
    files = prepared(store).files
    command = [sys.executable, "-m", "mislabel.analysis.mlflow_view.follower", store.address, files.name, "60"]
    environment = {**os.environ, "MLFLOW_TRACKING_URI": uri}
    follower = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    follower.communicate(timeout=120)  # closes its stdin, as the end of this process would
    assert follower.returncode == 1


def test_without_an_address_there_is_no_view(store: Store, messages: list[str]) -> None:
    with following(prepared(store).files, None):
        pass
    assert messages == []
