from typing import Any

import pytest

from mislabel.sweeps.errors import LeaseLostError, MislabelError
from mislabel.sweeps.run.heartbeat import ask_to_stop, is_running, requested_stop
from mislabel.sweeps.run.launch import prepare, run_inline
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, CPU, bowl_spec, prepared, run


def progress(store: Store) -> dict[str, Any]:
    return store.sweep("bowls").progress()


def test_a_running_sweep_writes_its_progress(store: Store) -> None:
    launch = prepared(store)
    assert progress(store)["state"] == "running"
    assert (progress(store)["cells"], progress(store)["runs"], progress(store)["done"]) == (3, 6, 0)
    assert is_running(launch.files)
    launch.driver.stop(INTERRUPTED)
    launch.finish()
    assert (progress(store)["state"], progress(store)["stopped_because"]) == ("stopped", "interrupted")
    assert not is_running(launch.files)


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


def test_a_driver_writes_why_it_stops_for_others_to_see(store: Store) -> None:
    launch = prepared(store)
    launch.heartbeat.beat()
    assert requested_stop(launch.files, launch.lease.generation) is None
    launch.driver.stop(INTERRUPTED)
    launch.heartbeat.beat()
    assert requested_stop(launch.files, launch.lease.generation) == "interrupted"


def test_a_request_to_stop_has_no_effect_on_the_next_launch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.heartbeat._EVERY_SECONDS", 0.0)
    first = prepared(store)
    ask_to_stop(store.sweep("bowls"))
    first.heartbeat.beat()
    assert first.driver.stop_reason is not None
    first.finish()
    second = prepared(store)
    second.heartbeat.beat()
    assert second.driver.stop_reason is None


def test_a_sweep_that_does_not_run_cannot_be_asked_to_stop(store: Store) -> None:
    run(store)
    with pytest.raises(MislabelError):
        ask_to_stop(store.sweep("bowls"))


def test_a_driver_that_was_replaced_stops_and_writes_nothing_more(store: Store) -> None:
    first, second = prepared(store), prepared(store)
    first.lease.renew()
    before = progress(store)
    first.heartbeat.beat()
    assert isinstance(first.driver.broken, LeaseLostError)
    assert first.driver.next() is None
    first.finish()
    assert progress(store) == before
    assert second.lease.lost is None


def test_a_sweep_with_only_reused_runs_is_done(store: Store) -> None:
    run(store, name="first")
    launch = prepare(bowl_spec(seeds=1), BOWL, store, take_over=True)
    assert launch.plan.missing == 0
    assert (progress(store)["state"], progress(store)["runs"], progress(store)["done"]) == ("done", 3, 3)


def test_after_a_driver_was_killed_at_the_end_only_tidying_is_left(store: Store) -> None:
    launch = prepared(store)
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    launch.files.save_checkpoint("p", b"old", ["a-0"])
    assert len(launch.files.parts("runs")) == 2
    again = prepare(launch.plan.spec, BOWL, store, take_over=True)
    assert again.plan.missing == 0
    assert progress(store)["state"] == "done"
    assert len(again.files.parts("runs")) == 1
    assert list(again.files.checkpoints()) == []
    before = progress(store)
    prepare(launch.plan.spec, BOWL, store, take_over=True)
    assert progress(store) == before
