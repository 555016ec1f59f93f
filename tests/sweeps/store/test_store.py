import json
import os
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc
import pytest

from mislabel.sweeps.errors import DamagedFileError, MislabelError, StoreError, WrongStoreError
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import curves_of, run, runs_of
from tests.sweeps.run.parts import rows, tables

# Reading and writing


def test_written_tables_can_be_read(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1"], "p"))
    files.write_results(tables(["b-0"], "q"))
    assert rows(files) == [("a-0", "done"), ("a-1", "done"), ("b-0", "done")]
    assert len(files.read("curves")) == 9
    assert files.read("arrays").num_rows == 0


def test_writing_the_same_again_changes_nothing(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1"], "p"))
    before = {path: path.read_bytes() for path in Path(files.address).rglob("*.parquet")}
    files.write_results(tables(["a-0", "a-1"], "p"))
    assert {path: path.read_bytes() for path in Path(files.address).rglob("*") if path.is_file()} == before


def test_columns_and_conditions_are_pushed_down(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1", "b-0"], "p"))
    read = files.read("runs", ["seed"], pc.field("cell_id") == "a")
    assert read.column_names == ["seed"]
    assert read["seed"].to_pylist() == [0, 1]


def test_a_table_without_parts_is_empty(files: SweepFiles) -> None:
    assert files.read("runs", ["run_id", "seed"]).num_rows == 0
    assert files.columns("runs") == []


def test_a_part_of_failed_runs_has_no_metrics_and_the_table_has(files: SweepFiles) -> None:
    files.write_results(tables(["a-0"], "1", "failed"))
    files.write_results(tables(["a-1"], "2"))
    assert "loss" in files.columns("runs")
    assert rows(files, "runs", "run_id", "loss") == [("a-0", None), ("a-1", 1 / 3)]


def test_an_unknown_column_is_refused_with_the_nearest_name(files: SweepFiles) -> None:
    files.write_results(tables(["a-0"], "p"))
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
    assert json.loads(Path(store.address, "store.json").read_text()) == {"schema": 2}
    store.prepare()
    assert store.names() == []


def test_preparing_a_store_removes_what_a_killed_process_left_there(store: Store) -> None:
    for left in (".0123.part", ".writable"):
        Path(store.address).mkdir(exist_ok=True)
        Path(store.address, left).write_text("half")
    for _ in range(2):
        store.prepare()
        assert os.listdir(store.address) == ["store.json"]


def test_a_newer_layout_is_refused(store: Store) -> None:
    store.prepare()
    Path(store.address, "store.json").write_text('{"schema": 3}')
    with pytest.raises(WrongStoreError, match="layout 3"):
        Store(store.address)


def test_an_older_layout_is_read_and_gets_the_present_version_when_it_is_written(store: Store) -> None:
    store.prepare()
    Path(store.address, "store.json").write_text('{"schema": 1}')
    Store(store.address)
    assert json.loads(Path(store.address, "store.json").read_text()) == {"schema": 1}
    Store(store.address).prepare()
    assert json.loads(Path(store.address, "store.json").read_text()) == {"schema": 2}


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
    (stored,) = Path(files.address, "checkpoints").glob("*.pt")
    stored.write_bytes(b"dota")
    assert files.load_checkpoint("p") is None
    stored.unlink()
    assert list(files.checkpoints()) == []
    files.drop_checkpoint("p")
    assert files.load_checkpoint("p") is None
    assert os.listdir(Path(files.address, "checkpoints")) == []


def test_the_checkpoint_of_the_highest_generation_counts(files: SweepFiles) -> None:
    old, new = files.held(9, lambda: None), files.held(10, lambda: None)
    old.save_checkpoint("p", b"old", ["a-0", "a-1"])
    new.save_checkpoint("p", b"new", ["a-1"])
    old.save_checkpoint("p", b"older", ["a-0", "a-1"])  # a driver that was paused and replaced
    assert files.load_checkpoint("p") == b"new"
    assert list(files.checkpoints()) == [("p", ["a-1"])]
    old.drop_checkpoint("p")
    assert files.load_checkpoint("p") == b"new"
    new.drop_checkpoint("p")
    assert os.listdir(Path(files.address, "checkpoints")) == []


def test_a_newer_checkpoint_replaces_the_one_before(files: SweepFiles) -> None:
    for data in (b"1", b"2", b"2"):
        files.save_checkpoint("p", data, ["a-0"])
    assert files.load_checkpoint("p") == b"2"
    assert len(os.listdir(Path(files.address, "checkpoints"))) == 2


def test_checkpoints_of_an_older_version_are_read(files: SweepFiles) -> None:
    files.write("checkpoints/p.pt", b"data")
    files.write_json("checkpoints/p.json", {"runs": ["a-0"]})
    assert list(files.checkpoints()) == [("p", ["a-0"])]
    assert files.load_checkpoint("p") == b"data"
    files.drop_checkpoint("p")
    assert os.listdir(Path(files.address, "checkpoints")) == []


ONE, TWO = (f"name: {name}\ntask: bowl\n" for name in ("one", "two"))


def test_the_last_revision_becomes_the_spec(files: SweepFiles) -> None:
    """A driver that was paused while it stored its spec overwrites the one of a later generation."""
    files.held(9998, lambda: None).revise_spec(ONE)
    files.held(10001, lambda: None).revise_spec(TWO)
    files.write_text("spec.yaml", ONE)
    files.restore_spec()
    assert files.read_text("spec.yaml") == TWO


SPEC = "name: bowls\ntask: bowl\n"


@pytest.mark.parametrize("text", ["", "name: [", "[1]", "task: bowl", "\x00"])
def test_if_the_spec_is_damaged_the_last_revision_counts_and_restores_it(
    files: SweepFiles, messages: list[str], text: str
) -> None:
    assert files.spec() is None
    files.revise_spec("name: earlier\ntask: bowl\n")
    files.revise_spec(SPEC)
    files.write_text("spec.yaml", text)
    spec = files.spec()
    assert spec is not None
    assert spec.name == "bowls"
    assert [message.split(" ")[0] for message in messages] == [files.shown("spec.yaml")]
    files.restore_spec()
    assert files.read_text("spec.yaml") == SPEC


def test_a_damaged_revision_does_not_replace_the_spec(files: SweepFiles) -> None:
    files.revise_spec(SPEC)
    files.write("revisions/0001.yaml", b"name: \xff")
    files.write_text("revisions/notes.txt", "by hand")
    files.restore_spec()
    assert files.read_text("spec.yaml") == SPEC


def test_a_spec_that_is_lost_is_named(files: SweepFiles) -> None:
    files.write("spec.yaml", b"\xff")
    with pytest.raises(DamagedFileError) as caught:
        files.spec()
    assert str(caught.value).startswith(files.shown("spec.yaml"))


def test_damaged_checkpoints_are_ignored(files: SweepFiles, messages: list[str]) -> None:
    files.save_checkpoint("p", b"data", ["a-0"])
    (description,) = Path(files.address, "checkpoints").glob("*.json")
    (data,) = Path(files.address, "checkpoints").glob("*.pt")
    data.write_bytes(b"date")
    assert files.load_checkpoint("p") is None
    data.unlink()
    data.mkdir()
    assert files.load_checkpoint("p") is None
    for text in ("", "[]", '{"runs": 3}', '{"runs": [], "file": "../spec.yaml"}'):
        description.write_text(text)
        assert list(files.checkpoints()) == []
        assert files.checkpointed("p") == []
    assert {message.split(" ")[0] for message in messages} == {str(description)}


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
