import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mislabel.sweeps.errors import SweepBusyError
from mislabel.sweeps.run.heartbeat import alive, refuse_if_running
from mislabel.sweeps.run.launch import prepare, run_inline
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, CPU, bowl_spec, prepared, run


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this machine, alive until the test ends it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        yield other
        other.kill()


def progress(store: Store) -> dict[str, Any]:
    found: dict[str, Any] = store.sweep("bowls").read_json("progress.json")
    return found


def written_by(store: Store, **changes: Any) -> None:
    """Write the progress of the sweep as another driver would."""
    if not store.names():
        prepared(store)
    store.sweep("bowls").write_json("progress.json", {**progress(store), **changes})


def test_a_running_sweep_writes_its_progress(store: Store) -> None:
    launch = prepared(store)
    assert progress(store)["state"] == "running"
    assert (progress(store)["cells"], progress(store)["runs"], progress(store)["done"]) == (3, 6, 0)
    assert alive(progress(store))
    launch.driver.stop(INTERRUPTED)
    launch.finish()
    assert (progress(store)["state"], progress(store)["stopped_because"]) == ("stopped", "interrupted")
    assert not alive(progress(store))


def test_a_sweep_that_ended_is_done(store: Store) -> None:
    run(store)
    assert (progress(store)["state"], progress(store)["done"]) == ("done", 6)
    assert progress(store)["ended_now"] == {"done": 6}


def test_progress_is_written_every_few_seconds_only(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.heartbeat._EVERY_SECONDS", 600.0)
    launch = prepared(store)
    launch.driver.progress.done = 3
    launch.heartbeat.beat()
    assert progress(store)["done"] == 0
    monkeypatch.setattr("mislabel.sweeps.run.heartbeat._EVERY_SECONDS", 0.0)
    launch.heartbeat.beat()
    assert progress(store)["done"] == 3


def test_the_stop_file_is_removed_by_the_next_launch(store: Store) -> None:
    launch = prepared(store)
    launch.heartbeat.beat()
    assert launch.files.read_text("stop") is None
    launch.driver.stop(INTERRUPTED)
    launch.heartbeat.beat()
    assert launch.files.read_text("stop") == "interrupted"
    assert prepared(store).files.read_text("stop") is None


def test_a_sweep_that_another_process_runs_is_refused(store: Store, process: "subprocess.Popen[bytes]") -> None:
    written_by(store, pid=process.pid)
    with pytest.raises(SweepBusyError) as caught:
        prepared(store)
    assert str(process.pid) in str(caught.value)
    assert "0 of 6 runs" in str(caught.value)


def test_a_driver_that_was_killed_does_not_block_the_sweep(store: Store, process: "subprocess.Popen[bytes]") -> None:
    written_by(store, pid=process.pid)
    process.kill()
    # Not waited for: a zombie has a process id still.
    while " Z " not in Path(f"/proc/{process.pid}/stat").read_text():
        pass
    refuse_if_running(store.sweep("bowls"))
    process.wait()
    refuse_if_running(store.sweep("bowls"))


def test_a_driver_on_another_machine_is_alive_while_it_writes_progress(store: Store) -> None:
    now = datetime.now(UTC)
    written_by(store, host="elsewhere", updated_at=now.isoformat())
    with pytest.raises(SweepBusyError, match="elsewhere"):
        refuse_if_running(store.sweep("bowls"))
    written_by(store, host="elsewhere", updated_at=(now - timedelta(minutes=5)).isoformat(), pid=1)
    refuse_if_running(store.sweep("bowls"))


@pytest.mark.parametrize(("silent", "lives"), [(50, True), (70, False)])
def test_a_driver_on_another_machine_is_dead_after_a_minute_of_silence(store: Store, silent: int, lives: bool) -> None:
    prepared(store)
    written = (datetime.now(UTC) - timedelta(seconds=silent)).isoformat()
    assert alive({**progress(store), "host": "elsewhere", "updated_at": written}) is lives


def test_the_same_pid_on_another_machine_is_another_process(store: Store) -> None:
    written_by(store, host="elsewhere", pid=os.getpid())
    with pytest.raises(SweepBusyError):
        refuse_if_running(store.sweep("bowls"))


@pytest.mark.parametrize("state", ["done", "stopped"])
def test_a_sweep_that_has_ended_can_be_run_by_anyone(store: Store, state: str) -> None:
    written_by(store, state=state, host="elsewhere")
    refuse_if_running(store.sweep("bowls"))


@pytest.mark.parametrize("found", [None, {}])
def test_a_sweep_without_progress_is_not_alive(found: dict[str, Any] | None) -> None:
    assert not alive(found)


def test_a_sweep_with_only_reused_runs_is_done(store: Store) -> None:
    run(store, name="first")
    launch = prepare(bowl_spec(seeds=1), BOWL, store)
    assert launch.plan.missing == 0
    assert (progress(store)["state"], progress(store)["runs"], progress(store)["done"]) == ("done", 3, 3)


def test_after_a_driver_was_killed_at_the_end_only_tidying_is_left(store: Store) -> None:
    launch = prepared(store)
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    launch.files.save_checkpoint("p", b"old", ["a-0"])
    assert len(launch.files.parts("runs")) == 2
    again = prepare(launch.plan.spec, BOWL, store)
    assert again.plan.missing == 0
    assert progress(store)["state"] == "done"
    assert len(again.files.parts("runs")) == 1
    assert list(again.files.checkpoints()) == []
    before = progress(store)
    prepare(launch.plan.spec, BOWL, store)
    assert progress(store) == before
