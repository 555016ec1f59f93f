"""Parts of a store: which rows count of a run that stands in several."""

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value
from tests.sweeps.run.parts import rows, tables

# Runs that stand in several parts


def test_the_last_attempt_of_a_run_counts(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1"], "p", "lost"))
    files.write_results(tables(["a-1", "b-0"], "b", attempt=2))
    assert rows(files) == [("a-0", "lost"), ("a-1", "done"), ("b-0", "done")]


def test_the_same_pack_run_again_after_a_merge_counts_once(files: SweepFiles) -> None:
    """A merged part keeps each row's pack id, so the pack id does not say which row counts."""
    files.write_results(tables(["a-0", "a-1"], "p", "lost"))
    files.write_results(tables(["b-0"], "q"))
    files.compact()
    files.write_results(tables(["a-0", "a-1"], "p", attempt=2))
    assert rows(files) == [("a-0", "done"), ("a-1", "done"), ("b-0", "done")]
    files.compact()
    files.remove_replaced()
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
        files.write_results(tables(["a-0"], part, status, attempt=attempt))
    assert rows(files) == [("a-0", counts)]
    files.compact()
    assert rows(files) == [("a-0", counts)]


def test_a_result_counts_before_a_later_failure(files: SweepFiles) -> None:
    files.write_results(tables(["a-0"], "p", "failed", attempt=3))
    files.write_results(tables(["a-0", "a-1"], "q", attempt=1))
    assert rows(files) == [("a-0", "done"), ("a-1", "done")]


def test_a_run_and_its_curves_come_from_the_same_part(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1"], "p", loss=1.0))
    files.write_results(tables(["a-1", "a-2"], "q", loss=6.0, attempt=2))
    curves = files.read("curves", ["run_id", "loss"]).to_pandas().groupby("run_id")["loss"].agg(["max", "size"])
    assert curves["size"].tolist() == [3, 3, 3]
    assert curves["max"].tolist() == [1.0, 6.0, 6.0]
    where = pc.field("run_id") == "a-1"
    assert files.read("curves", ["loss"], where)["loss"].to_pylist() == [6.0, 3.0, 2.0]


def test_many_repeated_runs_are_read_quickly(files: SweepFiles) -> None:
    runs = [f"c{i}-0" for i in range(5000)]
    files.write_results(tables(runs, "p", "lost"))
    files.write_results(tables(runs, "q", attempt=2))
    assert {status for _, status in rows(files)} == {"done"}
    assert len(rows(files)) == 5000


# Parameters that were added to a task


def test_earlier_values_fill_columns_that_no_run_or_only_some_runs_have(files: SweepFiles) -> None:
    files.write_results(tables(["a-0", "a-1"], "p"))
    later = tables(["b-0"], "q")
    files.write_results({**later, "runs": later["runs"].append_column("slope", pa.array([0.25]))})
    earlier: dict[str, Value] = {"slope": 0.0, "material": "wood"}
    rows = [("wood", "a-0", 0.0), ("wood", "a-1", 0.0), ("wood", "b-0", 0.25)]
    table = files.read_filled(earlier, ["material", "run_id", "slope"])
    assert table.column_names == ["material", "run_id", "slope"]
    assert sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows
    whole = files.read_filled(earlier, where=pc.field("run_id") == "a-1").to_pylist()
    assert [(row["material"], row["run_id"], row["slope"], row["seed"]) for row in whole] == [(*rows[1], 1)]


def test_without_earlier_values_the_chosen_columns_are_read(files: SweepFiles) -> None:
    assert files.read_filled({"slope": 0.0}, ["run_id"]).num_rows == 0
    files.write_results(tables(["a-0"], "p"))
    assert files.read_filled({}, ["seed", "run_id"]).to_pylist() == [{"seed": 0, "run_id": "a-0"}]
    assert files.read_filled({"slope": 0.0}, ["seed", "run_id"]).to_pylist() == [{"seed": 0, "run_id": "a-0"}]
