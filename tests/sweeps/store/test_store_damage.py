"""A store after a worker was killed or files were damaged: only complete runs count."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from mislabel.sweeps.errors import StoreError
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
Store(sys.argv[1]).sweep("bowls").write_part("p", tables(["a-0", "a-1"], "p"))
"""


@pytest.mark.faults
def test_a_worker_killed_between_two_tables_leaves_no_run(files: SweepFiles) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(Path(files.address).parent)])
    assert done.returncode == -signal.SIGKILL
    assert files.parts("curves") == ["p"]
    assert rows(files) == []
    assert files.read("curves", ["run_id"]).num_rows == 0
    files.write_part("other", tables(["a-0"], "other"))
    assert len(files.read("curves")) == 3
    assert files.set_damaged_aside() == []
    assert files.parts("curves") == ["other"]


def test_unfinished_files_of_killed_workers_are_hidden_and_removed(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0"], "p"))
    unfinished = Path(files.address) / "runs" / ".0123"
    unfinished.write_bytes(b"half")
    assert files.parts("runs") == ["p"]
    assert len(pd.read_parquet(f"{files.address}/runs")) == 1
    files.set_damaged_aside()
    assert not unfinished.exists()


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
    files.write_part("good", tables(["a-0"], "good"))
    files.write_part("bad", tables(["b-0", "b-1"], "bad"))
    damage(part_file(files, table, "bad"), kind)
    with pytest.raises(StoreError) as caught:
        files.read(table)
    assert str(caught.value).startswith(f"{files.address}/{table}/bad.parquet: ")
    moved = files.set_damaged_aside()
    assert sorted(moved) == [f"{files.address}/curves/bad.parquet", f"{files.address}/runs/bad.parquet"]
    assert rows(files) == [("a-0", "done")]
    assert len(files.read("curves")) == 3
    assert (Path(files.address) / "set-aside" / table / "bad.parquet").exists()
    assert files.set_damaged_aside() == []


@pytest.mark.faults
def test_no_flipped_byte_changes_a_value_unnoticed(files: SweepFiles) -> None:
    files.write_part("p", tables([f"c{i}-0" for i in range(50)], "p"))
    path = part_file(files, "curves", "p")
    whole, expected = path.read_bytes(), files.read("curves")
    noticed = 0
    # The footer has no checksum: a byte in it may rename a column, but changes no value.
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for at in range(4, footer, 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            read = files.read("curves")
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
