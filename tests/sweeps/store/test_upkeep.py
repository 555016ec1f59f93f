"""Parts of a store are merged, and replaced parts are removed."""

import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.store.parts import TABLES
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.examples import examples
from tests.sweeps.run.parts import part_file, tables


def merge(files: SweepFiles) -> None:
    files.compact()
    files.remove_replaced()


def written_in_parts(files: SweepFiles, seed: int = 0) -> pd.DataFrame:
    """A store of a dozen parts, some of failed runs, some run again; returns its runs."""
    choose = random.Random(seed)
    for i in range(12):
        runs = [f"c{choose.randrange(30)}-{j}" for j in range(3)]
        status = choose.choice(["done", "done", "stopped", "diverged", "failed", "lost"])
        files.write_results(tables(runs, f"p{i}", status, attempt=i, loss=float(i)))
    return contents(files)["runs"]


def contents(files: SweepFiles) -> dict[str, pd.DataFrame]:
    order = {"runs": ["run_id"], "curves": ["run_id", "step"]}
    return {
        name: files.read(name).to_pandas().sort_values(keys, ignore_index=True).sort_index(axis=1)
        for name, keys in order.items()
    }


@pytest.mark.long
@examples(10)
@given(seed=st.integers(0, 1000))
def test_merging_keeps_every_value(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    files = Store(str(tmp_path_factory.mktemp("store"))).sweep("a")
    written_in_parts(files, seed)
    before = contents(files)
    files.compact()
    for name, table in contents(files).items():
        pd.testing.assert_frame_equal(table, before[name])
    assert len(files.parts("runs")) == 13
    files.remove_replaced()
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
    merge(SweepFiles(files._fs, str(merged), "merged", str(merged.parent)))
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


def test_parts_with_rows_that_another_part_has_are_rewritten_whatever_their_size(
    files: SweepFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs that read the folder must find each run once."""
    monkeypatch.setattr("mislabel.sweeps.store.upkeep._PART_BYTES", 1)
    files.write_results(tables(["a-0", "a-1"], "p", "lost"))
    files.write_results(tables(["a-1", "a-2"], "q", attempt=2))
    files.write_results(tables(["a-1"], "r", "failed", attempt=3))
    before = contents(files)
    merge(files)
    assert sorted(pd.read_parquet(f"{files.address}/runs")["run_id"]) == ["a-0", "a-1", "a-2"]
    assert len(pd.read_parquet(f"{files.address}/curves")) == 2 * 3
    for name, table in contents(files).items():
        pd.testing.assert_frame_equal(table, before[name])


@pytest.mark.long
@pytest.mark.faults
def test_readers_see_every_run_once_while_parts_are_written_merged_and_removed(files: SweepFiles) -> None:
    written, rounds, failures = [0], 25, list[BaseException]()

    def work() -> None:
        try:
            for i in range(1, rounds + 1):
                held = files.held(i, lambda: None)
                held.remove_leftovers()
                for j in range(2):
                    held.write_results(tables([f"c{i}-{j}"], "p"))
                    written[0] += 1
                held.compact()
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=work)
    writer.start()
    reads = 0
    while writer.is_alive():
        before = written[0]
        reader = SweepFiles(files._fs, files._root, files.name, files.store)
        runs, curves = (reader.read(table, ["run_id"])["run_id"].to_pylist() for table in ("runs", "curves"))
        after = written[0] + 1
        assert before <= len(runs) == len(set(runs)) <= after
        assert before <= len(curves) / 3 <= after + 2
        assert reader.damage(whole=True) == {}
        reads += 1
    writer.join()
    assert failures == []
    assert reads > 3
    assert len(files.read("runs")) == 2 * rounds


@pytest.mark.long
@pytest.mark.faults
def test_an_interrupted_merge_loses_and_repeats_nothing(files: SweepFiles) -> None:
    written_in_parts(files)
    expected = contents(files)
    steps = 0
    for crashed in half_merged(files):
        for name, table in contents(crashed).items():
            pd.testing.assert_frame_equal(table, expected[name])
        assert crashed.set_damaged_aside() == {}
        crashed.remove_replaced()
        merge(crashed)
        for name, table in contents(crashed).items():
            pd.testing.assert_frame_equal(table, expected[name])
        assert {len(crashed.parts(table)) for table in ("runs", "curves")} == {1}
        steps += 1
    assert steps > 20


def test_large_parts_are_left_alone(files: SweepFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    written_in_parts(files)
    before = contents(files)
    monkeypatch.setattr("mislabel.sweeps.store.upkeep._PART_BYTES", 20_000)
    merge(files)
    sizes = [sum(part_file(files, name, p).stat().st_size for name in TABLES if part_file(files, name, p).exists())
             for p in files.parts("runs")]  # fmt: skip
    assert 1 < len(sizes) < 12
    assert max(sizes) < 2 * 20_000
    pd.testing.assert_frame_equal(contents(files)["runs"], before["runs"])


def test_a_part_that_a_replaced_driver_left_incomplete_is_removed_if_other_parts_have_its_runs(store: Store) -> None:
    first, second = store.sweep("a", 1), store.sweep("a", 2)
    copy = first.write_results(tables(["c0-0", "c1-0"], "p0"))
    second.write_results(tables(["c0-0", "c1-0"], "p1"))
    lost = first.write_results(tables(["c2-0"], "p2"))
    for part in (copy, lost):
        part_file(first, "curves", part).unlink()
    third = store.sweep("a", 3)
    assert list(third.set_damaged_aside()) == [f"{third.address}/curves/{lost}.parquet"]
    third.remove_leftovers()
    assert copy not in third.parts("runs")
    assert third.names("set-aside/runs") == [f"{lost}.parquet"]
    assert sorted(third.read("runs")["run_id"].to_pylist()) == ["c0-0", "c1-0"]
