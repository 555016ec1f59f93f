"""A store after a worker was killed or files were damaged: only complete runs count."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from mislabel.sweeps.errors import DamagedFileError, StoreError
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import curves_of, run, runs_of
from tests.sweeps.run.parts import part_file, rows, tables

# Whole or not at all


KILLED = """
import os, signal, sys
from mislabel.sweeps.store.store import Store
from mislabel.sweeps.store.filesystem import FileSystem
from tests.sweeps.run.parts import tables

put = FileSystem.put
def killed(filesystem, path, data):
    if "/runs/" in path:
        os.kill(os.getpid(), signal.SIGKILL)
    put(filesystem, path, data)

FileSystem.put = killed
Store(sys.argv[1]).sweep("bowls").write_results(tables(["a-0", "a-1"], "p"))
"""


@pytest.mark.long
@pytest.mark.faults
def test_a_worker_killed_between_two_tables_leaves_no_run(files: SweepFiles) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(Path(files.address).parent)])
    assert done.returncode == -signal.SIGKILL
    assert len(files.parts("curves")) == 1
    assert rows(files) == []
    assert files.read("curves", ["run_id"]).num_rows == 0
    other = files.write_results(tables(["a-0"], "other"))
    assert len(files.read("curves")) == 3
    assert files.set_damaged_aside() == {}
    files.remove_leftovers()
    assert files.parts("curves") == [other]


def test_unfinished_files_of_killed_workers_are_hidden_and_removed(files: SweepFiles) -> None:
    part = files.write_results(tables(["a-0"], "p"))
    names = ("runs/.0123.part", "proposals/a/.0123.part", ".0123.part", "lease/.clock-0123")
    unfinished = [Path(files.address, name) for name in names]
    for path in unfinished:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half")
    assert files.parts("runs") == [part]
    assert len(pd.read_parquet(f"{files.address}/runs")) == 1
    files.remove_leftovers()
    assert [path for path in unfinished if path.exists()] == []
    assert files.parts("runs") == [part]


def test_incomplete_checkpoints_are_removed(files: SweepFiles) -> None:
    for pack in ("whole", "undescribed", "description"):
        files.save_checkpoint(pack, b"data", ["a-0"])
    for name in files.names("checkpoints"):
        if name in ("undescribed-000000.json",) or (name.startswith("description") and name.endswith(".pt")):
            files.remove(f"checkpoints/{name}")
    files.remove_leftovers()
    assert {name.partition("-")[0] for name in files.names("checkpoints")} == {"whole"}
    assert files.load_checkpoint("whole") == b"data"


def of_generation(files: SweepFiles, generation: int) -> SweepFiles:
    return SweepFiles(files._fs, files._root, files.name, files.store, generation)


def test_parts_are_removed_one_generation_after_they_were_replaced(files: SweepFiles) -> None:
    first, second, third = (of_generation(files, number) for number in (1, 2, 3))
    old = [first.write_results(tables([run], "p")) for run in ("a-0", "a-1")]
    unfinished = part_file(first, "curves", first.write_results(tables(["a-2"], "p")))
    part_file(first, "runs", unfinished.stem).unlink()
    second.compact()
    second.remove_leftovers()
    assert set(old) < set(second.parts("runs"))
    assert not unfinished.exists()
    third.remove_leftovers()
    (merged,) = third.parts("runs")
    assert merged.startswith("000002-")
    assert rows(third) == [("a-0", "done"), ("a-1", "done")]


def test_unfinished_parts_of_the_present_generation_are_kept(files: SweepFiles) -> None:
    """A worker may be about to write the `runs` file."""
    present = of_generation(files, 2)
    part = present.write_results(tables(["a-0"], "p"))
    part_file(files, "runs", part).unlink()
    present.remove_leftovers()
    assert present.parts("curves") == [part]


# Damage


def damage(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    if kind == "truncated":
        del data[len(data) // 2 :]
    elif kind == "garbage":
        data[:] = os.urandom(len(data))
    elif kind == "empty":
        data.clear()
    elif kind == "flipped":
        # Behind the magic number and the header of the first page, well before the footer.
        data[60] ^= 0xFF
    path.write_bytes(bytes(data))


@pytest.mark.faults
@pytest.mark.parametrize("kind", ["truncated", "garbage", "empty", "flipped"])
@pytest.mark.parametrize("table", ["runs", "curves"])
def test_a_damaged_part_is_reported_and_set_aside_with_its_runs(files: SweepFiles, table: str, kind: str) -> None:
    files.write_results(tables(["a-0"], "good"))
    bad = files.write_results(tables(["b-0", "b-1"], "bad"))
    damage(part_file(files, table, bad), kind)
    with pytest.raises(StoreError) as caught:
        files.read(table)
    assert str(caught.value).startswith(f"{files.address}/{table}/{bad}.parquet: ")
    assert list(files.set_damaged_aside()) == [f"{files.address}/{table}/{bad}.parquet"]
    assert rows(files) == [("a-0", "done")]
    assert len(files.read("curves")) == 3
    for folder in ("runs", "curves"):
        assert (Path(files.address) / "set-aside" / folder / f"{bad}.parquet").exists()
    assert files.set_damaged_aside() == {}


def test_a_part_whose_curves_are_missing_does_not_count_and_is_set_aside(
    files: SweepFiles, messages: list[str]
) -> None:
    files.write_results(tables(["a-0"], "good"))
    bad = files.write_results(tables(["b-0", "b-1"], "bad"))
    missing = part_file(files, "curves", bad)
    missing.unlink()
    assert rows(files) == [("a-0", "done")]
    assert [str(missing) in message for message in messages] == [True]
    assert list(files.set_damaged_aside()) == [str(missing)]
    assert (Path(files.address) / "set-aside" / "runs" / missing.name).exists()
    assert rows(files) == [("a-0", "done")]


@pytest.mark.parametrize("table", ["runs", "curves"])
def test_a_folder_with_the_name_of_a_part_is_set_aside(files: SweepFiles, table: str) -> None:
    files.write_results(tables(["a-0"], "good"))
    path = part_file(files, table, files.write_results(tables(["b-0"], "bad")))
    path.unlink()
    path.mkdir()
    with pytest.raises(DamagedFileError) as caught:
        files.read("runs")
    assert str(caught.value).startswith(str(path))
    assert list(files.set_damaged_aside()) == [str(path)]
    assert rows(files) == [("a-0", "done")]


def test_a_file_of_another_part_is_found(files: SweepFiles) -> None:
    """It is a good Parquet file of the right size, with the right columns."""
    one, other = (files.write_results(tables([run], "p")) for run in ("a-0", "b-0"))
    shutil.copy(part_file(files, "curves", one), part_file(files, "curves", other))
    assert list(files.set_damaged_aside()) == [f"{files.address}/curves/{other}.parquet"]
    assert rows(files) == [("a-0", "done")]


def test_damage_of_a_merged_part_brings_back_the_parts_that_it_replaced(files: SweepFiles) -> None:
    files.write_results(tables(["a-0"], "p"))
    files.write_results(tables(["b-0"], "q"))
    old = files.parts("runs")
    files.compact()
    (merged,) = set(files.parts("runs")) - set(old)
    damage(part_file(files, "curves", merged), "flipped")
    assert list(files.set_damaged_aside()) == [f"{files.address}/curves/{merged}.parquet"]
    assert files.parts("runs") == old
    assert rows(files) == [("a-0", "done"), ("b-0", "done")]


def test_damage_of_a_replaced_part_does_not_matter(files: SweepFiles) -> None:
    old = files.write_results(tables(["a-0"], "p"))
    files.write_results(tables(["b-0"], "q"))
    files.compact()
    damage(part_file(files, "curves", old), "flipped")
    part_file(files, "curves", old).unlink()
    assert files.set_damaged_aside() == {}
    assert rows(files) == [("a-0", "done"), ("b-0", "done")]


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.parametrize("table", ["runs", "curves"])
def test_no_flipped_byte_changes_a_value_unnoticed(files: SweepFiles, table: str) -> None:
    part = files.write_results(tables([f"c{i}-0" for i in range(50)], "p"))
    path = part_file(files, table, part)
    whole, expected = path.read_bytes(), files.read(table)
    noticed = 0
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            read = of_generation(files, 0).read(table)  # as a new process reads it
        except StoreError:
            noticed += 1
            continue
        assert read.equals(expected), f"byte {at}"
    assert noticed > 20


@pytest.mark.faults
@pytest.mark.parametrize("table", ["runs", "curves"])
def test_the_runs_of_a_damaged_part_are_run_again(store: Store, table: str) -> None:
    first = run(store)
    expected, curves = runs_of(first.files), curves_of(first.files)
    (part,) = first.files.parts("runs")
    damage(part_file(first.files, table, part), "flipped")
    second = run(store)
    assert second.driver.progress.statuses == {"done": 6}
    pd.testing.assert_frame_equal(runs_of(second.files), expected)
    pd.testing.assert_frame_equal(curves_of(second.files), curves)


def test_a_part_is_not_damaged_if_this_process_cannot_open_files(store: Store) -> None:
    files = run(store).files
    (part,) = files.parts("runs")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd"))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(used)]  # none is free below the highest of them
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held) + 1, hard))
    try:
        with pytest.raises(StoreError) as caught:
            files._unreadable("runs", part, True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in held:
            os.close(descriptor)
    assert not isinstance(caught.value, DamagedFileError)
    assert files.set_damaged_aside() == {}
