import errno
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from mislabel.sweeps.errors import LeaseLostError, SpecError, StoreError, SweepBusyError
from mislabel.sweeps.plan.plan import Plan
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.heartbeat import ask_to_stop, is_running
from mislabel.sweeps.run.launch import (
    Launch,
    Machine,
    Runner,
    inline_host,
    plan_sweep,
    prepare,
    run_inline,
    run_sweep,
)
from mislabel.sweeps.spec.model import Resources
from mislabel.sweeps.store.filesystem import FileSystem
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import BOWL, CPU, MACHINE, bowl_spec, prepared, run, runs_of

LOCAL = fs.LocalFileSystem()


def files_in(store: Store) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(store.address).rglob("*") if path.is_file()}


def test_a_launch_leaves_spec_revisions_and_provenance_in_the_store(store: Store) -> None:
    run(store)
    run(store, seeds=3)
    files = store.sweep("bowls")
    first, second = (files.read_text(f"revisions/{name}") for name in files.names("revisions"))
    assert files.read_text("spec.yaml") == second == bowl_spec(seeds=3).to_yaml()
    assert first == bowl_spec().to_yaml()
    launches = files.launches()
    assert len(launches) == 2
    assert launches[0]["versions"]["bowl"] == "1.0"
    assert launches[0]["started_at"] <= launches[1]["started_at"]


def test_a_launch_with_nothing_to_run_is_not_recorded(store: Store) -> None:
    run(store)
    run(store)
    assert len(store.sweep("bowls").launches()) == 1


def test_a_plan_writes_nothing(store: Store) -> None:
    run(store)
    before = files_in(store)
    plan = plan_sweep(bowl_spec(seeds=4), BOWL, store, MACHINE)
    assert plan.missing == 6
    assert files_in(store) == before


def test_a_refused_sweep_leaves_the_store_unchanged(store: Store) -> None:
    run(store)
    before = files_in(store)
    wrong: dict[str, Any] = {"parameters": {"surface": {"values": ["smooth", "rough"]}, "width": {"values": [2, 64]}}}
    with pytest.raises(SpecError, match="width 64"):
        prepare(bowl_spec(name="other", **wrong), BOWL, store)
    with pytest.raises(SpecError, match="seeds"):
        prepare(bowl_spec(seeds=1), BOWL, store)
    assert store.names() == ["bowls"]
    assert files_in(store) == before


def test_damaged_files_are_reported(store: Store, messages: list[str]) -> None:
    launch = run(store)
    (part,) = Path(launch.files.address, "runs").glob("*.parquet")
    part.write_bytes(b"garbage")
    prepare(launch.plan.spec, BOWL, store)
    assert [text.split(" ")[0] for text in messages] == [f"{launch.files.address}/runs/{part.name}"]


def test_a_broken_sweep_is_not_tidied(store: Store) -> None:
    """The store can't be written, so its files stay as they are."""
    launch = prepared(store)
    launch.driver.break_off(StoreError("the disk is full"))
    before = {path for path in files_in(store) if "lease" not in str(path)}
    launch.finish()
    assert {path for path in files_in(store) if "lease" not in str(path)} == before


@pytest.mark.faults
def test_without_room_for_merged_parts_all_runs_are_stored_and_the_next_launch_merges(
    store: Store, messages: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put, parts = FileSystem.put, set[str]()

    def full(filesystem: FileSystem, path: str, data: bytes) -> None:
        if "/curves/" in path:
            if len(parts) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            parts.add(path)
        put(filesystem, path, data)

    monkeypatch.setattr(FileSystem, "put", full)
    launch = run(store)
    assert not launch.driver.broken
    assert sum("the disk is full" in message for message in messages) == 1
    assert launch.files.progress()["state"] == "done"
    assert len(launch.files.read("runs")) == 6
    assert len(launch.files.parts("runs")) == 2
    again = prepare(bowl_spec(), BOWL, store)
    again.close()
    assert again.complete
    assert len(launch.files.parts("runs")) == 2
    monkeypatch.undo()
    prepare(bowl_spec(), BOWL, store).close()
    assert len(launch.files.parts("runs")) == 1
    assert len(launch.files.read("runs")) == 6


class CountingHandler(fs.FileSystemHandler):
    """A local file system that counts how often each file is opened for reading."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()

    def get_type_name(self) -> str:
        return "counting"

    def get_file_info_selector(self, selector: Any) -> Any:
        return LOCAL.get_file_info(selector)

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def open_input_file(self, path: str) -> Any:
        self.opened[path] += 1
        return LOCAL.open_input_file(path)


def _delegate(name: str) -> Any:
    return lambda self, *args, **kwargs: getattr(LOCAL, name)(*args, **kwargs)


for _name in CountingHandler.__abstractmethods__:
    setattr(CountingHandler, _name, _delegate(_name))
CountingHandler.__abstractmethods__ = frozenset()


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"early_terminate": {"type": "asha", "min_steps": 2}},
        {"seeds": {"count": 2, "up_to": 4}},
        {"method": "tpe", "budget": {"cells": 4}},
    ],
    ids=["grid", "stopping", "race", "search"],
)
def test_a_launch_reads_the_table_of_runs_once(store: Store, changes: dict[str, Any]) -> None:
    """Not counting the check for damaged files, which comes first."""
    parameters = {"x": {"values": [0.0, 1.0, 2.0]}, "frames": 8}
    run(store, parameters=parameters, **changes)
    run(store, name="other", parameters={"x": {"values": [3.0]}, "frames": 8})
    handler = CountingHandler()
    store._fs = FileSystem(fs.PyFileSystem(handler))
    store.sweep("bowls").set_damaged_aside()
    (part,) = (path for path in handler.opened if "/bowls/runs/" in path)
    by_the_check = handler.opened[part]
    handler.opened.clear()
    wider = {**parameters, "x": {"values": [0.0, 1.0, 2.0, 3.0, 4.0]}}
    changes = {**changes, **({"budget": {"cells": 6}} if "budget" in changes else {"parameters": wider})}
    launch = prepared(store, **{"parameters": parameters, **changes})
    assert not launch.complete
    assert handler.opened[part] - by_the_check == 1


def test_runs_that_another_sweep_has_are_not_missing(store: Store) -> None:
    run(store, name="other")
    launch = prepared(store, parameters={"x": {"values": [0.0, 1.0, 2.0, 3.0]}})
    assert (launch.plan.runs, launch.plan.missing) == (8, 2)
    assert launch.driver.means.best is not None


class Recorder:
    """Notes what a launch reports to its caller."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    @contextmanager
    def observe(self, plan: Plan, files: SweepFiles, driver: Driver | None) -> Iterator[Callable[[], None]]:
        self.calls.append(("planned", plan.missing, driver is None))
        yield lambda: None
        if driver is not None:
            self.calls.append(("ended", driver.progress.done))


def test_a_sweep_is_run_by_one_call(store: Store) -> None:
    recorder = Recorder()
    result = run_sweep(bowl_spec(), BOWL, store, inline_host, observer=recorder.observe)
    assert recorder.calls == [("planned", 6, False), ("ended", 6)]
    assert result.driver is not None
    assert (result.failed, result.driver.progress.statuses) == (0, {"done": 6})
    again = Recorder()
    assert run_sweep(bowl_spec(), BOWL, store, inline_host, observer=again.observe).driver is None
    assert again.calls == [("planned", 0, True)]


def test_failed_runs_are_run_again_on_request(store: Store) -> None:
    spec = bowl_spec(parameters={"trouble": {"values": [0, 1]}})
    assert run_sweep(spec, BOWL, store, inline_host).failed == 2
    assert run_sweep(spec, BOWL, store, inline_host).driver is None
    retried = run_sweep(spec, BOWL, store, inline_host, retry=True)
    assert retried.driver is not None
    assert (retried.failed, retried.driver.progress.statuses) == (2, {"failed": 2})


def test_a_store_that_fails_ends_the_launch(store: Store) -> None:
    @contextmanager
    def broken_host(resources: Resources) -> Iterator[tuple[Machine, Runner]]:
        yield MACHINE, lambda driver, store, show: driver.break_off(StoreError("the disk is full"))

    with pytest.raises(StoreError, match="the disk is full"):
        run_sweep(bowl_spec(), BOWL, store, broken_host)
    assert "the disk is full" in (store.sweep("bowls").read_text("log.txt") or "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_lets_packs_checkpoint_and_the_second_ends_at_once(store: Store, number: int) -> None:
    reasons: list[Any] = []

    @contextmanager
    def interrupted_host(resources: Resources) -> Iterator[tuple[Machine, Runner]]:
        def run(driver: Driver, store: Store, show: Callable[[], None]) -> None:
            os.kill(os.getpid(), number)
            reasons.append(driver.stop_reason)
            os.kill(os.getpid(), number)

        yield MACHINE, run

    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(bowl_spec(), BOWL, store, interrupted_host)
    assert reasons == [INTERRUPTED]
    assert signal.getsignal(number) is before


def test_a_sweep_can_run_in_another_thread(store: Store) -> None:
    """Signals belong to the main thread."""
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(run_sweep, bowl_spec(), BOWL, store, inline_host).result()
    assert result.driver is not None
    assert result.driver.over


@pytest.mark.parametrize("before", [signal.default_int_handler, signal.SIG_IGN], ids=["terminal", "background"])
def test_a_launch_that_waits_for_a_machine_can_be_stopped(
    store: Store, monkeypatch: pytest.MonkeyPatch, before: Any
) -> None:
    """Also in the background, where a shell lets programs ignore SIGINT."""
    monkeypatch.setattr("mislabel.sweeps.run.heartbeat._STOP_SECONDS", 0.01)

    @contextmanager
    def busy_host(resources: Resources) -> Iterator[tuple[Machine, Runner]]:
        ask_to_stop(store.sweep("bowls"))
        assert store.sweep("bowls").progress()["state"] == "running"
        while True:
            time.sleep(0.1)
        yield

    restored = signal.signal(signal.SIGINT, before)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_sweep(bowl_spec(), BOWL, store, busy_host)
        assert signal.getsignal(signal.SIGINT) == before
    finally:
        signal.signal(signal.SIGINT, restored)
    assert not is_running(store.sweep("bowls"))
    assert not run_sweep(bowl_spec(), BOWL, store, inline_host).failed


def test_a_sweep_that_runs_is_refused_before_anything_is_planned(store: Store) -> None:
    first = prepared(store)
    with pytest.raises(SweepBusyError):
        prepare(bowl_spec(seeds=9), BOWL, store)
    assert first.files.read_text("spec.yaml") == bowl_spec().to_yaml()


def test_a_driver_that_was_replaced_ends_with_one_sentence_and_its_runs_are_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced after its first pack. What it finished is adopted, and the other driver trains the rest."""
    monkeypatch.setattr("mislabel.sweeps.run.lease._CHECK_SECONDS", 0.0)
    later: list[Launch] = []

    @contextmanager
    def replaced_host(resources: Resources) -> Iterator[tuple[Machine, Runner]]:
        def run(driver: Driver, store: Store, show: Callable[[], None]) -> None:
            def replace_after_the_first_pack() -> None:
                if driver.progress.done and not later:
                    later.append(prepared(store))
                show()

            run_inline(driver, driver.files, CPU, replace_after_the_first_pack)

        yield MACHINE, run

    with pytest.raises(LeaseLostError, match=str(os.getpid())):
        run_sweep(bowl_spec(), BOWL, store, replaced_host)
    (launch,) = later
    assert launch.plan.missing == 2
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    launch.finish()
    assert launch.driver.broken is None
    assert len(runs_of(launch.files)) == 6
