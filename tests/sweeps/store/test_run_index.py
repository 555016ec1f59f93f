from typing import Any

import pyarrow as pa
import pytest

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import bowl_spec, run
from tests.sweeps.run.parts import part_file, tables

# `budget.failures` allows this many attempts of one run.
TRIES = bowl_spec().budget.tries


def index_of(files: SweepFiles, **changes: Any) -> RunIndex:
    return RunIndex(bowl_spec(**changes), files)


def test_an_empty_store_has_an_empty_index(files: SweepFiles) -> None:
    index = index_of(files)
    assert (index.rows.num_rows, index.count, index.cells(["x"])) == (0, 0, {})
    assert index.columns("cell_id", "seed") == [[], []]
    assert not index.has(["loss"])
    assert index.missing_seeds("a", range(2), retry=False) == [0, 1]


def test_settled_runs_are_not_missing(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-2"], "p"))
    files.write_results(tables(["b-0"], "q", status="stopped"))
    index = index_of(files)
    assert index.missing_seeds("a", range(4), retry=False) == [1, 3]
    assert index.missing_seeds("b", range(1), retry=False) == [0]
    assert index.count == 2
    rule: dict[str, Any] = {"early_terminate": {"type": "median", "min_steps": 2}, "parameters": {"frames": 8}}
    assert index_of(files, **rule).missing_seeds("b", range(1), retry=False) == []


@pytest.mark.parametrize(("attempt", "retried"), [(1, [0]), (TRIES, [])])
def test_failed_runs_are_missing_on_request_until_their_attempts_are_used_up(
    files: SweepFiles, attempt: int, retried: list[int]
) -> None:
    files.write_results(tables(["a-0"], "p", status="failed", attempt=attempt))
    index = index_of(files)
    assert index.missing_seeds("a", range(1), retry=False) == []
    assert index.missing_seeds("a", range(1), retry=True) == retried
    assert index.attempts["a"] == {0: attempt}


def test_lost_runs_are_missing_and_have_not_failed(files: SweepFiles) -> None:
    files.write_results(tables(["a-0"], "p", status="lost"))
    index = index_of(files)
    assert index.missing_seeds("a", range(1), retry=False) == [0]
    assert index.attempts["a"] == {0: 0}


def test_of_two_rows_of_a_run_the_better_one_counts(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1"], "p", status="failed"))
    files.write_results(tables(["a-1", "a-2"], "q", attempt=2))
    index = index_of(files)
    assert sorted(zip(*index.columns("run_id", "status"), strict=True)) == [
        ("a-0", "failed"),
        ("a-1", "done"),
        ("a-2", "done"),
    ]
    assert index.failed["a"] == {0}
    assert index.seeds["a"] == {1, 2}


def test_added_rows_replace_those_of_the_same_runs(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1"], "p", status="failed"))
    index = index_of(files)
    index.add(tables(["a-1", "b-0"], "q")["runs"])
    assert sorted(zip(*index.columns("run_id", "status"), strict=True)) == [
        ("a-0", "failed"),
        ("a-1", "done"),
        ("b-0", "done"),
    ]
    assert (index.failed["a"], index.seeds["a"], index.attempts["a"]) == ({0}, {1}, {0: 1})
    assert index.has(["loss"])


def test_cells_have_the_values_of_their_axes(store: Store) -> None:
    race: dict[str, Any] = {"seeds": {"count": 2, "up_to": 3}, "parameters": {"x": {"values": [0.0, 1.0]}}}
    launch = run(store, **race)
    cells = RunIndex(launch.plan.spec, launch.files).cells(["x"])
    assert sorted(values["x"] for values in cells.values()) == [0.0, 1.0]
    assert set(cells) == set(launch.files.read("runs", ["cell_id"])["cell_id"].to_pylist())


def test_a_damaged_part_is_a_store_error_with_its_name(files: SweepFiles) -> None:
    files.write_results(tables(["a-0"], "p"))
    part_file(files, "runs", "p").write_bytes(b"garbage")
    with pytest.raises(StoreError, match=r"runs/p\.parquet"):
        index_of(files)


def test_columns_that_only_some_parts_have_are_null_in_the_others(files: SweepFiles) -> None:
    files.write_results(tables(["a-0"], "p", status="failed"))
    files.write_results(tables(["b-0"], "q"))
    index = index_of(files)
    assert dict(zip(*index.columns("run_id", "loss"), strict=True))["a-0"] is None
    assert index.rows["loss"].type == pa.float64()


@pytest.mark.parametrize(("per", "missing"), [("cell", [1]), ("run", [])])
def test_a_stopped_run_is_missing_if_another_run_of_its_cell_was_trained_to_the_end(
    files: SweepFiles, per: str, missing: list[int]
) -> None:
    rule = {"early_terminate": {"type": "median", "min_steps": 2, "per": per}, "parameters": {"frames": 8}}
    files.write_results(tables(["a-1", "b-0"], "p", status="stopped"))
    index = index_of(files, **rule)
    assert index.missing_seeds("a", range(2), retry=False) == [0]
    index.add(tables(["a-0"], "q")["runs"])
    assert index.missing_seeds("a", range(2), retry=False) == missing
    assert index.missing_seeds("b", range(1), retry=False) == []
    files.write_results(tables(["a-0"], "q"))
    assert index_of(files, **rule).missing_seeds("a", range(2), retry=False) == missing
