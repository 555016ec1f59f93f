"""Parts of a store: which rows count of a run that stands in several, and how parts are merged."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.sweeps.store.tables import TABLES
from tests.sweeps.run.parts import part_file, rows, tables

# Runs that stand in several parts


def test_the_last_attempt_of_a_run_counts(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0", "a-1"], "p", "lost"))
    files.write_part("b", tables(["a-1", "b-0"], "b", attempt=2))
    assert rows(files) == [("a-0", "lost"), ("a-1", "done"), ("b-0", "done")]


def test_the_same_pack_run_again_after_a_merge_counts_once(files: SweepFiles) -> None:
    """A merged part keeps each row's pack id, so the pack id does not say which row counts."""
    files.write_part("p", tables(["a-0", "a-1"], "p", "lost"))
    files.write_part("q", tables(["b-0"], "q"))
    files.compact()
    files.write_part("p", tables(["a-0", "a-1"], "p", attempt=2))
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
def test_a_completed_run_counts_before_a_stopped_one(
    files: SweepFiles, statuses: tuple[str, str], counts: str, attempts: tuple[int, int]
) -> None:
    for part, status, attempt in zip("pq", statuses, attempts, strict=True):
        files.write_part(part, tables(["a-0"], part, status, attempt=attempt))
    assert rows(files) == [("a-0", counts)]
    files.compact()
    assert rows(files) == [("a-0", counts)]


def test_a_result_counts_before_a_later_failure(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0"], "p", "failed", attempt=3))
    files.write_part("q", tables(["a-0", "a-1"], "q", attempt=1))
    assert rows(files) == [("a-0", "done"), ("a-1", "done")]


def test_a_run_and_its_curves_come_from_the_same_part(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0", "a-1"], "p", loss=1.0))
    files.write_part("q", tables(["a-1", "a-2"], "q", loss=6.0, attempt=2))
    curves = files.read("curves", ["run_id", "loss"]).to_pandas().groupby("run_id")["loss"].agg(["max", "size"])
    assert curves["size"].tolist() == [3, 3, 3]
    assert curves["max"].tolist() == [1.0, 6.0, 6.0]
    where = pc.field("run_id") == "a-1"
    assert files.read("curves", ["loss"], where)["loss"].to_pylist() == [6.0, 3.0, 2.0]


def test_many_repeated_runs_are_read_quickly(files: SweepFiles) -> None:
    runs = [f"c{i}-0" for i in range(5000)]
    files.write_part("p", tables(runs, "p", "lost"))
    files.write_part("q", tables(runs, "q", attempt=2))
    assert {status for _, status in rows(files)} == {"done"}
    assert len(rows(files)) == 5000


# Merging


def written_in_parts(files: SweepFiles, seed: int = 0) -> pd.DataFrame:
    """A store of a dozen parts, some of failed runs, some run again; returns its runs."""
    choose = random.Random(seed)
    for i in range(12):
        runs = [f"c{choose.randrange(30)}-{j}" for j in range(3)]
        status = choose.choice(["done", "done", "stopped", "diverged", "failed", "lost"])
        files.write_part(f"p{i}", tables(runs, f"p{i}", status, attempt=i, loss=float(i)))
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
    """The store after each step of a merge, as a crash could leave it."""
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
def test_an_interrupted_merge_loses_and_repeats_nothing(files: SweepFiles) -> None:
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
    monkeypatch.setattr("mislabel.sweeps.store.tables._PART_BYTES", 12_000)
    files.compact()
    sizes = [sum(part_file(files, name, p).stat().st_size for name in TABLES if part_file(files, name, p).exists())
             for p in files.parts("runs")]  # fmt: skip
    assert 1 < len(sizes) < 12
    assert max(sizes) < 2 * 12_000
    pd.testing.assert_frame_equal(contents(files)["runs"], before["runs"])
