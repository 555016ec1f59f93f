import json
import os
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pytest

from mislabel.sweeps.errors import MislabelError, StoreError, WrongStoreError
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import curves_of, run, runs_of
from tests.sweeps.run.parts import rows, tables

# Reading and writing


def test_written_tables_can_be_read(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0", "a-1"], "p"))
    files.write_part("q", tables(["b-0"], "q"))
    assert rows(files) == [("a-0", "done"), ("a-1", "done"), ("b-0", "done")]
    assert len(files.read("curves")) == 9
    assert files.read("arrays").num_rows == 0


def test_writing_the_same_again_changes_nothing(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0", "a-1"], "p"))
    before = {path: path.read_bytes() for path in Path(files.address).rglob("*.parquet")}
    files.write_part("p", tables(["a-0", "a-1"], "p"))
    assert {path: path.read_bytes() for path in Path(files.address).rglob("*") if path.is_file()} == before


def test_columns_and_conditions_are_pushed_down(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0", "a-1", "b-0"], "p"))
    read = files.read("runs", ["seed"], pc.field("cell_id") == "a")
    assert read.column_names == ["seed"]
    assert read["seed"].to_pylist() == [0, 1]


def test_a_table_without_parts_is_empty(files: SweepFiles) -> None:
    assert files.read("runs", ["run_id", "seed"]).num_rows == 0
    assert files.columns("runs") == []


def test_a_part_of_failed_runs_has_no_metrics_and_the_table_has(files: SweepFiles) -> None:
    files.write_part("1", tables(["a-0"], "1", "failed"))
    files.write_part("2", tables(["a-1"], "2"))
    assert "loss" in files.columns("runs")
    assert rows(files, "runs", "run_id", "loss") == [("a-0", None), ("a-1", 1 / 3)]


def test_an_unknown_column_is_refused_with_the_nearest_name(files: SweepFiles) -> None:
    files.write_part("p", tables(["a-0"], "p"))
    with pytest.raises(MislabelError, match="'los' is not a column of bowls/runs; did you mean loss"):
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


# The store itself


def test_a_new_store_stores_the_version_of_its_layout(store: Store) -> None:
    store.prepare()
    assert json.loads(Path(store.address, "store.json").read_text()) == {"schema": 1}
    store.prepare()
    assert store.names() == []


def test_a_newer_layout_is_refused(store: Store) -> None:
    store.prepare()
    Path(store.address, "store.json").write_text('{"schema": 2}')
    with pytest.raises(StoreError, match="layout 2"):
        Store(store.address)


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense", '{"schema": "x"}', '{"schema": null}', "\xff"])
def test_a_damaged_layout_file_is_named(store: Store, text: str) -> None:
    store.prepare()
    Path(store.address, "store.json").write_text(text)
    with pytest.raises(StoreError, match=r"store\.json"):
        Store(store.address)


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    store = Store(str(tmp_path / "store"))
    with pytest.raises(WrongStoreError, match="store: "):
        store.prepare()
    with pytest.raises(WrongStoreError, match="store: "):
        store.names()


def test_an_unknown_kind_of_address_is_refused() -> None:
    with pytest.raises(WrongStoreError, match="nowhere://x"):
        Store("nowhere://x")


def test_sweeps_are_listed_once_they_have_a_spec(store: Store) -> None:
    store.sweep("b").write_text("spec.yaml", "name: b")
    store.sweep("a").write_text("spec.yaml", "name: a")
    store.sweep("c").write_text("other", "")
    assert store.names() == ["a", "b"]
    assert store.existing("a").name == "a"
    with pytest.raises(MislabelError, match=r"'c' is not a sweep of the store .*a, b"):
        store.existing("c")


def test_an_unknown_sweep_is_refused_with_the_nearest_name(store: Store) -> None:
    with pytest.raises(MislabelError, match="quickstart"):
        store.existing("quickstart")
    store.sweep("quickstart").write_text("spec.yaml", "")
    with pytest.raises(MislabelError, match=r"did you mean quickstart\?"):
        store.existing("quikstart")


def test_each_change_of_a_spec_is_stored(files: SweepFiles) -> None:
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


def test_a_checkpoint_is_listed_once_it_is_complete(files: SweepFiles) -> None:
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
