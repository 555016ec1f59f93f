import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeps.errors import MislabelError, StoreError
from sweeps.store import TABLES, Store, SweepFiles
from tests.bowls import curves_of, run, runs_of

Row = dict[str, Any]


@pytest.fixture
def files(store: Store) -> SweepFiles:
    return store.sweep("a")


def tables(
    runs: Sequence[str], pack: str, status: str = "done", attempt: int = 1, loss: float = 1.0
) -> dict[str, pa.Table]:
    """Rows of some runs as a worker writes them; runs without a result have no curves and no metrics."""
    table = pa.table(
        {
            "run_id": pa.array(runs, pa.string()),
            "cell_id": pa.array([name.split("-")[0] for name in runs], pa.string()),
            "seed": pa.array([int(name.split("-")[1]) for name in runs], pa.int64()),
            "status": pa.array([status] * len(runs), pa.string()),
            "pack_id": pa.array([pack] * len(runs), pa.string()),
            "attempt": pa.array([attempt] * len(runs), pa.int64()),
        }
    )
    if status in ("failed", "lost"):
        return {"runs": table}
    steps = [0, 1, 2]
    curves = pa.table(
        {
            "run_id": [name for name in runs for _ in steps],
            "pack_id": [pack for _ in runs for _ in steps],
            "step": [step for _ in runs for step in steps],
            "loss": [loss / (step + 1) for _ in runs for step in steps],
        }
    )
    return {"runs": table.append_column("loss", pa.array([loss / 3] * len(runs))), "curves": curves}


def rows(files: SweepFiles, table: str = "runs", *columns: str) -> list[tuple[Any, ...]]:
    read = files.read(table, columns or ["run_id", "status"])
    return sorted(zip(*(column.to_pylist() for column in read.columns), strict=True))


def part_file(files: SweepFiles, table: str, part: str) -> Path:
    return Path(files.address) / table / f"{part}.parquet"


# Reading and writing


def test_what_is_written_is_read(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0", "a-1"], "p"))
    files.write_results("q", tables(["b-0"], "q"))
    assert rows(files) == [("a-0", "done"), ("a-1", "done"), ("b-0", "done")]
    assert len(files.read("curves")) == 9
    assert files.read("arrays").num_rows == 0


def test_writing_the_same_again_changes_nothing(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0", "a-1"], "p"))
    before = {path: path.read_bytes() for path in Path(files.address).rglob("*.parquet")}
    files.write_results("p", tables(["a-0", "a-1"], "p"))
    assert {path: path.read_bytes() for path in Path(files.address).rglob("*") if path.is_file()} == before


def test_columns_and_conditions_are_pushed_down(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0", "a-1", "b-0"], "p"))
    read = files.read("runs", ["seed"], pc.field("cell_id") == "a")
    assert read.column_names == ["seed"]
    assert read["seed"].to_pylist() == [0, 1]


def test_a_table_without_parts_is_empty(files: SweepFiles) -> None:
    assert files.read("runs", ["run_id", "seed"]).num_rows == 0
    assert files.columns("runs") == []


def test_a_part_of_failed_runs_has_no_metrics_and_the_table_has(files: SweepFiles) -> None:
    files.write_results("1", tables(["a-0"], "1", "failed"))
    files.write_results("2", tables(["a-1"], "2"))
    assert "loss" in files.columns("runs")
    assert rows(files, "runs", "run_id", "loss") == [("a-0", None), ("a-1", 1 / 3)]


def test_a_column_that_is_not_there_is_named_with_the_nearest(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0"], "p"))
    with pytest.raises(MislabelError, match="'los' is not a column of a/runs; did you mean loss"):
        files.read("runs", ["los"])


def test_pandas_reads_the_folders_as_flat_typed_tables(store: Store) -> None:
    launch = run(store, parameters={"x": {"values": [0, 1]}, "surface": "rough", "snapshots": 2})
    runs = pd.read_parquet(f"{launch.files.address}/runs")
    types = {name: str(kind) for name, kind in runs.dtypes.items()}
    expected = {"seed": "int64", "step": "int64", "x": "float64", "level": "int64", "tilted": "bool", "loss": "float64"}
    assert {name: types[name] for name in expected} == expected
    assert all(isinstance(value, str) for name in ("run_id", "surface", "status") for value in runs[name])
    assert types["started_at"] == types["finished_at"]
    assert types["started_at"].endswith("UTC]")
    assert len(runs) == runs["run_id"].nunique() == 4
    curves = pd.read_parquet(f"{launch.files.address}/curves")
    assert str(curves["loss"].dtype) == "float64"
    assert len(curves) == 4 * 3
    arrays = pd.read_parquet(f"{launch.files.address}/arrays")
    assert len(arrays["values"].iloc[0]) == 2


# Whole or not at all

KILLED = """
import os, signal, sys
import sweeps.store
from sweeps.filesystem import FileSystem
from tests.sweeps.test_store import tables

put = FileSystem.put
def killed(filesystem, path, data):
    if "/runs/" in path:
        os.kill(os.getpid(), signal.SIGKILL)
    put(filesystem, path, data)

FileSystem.put = killed
sweeps.store.Store(sys.argv[1]).sweep("a").write_results("p", tables(["a-0", "a-1"], "p"))
"""


@pytest.mark.faults
def test_a_worker_killed_between_two_tables_leaves_no_run(files: SweepFiles) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(Path(files.address).parent)])
    assert done.returncode == -signal.SIGKILL
    assert files.parts("curves") == ["p"]
    assert rows(files) == []
    assert files.read("curves", ["run_id"]).num_rows == 0
    files.write_results("other", tables(["a-0"], "other"))
    assert len(files.read("curves")) == 3
    assert files.set_damaged_aside() == []
    assert files.parts("curves") == ["other"]


def test_unfinished_files_of_killed_workers_are_hidden_and_swept_out(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0"], "p"))
    unfinished = Path(files.address) / "runs" / ".0123"
    unfinished.write_bytes(b"half")
    assert files.parts("runs") == ["p"]
    assert len(pd.read_parquet(f"{files.address}/runs")) == 1
    files.set_damaged_aside()
    assert not unfinished.exists()


# Runs that stand in several parts


def test_of_a_run_that_was_run_again_the_last_attempt_counts(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0", "a-1"], "p", "lost"))
    files.write_results("b", tables(["a-1", "b-0"], "b", attempt=2))
    assert rows(files) == [("a-0", "lost"), ("a-1", "done"), ("b-0", "done")]


def test_the_same_pack_run_again_after_a_merge_counts_once(files: SweepFiles) -> None:
    """A merged part keeps each row's pack: the row that counts can't be told by it."""
    files.write_results("p", tables(["a-0", "a-1"], "p", "lost"))
    files.write_results("q", tables(["b-0"], "q"))
    files.compact()
    files.write_results("p", tables(["a-0", "a-1"], "p", attempt=2))
    assert rows(files) == [("a-0", "done"), ("a-1", "done"), ("b-0", "done")]
    files.compact()
    assert rows(files) == [("a-0", "done"), ("a-1", "done"), ("b-0", "done")]
    assert len(files.parts("runs")) == 1
    assert len(pd.read_parquet(f"{files.address}/runs")) == 3


@pytest.mark.parametrize(
    ("statuses", "counts"),
    [(("stopped", "done"), "done"), (("diverged", "stopped"), "diverged"), (("lost", "stopped"), "stopped"),
     (("stopped", "failed"), "stopped")],
)  # fmt: skip
@pytest.mark.parametrize("attempts", [(1, 2), (2, 1)])
def test_a_run_that_was_trained_to_its_end_counts_before_one_that_was_stopped(
    files: SweepFiles, statuses: tuple[str, str], counts: str, attempts: tuple[int, int]
) -> None:
    for part, status, attempt in zip("pq", statuses, attempts, strict=True):
        files.write_results(part, tables(["a-0"], part, status, attempt=attempt))
    assert rows(files) == [("a-0", counts)]
    files.compact()
    assert rows(files) == [("a-0", counts)]


def test_a_result_counts_before_a_failure_whatever_the_attempt(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0"], "p", "failed", attempt=3))
    files.write_results("q", tables(["a-0", "a-1"], "q", attempt=1))
    assert rows(files) == [("a-0", "done"), ("a-1", "done")]


def test_curves_of_a_run_come_from_the_part_that_its_row_comes_from(files: SweepFiles) -> None:
    files.write_results("p", tables(["a-0", "a-1"], "p", loss=1.0))
    files.write_results("q", tables(["a-1", "a-2"], "q", loss=6.0, attempt=2))
    curves = files.read("curves", ["run_id", "loss"]).to_pandas().groupby("run_id")["loss"].agg(["max", "size"])
    assert curves["size"].tolist() == [3, 3, 3]
    assert curves["max"].tolist() == [1.0, 6.0, 6.0]
    where = pc.field("run_id") == "a-1"
    assert files.read("curves", ["loss"], where)["loss"].to_pylist() == [6.0, 3.0, 2.0]


def test_many_repeated_runs_are_read_in_no_time(files: SweepFiles) -> None:
    runs = [f"c{i}-0" for i in range(5000)]
    files.write_results("p", tables(runs, "p", "lost"))
    files.write_results("q", tables(runs, "q", attempt=2))
    assert {status for _, status in rows(files)} == {"done"}
    assert len(rows(files)) == 5000


# Merging


def written_in_parts(files: SweepFiles, seed: int = 0) -> pd.DataFrame:
    """A store of a dozen parts, some of failed runs, some run again; returns its runs."""
    choose = random.Random(seed)
    for i in range(12):
        runs = [f"c{choose.randrange(30)}-{j}" for j in range(3)]
        status = choose.choice(["done", "done", "stopped", "diverged", "failed", "lost"])
        files.write_results(f"p{i}", tables(runs, f"p{i}", status, attempt=i, loss=float(i)))
    return contents(files)["runs"]


def contents(files: SweepFiles) -> dict[str, pd.DataFrame]:
    order = {"runs": ["run_id"], "curves": ["run_id", "step"]}
    return {
        name: files.read(name).to_pandas().sort_values(keys, ignore_index=True).sort_index(axis=1)
        for name, keys in order.items()
    }


@settings(max_examples=10)
@given(seed=st.integers(0, 1000))
def test_merging_keeps_every_value(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    files = Store(str(tmp_path_factory.mktemp("store"))).sweep("a")
    written_in_parts(files, seed)
    before = contents(files)
    files.compact()
    for name, table in contents(files).items():
        pd.testing.assert_frame_equal(table, before[name])
    assert len(files.parts("runs")) == 1
    assert pd.read_parquet(f"{files.address}/runs")["run_id"].is_unique


def test_merging_twice_changes_nothing(files: SweepFiles) -> None:
    written_in_parts(files)
    files.compact()
    before = {path: path.stat().st_mtime_ns for path in Path(files.address).rglob("*.parquet")}
    files.compact()
    assert {path: path.stat().st_mtime_ns for path in Path(files.address).rglob("*.parquet")} == before


def half_merged(files: SweepFiles) -> Iterator[SweepFiles]:
    """The store as a crash could leave it after each step of a merge: files appear, then files go, one by one."""
    old = Path(files.address)
    merged = old.parent / "merged"
    shutil.copytree(old, merged)
    SweepFiles(files._fs, str(merged), "merged", str(merged.parent)).compact()
    new = [path.relative_to(merged) for name in TABLES for path in sorted((merged / name).glob("*.parquet"))]
    gone = [path.relative_to(old) for name in reversed(TABLES) for path in sorted((old / name).glob("*.parquet"))]
    for step in range(len(new) + len(gone) + 1):
        folder = old.parent / f"crash-{step}"
        shutil.copytree(old, folder)
        for path in new[:step]:
            shutil.copy(merged / path, folder / path)
        for path in gone[: max(0, step - len(new))]:
            (folder / path).unlink()
        yield SweepFiles(files._fs, str(folder), folder.name, str(folder.parent))


@pytest.mark.faults
def test_a_merge_cut_short_anywhere_loses_and_doubles_nothing(files: SweepFiles) -> None:
    written_in_parts(files)
    expected = contents(files)
    steps = 0
    for crashed in half_merged(files):
        for name, table in contents(crashed).items():
            pd.testing.assert_frame_equal(table, expected[name])
        assert crashed.set_damaged_aside() == []
        crashed.compact()
        for name, table in contents(crashed).items():
            pd.testing.assert_frame_equal(table, expected[name])
        assert len(crashed.parts("runs")) == 1
        steps += 1
    assert steps > 20


def test_large_parts_are_left_alone(files: SweepFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    written_in_parts(files)
    before = contents(files)
    monkeypatch.setattr("sweeps.store._PART_BYTES", 12_000)
    files.compact()
    sizes = [sum(part_file(files, name, p).stat().st_size for name in TABLES if part_file(files, name, p).exists())
             for p in files.parts("runs")]  # fmt: skip
    assert 1 < len(sizes) < 12
    assert max(sizes) < 2 * 12_000
    pd.testing.assert_frame_equal(contents(files)["runs"], before["runs"])


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
def test_a_damaged_part_is_named_then_set_aside_with_all_of_its_runs(files: SweepFiles, table: str, kind: str) -> None:
    files.write_results("good", tables(["a-0"], "good"))
    files.write_results("bad", tables(["b-0", "b-1"], "bad"))
    damage(part_file(files, table, "bad"), kind)
    with pytest.raises(StoreError) as caught:
        files.read(table)
    assert f"{files.address}/{table}/bad.parquet: damaged" in str(caught.value)
    assert "sets it aside and runs its runs again" in str(caught.value)
    moved = files.set_damaged_aside()
    assert sorted(moved) == [f"{files.address}/curves/bad.parquet", f"{files.address}/runs/bad.parquet"]
    assert rows(files) == [("a-0", "done")]
    assert len(files.read("curves")) == 3
    assert (Path(files.address) / "set-aside" / table / "bad.parquet").exists()
    assert files.set_damaged_aside() == []


@pytest.mark.faults
def test_no_flipped_byte_changes_a_value_unnoticed(files: SweepFiles) -> None:
    files.write_results("p", tables([f"c{i}-0" for i in range(50)], "p"))
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
    assert second.feed.progress.statuses == {"done": 6}
    pd.testing.assert_frame_equal(runs_of(second.files), expected)
    pd.testing.assert_frame_equal(curves_of(second.files), curves)


# The store itself


def test_a_new_store_says_its_layout(store: Store) -> None:
    store.prepare()
    assert json.loads(Path(store.address, "store.json").read_text()) == {"schema": 1}
    store.prepare()
    assert store.names() == []


def test_a_newer_layout_is_refused(store: Store) -> None:
    store.prepare()
    Path(store.address, "store.json").write_text('{"schema": 2}')
    with pytest.raises(StoreError, match=r"written by a newer Mislabel \(layout 2, this one reads up to 1\); upgrade"):
        Store(store.address)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense", '{"schema": "x"}', '{"schema": null}', "\xff"])
def test_a_damaged_layout_file_is_named(store: Store, text: str) -> None:
    store.prepare()
    Path(store.address, "store.json").write_text(text)
    with pytest.raises(StoreError, match=r'store.json: is damaged; it should read {"schema": 1}'):
        Store(store.address)


def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    store = Store(str(tmp_path / "store"))
    with pytest.raises(StoreError, match="store: is not a folder; give another store with --store"):
        store.prepare()
    with pytest.raises(StoreError, match="store: is not a folder; give another store with --store"):
        store.names()


def test_an_address_of_no_known_kind_is_refused() -> None:
    with pytest.raises(StoreError, match="nowhere://x: not an address that a store can have"):
        Store("nowhere://x")


def test_sweeps_are_listed_once_they_have_a_spec(store: Store) -> None:
    store.sweep("b").write_text("spec.yaml", "name: b")
    store.sweep("a").write_text("spec.yaml", "name: a")
    store.sweep("c").write_text("other", "")
    assert store.names() == ["a", "b"]
    assert store.existing("a").name == "a"
    with pytest.raises(MislabelError, match=r"'c' is not a sweep of the store .*; it holds a, b"):
        store.existing("c")


def test_a_sweep_that_is_not_there_is_named_with_the_nearest(store: Store) -> None:
    with pytest.raises(MislabelError, match="it is empty"):
        store.existing("quickstart")
    store.sweep("quickstart").write_text("spec.yaml", "")
    with pytest.raises(MislabelError, match=r"did you mean quickstart\?"):
        store.existing("quikstart")


def test_each_change_of_a_spec_is_kept(files: SweepFiles) -> None:
    for text in ("one", "one", "two", "one"):
        files.revise_spec(text)
    assert files.read_text("spec.yaml") == "one"
    assert [files.read_text(f"revisions/{i:04}.yaml") for i in (1, 2, 3, 4)] == ["one", "two", "one", None]


def test_small_files_are_read_written_and_removed(files: SweepFiles) -> None:
    assert files.read_json("x.json") is None
    files.write_json("x.json", {"a": [1]})
    assert files.read_json("x.json") == {"a": [1]}
    files.write_text("x.json", "{half")
    assert files.read_json("x.json") is None
    files.remove("x.json")
    files.remove("x.json")
    assert files.read_text("x.json") is None


def test_a_checkpoint_is_known_once_it_is_complete(files: SweepFiles) -> None:
    files.save_checkpoint("p", b"data", ["a-0", "a-1"])
    assert list(files.checkpoints()) == [("p", ["a-0", "a-1"])]
    assert files.load_checkpoint("p") == b"data"
    Path(files.address, "checkpoints", "p.pt").unlink()
    assert list(files.checkpoints()) == []
    files.drop_checkpoint("p")
    assert files.load_checkpoint("p") is None
    assert os.listdir(Path(files.address, "checkpoints")) == []


# Anywhere


@pytest.mark.parametrize("make", ["file", "file with a slash", "mock"])
def test_a_sweep_runs_on_any_address(tmp_path: Path, make: str) -> None:
    address = {"file": f"file://{tmp_path}/s", "file with a slash": f"file://{tmp_path}/s/", "mock": "mock:///bucket/s"}
    store = Store(address[make])
    launch = run(store, parameters={"x": {"values": [0, 1]}, "snapshots": 1})
    assert store.names() == ["bowls"]
    assert runs_of(launch.files)["status"].tolist() == ["done"] * 4
    assert len(launch.files.parts("runs")) == 1
    assert len(curves_of(launch.files)) == 12
    assert run(store, parameters={"x": {"values": [0, 1]}, "snapshots": 1}).plan.missing == 0
    assert (store.folder is None) == (make == "mock")


def test_a_relative_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store("results")
    monkeypatch.chdir("/")
    store.sweep("a").write_text("spec.yaml", "x")
    assert (tmp_path / "results" / "a" / "spec.yaml").exists()
