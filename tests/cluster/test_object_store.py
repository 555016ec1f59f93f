"""Sweeps whose store is an S3 server, from spec to tables, through kills and outages."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import yaml

import mislabel
from mislabel.sweeps.commands.main import main
from mislabel.sweeps.errors import LeaseLostError, StoreError, SweepBusyError
from mislabel.sweeps.run.launch import Launch, run_inline
from mislabel.sweeps.run.lease import Lease, newest_generation, take
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import CPU, bowl_values, curves_of, prepared, run, runs_of
from tests.cluster.objects import ENVIRONMENT, ObjectStore, counted
from tests.pace import Pace

pytestmark = pytest.mark.server

LONG: dict[str, Any] = {"parameters": {"x": {"values": [0.0, 1.0, 2.0]}, "steps": 2000}, "resources": {"pack": 3}}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    server = ObjectStore(tmp_path_factory.mktemp("objects"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        try:
            server.start()
            yield server
        finally:
            server.end()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> SweepFiles:
    torch.set_num_threads(1)
    return run(Store(str(tmp_path_factory.mktemp("undisturbed"))), **LONG).files


def assert_same(files: SweepFiles, other: SweepFiles) -> None:
    pd.testing.assert_frame_equal(runs_of(files), runs_of(other))
    pd.testing.assert_frame_equal(curves_of(files), curves_of(other))


def test_a_sweep_is_run_stopped_continued_widened_and_compacted(objects: ObjectStore, tmp_path: Path) -> None:
    address = objects.address("widened")

    def stop(launch: Launch) -> None:
        if launch.driver.progress.done:
            launch.driver.stop(INTERRUPTED)

    first = run(Store(address), stop, resources={"pack": 2})
    assert first.driver.progress.statuses == {"done": 2}
    second = run(Store(address), resources={"pack": 2})
    assert second.driver.progress.statuses == {"done": 4}
    wider = run(Store(address), resources={"pack": 2}, seeds=3)
    assert wider.driver.progress.statuses == {"done": 3}
    assert [len(wider.files.parts(table)) for table in ("runs", "curves")] == [1, 1]
    assert len(wider.files.names("revisions")) == 2
    assert_same(wider.files, run(Store(str(tmp_path)), seeds=3).files)
    sweep = mislabel.load(address, "bowls")
    assert len(sweep.cells("loss")) == 3
    assert len(sweep.curves) == 27


@pytest.fixture
def in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers report after every stretch of steps: for the first time when their packs have just begun."""
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)


@pytest.mark.usefixtures("in_small_steps")
def test_a_checkpoint_is_taken_up_from_an_object_store(objects: ObjectStore, undisturbed: SweepFiles) -> None:
    address = objects.address("checkpoints")
    first = run(Store(address), lambda launch: launch.driver.stop(INTERRUPTED), **LONG)
    assert len(list(first.files.checkpoints())) == 1
    second = run(Store(address), **LONG)
    assert len(second.plan.resumed) == 1
    assert list(second.files.checkpoints()) == []
    assert_same(second.files, undisturbed)


def test_a_damaged_part_is_set_aside_and_its_runs_are_run_again(objects: ObjectStore, tmp_path: Path) -> None:
    store = Store(objects.address("damaged"))
    files = run(store, resources={"pack": 2}).files
    (part,) = files.parts("runs")
    files.write_text(f"curves/{part}.parquet", "not a table")
    with pytest.raises(StoreError, match=rf"s3://bucket/damaged/bowls/curves/{part}.parquet\?endpoint.*: has 11 bytes"):
        files.read("curves")
    assert run(store).driver.progress.statuses == {"done": 6}
    assert files.names("set-aside/curves") == [f"{part}.parquet"]
    assert_same(files, run(Store(str(tmp_path))).files)


def test_commands_take_the_address(
    objects: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    address = objects.address("commands")
    (tmp_path / "bowls.yaml").write_text(yaml.safe_dump(bowl_values(seeds=1)))
    monkeypatch.chdir(tmp_path)

    def said(*words: str) -> str:
        monkeypatch.setattr("sys.argv", ["mislabel", *words, "--store", address])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code, capfd.readouterr()
        return capfd.readouterr().out

    assert "3 runs" in said("plan", "bowls.yaml")
    capfd.readouterr()
    cells = said("run", "bowls.yaml", "--inline", "--no-mlflow")
    assert "bowls" in said("list")
    assert ["state", "done"] in [line.split() for line in said("status", "bowls").splitlines()]
    assert said("results", "bowls") == cells != ""
    assert os.listdir(tmp_path) == ["bowls.yaml"]


KILLED = """
import os, signal, sys
from mislabel.sweeps.run.lease import Lease, newest_generation, take
from mislabel.sweeps.store.store import Store
from tests.bowls import run

def kill(launch):
    if len(launch.files.parts("runs")) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

run(Store(sys.argv[1]), kill, resources={"pack": 1})
"""


@pytest.mark.faults
def test_a_killed_driver_leaves_what_it_wrote(objects: ObjectStore, tmp_path: Path) -> None:
    address = objects.address("killed")
    assert subprocess.run([sys.executable, "-c", KILLED, address], check=False).returncode == -signal.SIGKILL
    launch = run(Store(address))
    assert launch.driver.progress.statuses == {"done": 3}
    assert_same(launch.files, run(Store(str(tmp_path))).files)


@pytest.mark.faults
@pytest.mark.usefixtures("in_small_steps")
def test_an_object_store_that_is_away_for_a_while_is_waited_for(objects: ObjectStore, undisturbed: SweepFiles) -> None:
    launch = prepared(Store(objects.address("away")), **LONG)
    back = threading.Timer(4.0, objects.start)

    def cut(launch: Launch) -> None:
        if not back.ident:
            objects.end()
            back.start()

    run_inline(launch.driver, launch.files, CPU, lambda: cut(launch))
    launch.finish()
    back.join()
    assert launch.driver.broken is None
    assert launch.driver.progress.statuses == {"done": 6}
    assert_same(launch.files, undisturbed)


@pytest.mark.slow
@pytest.mark.faults
def test_one_that_stays_away_breaks_the_sweep_off_and_loses_nothing(
    objects: ObjectStore, undisturbed: SweepFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.launch.LONG_PATIENCE_SECONDS", 2.0)
    store = Store(objects.address("gone"), patience_seconds=1.0)
    launch = prepared(store, **LONG)
    try:
        run_inline(launch.driver, launch.files, CPU, lambda: objects.end() if launch.driver.progress.done else None)
        launch.finish()
        assert isinstance(launch.driver.broken, StoreError)
        with pytest.raises(StoreError, match="can't be reached"):
            launch.files.set_damaged_aside()
    finally:
        objects.start()
    again = prepared(store, **LONG)
    assert 0 < again.plan.missing < 6
    run_inline(again.driver, again.files, CPU, lambda: None)
    again.finish()
    assert_same(again.files, undisturbed)


def test_wrong_credentials_are_refused_with_what_is_needed(
    objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(StoreError, match="AWS_ACCESS_KEY_ID"):
        Store(objects.address("refused"))


def test_only_one_of_many_drivers_gets_the_lease(objects: ObjectStore) -> None:
    files = Store(objects.address("contested")).sweep("sweep")

    def attempt(_: int) -> Lease | None:
        try:
            return take(files)
        except SweepBusyError:
            return None

    with ThreadPoolExecutor(8) as pool:
        (lease,) = [lease for lease in pool.map(attempt, range(16)) if lease is not None]
    lease.renew()
    assert files.age_seconds("lease/000001.json") is not None
    lease.advance()
    assert newest_generation(files) == 2
    take(files, take_over=True)
    with pytest.raises(LeaseLostError):
        lease.advance()


def test_the_lease_waits_for_an_object_store_that_is_away(objects: ObjectStore) -> None:
    files = Store(objects.address("away")).sweep("sweep").with_patience(120)
    objects.end()
    back = threading.Timer(1.0, objects.start)
    back.start()
    assert take(files).generation == 1
    back.join()


def test_a_pack_costs_a_bounded_number_of_requests(objects: ObjectStore) -> None:
    spent = []
    with counted(objects.port) as (port, requests):
        for packs in (4, 12):
            requests.clear()
            run(Store(objects.address(f"counted-{packs}", port)), seeds=packs, resources={"pack": 3})
            spent.append(requests.copy())
    per_pack = (spent[1].total() - spent[0].total()) / 8
    assert per_pack < 40  # 27 when this was written, merging included


@pytest.mark.ray
@pytest.mark.faults
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
def test_workers_on_ray_write_to_an_object_store_and_wait_for_it(
    objects: ObjectStore, undisturbed: SweepFiles, pace: Pace
) -> None:
    from mislabel.cluster.tune.runner import connected, run_on_ray

    store = Store(objects.address("ray"))
    launch = prepared(store, **LONG)
    back = threading.Timer(4.0, objects.start)
    pace.hold()

    def cut() -> None:
        """Take the store away while packs train, and let them end while it is away."""
        if not back.ident:
            objects.end()
            back.start()
            pace.release()

    with connected(None):
        run_on_ray(launch.driver, store, launch.plan.spec.resources, 2, cut)
    back.join()
    launch.finish()
    assert launch.driver.broken is None
    assert launch.driver.progress.statuses == {"done": 6}
    assert_same(launch.files, undisturbed)
