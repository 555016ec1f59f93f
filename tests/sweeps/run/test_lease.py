import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mislabel.sweeps.errors import LeaseLostError, SweepBusyError
from mislabel.sweeps.process import Process
from mislabel.sweeps.run import lease as module
from mislabel.sweeps.run.lease import Holder, Lease, holder_of, is_held, newest_generation, running_among, take
from mislabel.sweeps.store.store import Store, SweepFiles


@pytest.fixture
def files(store: Store) -> SweepFiles:
    files = store.sweep("sweep")
    files.write_text("spec.yaml", "name: sweep")
    return files


@pytest.fixture
def other() -> Iterator["subprocess.Popen[bytes]"]:
    """Another process of this machine, alive until the test ends it."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def written(files: SweepFiles, generation: int = 1, **changes: Any) -> Holder:
    """Write a lease as another driver would."""
    holder = Holder.here().model_copy(update=changes)
    files.write_text(f"lease/{generation:06}.json", holder.model_dump_json())
    return holder


def age(files: SweepFiles, seconds: float, generation: int = 1) -> None:
    """Make the lease this many seconds old."""
    path = Path(files.address, f"lease/{generation:06}.json")
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime - seconds))


def test_a_lease_names_its_holder(files: SweepFiles) -> None:
    lease = take(files)
    holder = holder_of(files, lease.generation)
    assert holder is not None
    assert Process(holder.pid, holder.started) == Process.own()
    assert lease.files.generation == lease.generation == newest_generation(files) == 1


def test_only_one_of_many_gets_the_lease(files: SweepFiles) -> None:
    def attempt(_: int) -> Lease | None:
        try:
            return take(files)
        except SweepBusyError:
            return None

    with ThreadPoolExecutor(8) as pool:
        leases = list(pool.map(attempt, range(32)))
    assert len([lease for lease in leases if lease is not None]) == 1


def test_a_sweep_that_another_process_runs_is_refused(files: SweepFiles, other: "subprocess.Popen[bytes]") -> None:
    process = Process.of(other.pid)
    assert process is not None
    written(files, pid=process.pid, started=process.started, user="ada", host="elbe")
    with pytest.raises(SweepBusyError) as caught:
        take(files)
    assert {str(other.pid), "ada", "elbe,"} <= set(str(caught.value).split())


def test_a_driver_that_was_killed_blocks_nobody(files: SweepFiles, other: "subprocess.Popen[bytes]") -> None:
    process = Process.of(other.pid)
    assert process is not None
    written(files, pid=process.pid, started=process.started)
    other.kill()
    # Not waited for: a process that has ended keeps its number until then.
    while process.lives:
        pass
    assert take(files).generation == 2


def test_a_process_that_reuses_the_number_of_a_dead_driver_blocks_nobody(files: SweepFiles) -> None:
    written(files, started="another time")
    assert take(files).generation == 2


def test_a_released_lease_can_be_taken(files: SweepFiles) -> None:
    take(files).release()
    assert take(files).generation == 2


@pytest.mark.long
@pytest.mark.parametrize(("silent", "held"), [(50, True), (70, False)])
def test_a_driver_on_another_machine_is_dead_after_a_minute_without_renewal(
    files: SweepFiles, monkeypatch: pytest.MonkeyPatch, silent: int, held: bool
) -> None:
    monkeypatch.setattr(module, "_WATCH_SECONDS", 0.5)
    written(files, numbering="elsewhere", host="elsewhere")
    age(files, silent)
    assert is_held(files, 1) is held


@pytest.mark.parametrize("jump", [365 * 86400, -365 * 86400], ids=["forward", "back"])
def test_a_driver_that_renews_its_lease_lives_whatever_the_clock_says(
    files: SweepFiles, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    holder = written(files, numbering="elsewhere")
    age(files, jump)

    def sleep(seconds: float) -> None:
        written(files, **{**holder.model_dump(), "beats": 1})
        age(files, jump)

    monkeypatch.setattr("mislabel.sweeps.run.lease.time.sleep", sleep)
    assert is_held(files, 1)


def test_a_driver_elsewhere_that_releases_its_lease_while_we_watch_is_dead(
    files: SweepFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = written(files, numbering="elsewhere")
    age(files, 600)
    released = {**holder.model_dump(), "released": True}
    monkeypatch.setattr("mislabel.sweeps.run.lease.time.sleep", lambda _: written(files, **released) and None)
    assert not is_held(files, 1)


@pytest.mark.long
@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"pid": "x"}', b"\xff\xfe"])
def test_a_damaged_lease_counts_until_it_is_silent(
    files: SweepFiles, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(module, "_WATCH_SECONDS", 0.5)
    files.write("lease/000001.json", data)
    with pytest.raises(SweepBusyError):
        take(files)
    age(files, 70)
    assert take(files).generation == 2


def test_sweeps_that_run_are_told_from_those_that_died(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """For people to see, without writing to the store."""
    sweeps = {name: store.sweep(name) for name in ("never", "here", "ended", "fresh", "silent", "slow")}
    lease = take(sweeps["here"])
    written(sweeps["ended"], released=True)
    written(sweeps["fresh"], numbering="elsewhere")
    written(sweeps["silent"], numbering="elsewhere")
    slow = {**written(sweeps["slow"], numbering="elsewhere").model_dump(), "beats": 1}
    monkeypatch.setattr("mislabel.sweeps.run.lease.time.sleep", lambda _: written(sweeps["slow"], **slow))
    for name in ("silent", "slow"):
        age(sweeps[name], 70)
    assert running_among(list(sweeps.values())) == {"here", "fresh", "slow"}
    assert lease.lost is None


def test_a_renewal_changes_the_file_and_nothing_else(files: SweepFiles) -> None:
    lease = take(files)
    before = holder_of(files, 1)
    lease.renew()
    after = holder_of(files, 1)
    assert before is not None
    assert after == before.model_copy(update={"beats": 1})


def test_a_thread_renews_the_lease(files: SweepFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.01)
    lease = take(files)
    while (found := holder_of(files, 1)) is None or found.beats < 3:
        pass
    lease.release()
    assert json.loads(files.read_text("lease/000001.json") or "")["released"]


def test_a_driver_that_was_replaced_notices_before_it_writes(
    files: SweepFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHECK_SECONDS", 0.0)
    first = take(files)
    first.files.write_text("a", "1")
    second = take(files, take_over=True)
    assert (first.generation, second.generation) == (1, 2)
    for change in (
        lambda: first.files.write_text("a", "2"),
        lambda: first.files.append_text("a", "2"),
        lambda: first.files.remove("a"),
        first.advance,
    ):
        with pytest.raises(LeaseLostError, match=str(os.getpid())):
            change()
    assert files.read_text("a") == "1"
    first.release()
    assert is_held(files, 2)
    second.files.write_text("a", "3")


def test_the_holder_can_move_to_the_next_generation(files: SweepFiles) -> None:
    lease = take(files)
    lease.advance()
    assert lease.files.generation == newest_generation(files) == 2
    assert files.names("lease") == ["000002.json"]
    lease.release()
    assert take(files).generation == 3


def test_a_generation_is_later_than_all_revisions_of_an_older_version(files: SweepFiles) -> None:
    for number in (1, 2, 3):
        files.write_text(f"revisions/{number:04}.yaml", "old")
    assert take(files).generation == 4


def test_few_files_are_left_of_many_leases(files: SweepFiles) -> None:
    for _ in range(5):
        take(files).release()
    assert len(files.names("lease")) <= 2


def test_a_launch_that_is_refused_leaves_no_folder(store: Store) -> None:
    take(store.sweep("mistake")).release()
    assert store.folder is not None
    assert os.listdir(store.folder) == []


def test_the_thread_ends_with_its_lease(files: SweepFiles) -> None:
    lease = take(files)
    ended = lease._ended
    del lease
    assert ended.is_set()


def test_a_holder_does_not_use_a_generation_that_was_used_and_removed(files: SweepFiles) -> None:
    """A driver is paused, another one takes over and moves on, and removes the file of its first generation."""
    paused = take(files)
    successor = take(files, take_over=True)
    successor.advance()
    (Path(files.address) / "lease/000002.json").unlink(missing_ok=True)
    with pytest.raises(LeaseLostError):
        paused.advance()
    assert paused.lost is not None
    assert newest_generation(files) == successor.generation == 3
    assert "000002.json" not in files.names("lease")


def test_a_driver_that_was_paused_before_it_took_the_lease_takes_the_newest(
    files: SweepFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.newest_generation
    looked: list[int] = []

    def newest(files: SweepFiles) -> int:
        found = real(files)
        if not looked:  # other drivers run and end between this look and the creation of the file
            looked.append(found)
            lease = take(files)
            lease.advance()
            lease.release()
            (Path(files.address) / "lease/000001.json").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(module, "newest_generation", newest)
    assert take(files).generation == 3
    assert "000001.json" not in files.names("lease")
