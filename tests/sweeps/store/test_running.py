"""Files of running runs, as workers write them and readers read them; tests/sweeps/run/test_live_rows.py trains."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from mislabel.sweeps.store.store import Store, SweepFiles


def rows(runs: Mapping[str, int], status: str = "running") -> dict[str, pa.Table]:
    """Rows of runs at these steps, with a frame at every step."""
    frames = [(run, i) for run, step in runs.items() for i in range(step + 1)]
    curves = {"run_id": [run for run, _ in frames], "step": [i for _, i in frames], "loss": [0.5] * len(frames)}
    own = {"run_id": list(runs), "cell_id": list(runs), "seed": [0] * len(runs), "step": list(runs.values())}
    return {
        "runs": pa.table({**own, "status": [status] * len(runs), "attempt": [1] * len(runs)}),
        "curves": pa.table(curves),
    }


@pytest.fixture
def files(store: Store) -> SweepFiles:
    return store.sweep("sweep", 3)


def frames_of(files: SweepFiles) -> list[tuple[str, int]]:
    table = files.read("curves", ["run_id", "step"], running=True)
    return sorted(zip(table["run_id"].to_pylist(), table["step"].to_pylist(), strict=True))


def frames(**runs: int) -> list[tuple[str, int]]:
    return sorted((run, i) for run, step in runs.items() for i in range(step + 1))


def left(files: SweepFiles) -> set[str]:
    return {f"{path.parent.name}/{path.stem}" for path in Path(files.address).rglob("running/*/*.parquet")}


def test_a_later_write_replaces_an_earlier_one(files: SweepFiles) -> None:
    files.write_running("p", rows({"a": 1, "b": 1}))
    files.write_running("p", rows({"a": 3}))
    assert frames_of(files) == frames(a=3)
    assert left(files) == {"runs/p-000003", "curves/p-000003"}


def test_readers_who_do_not_ask_see_ended_runs_only(files: SweepFiles) -> None:
    files.write_running("p", rows({"a": 1}))
    files.write_results(rows({"b": 2}, "done"))
    assert set(files.read("curves")["run_id"].to_pylist()) == {"b"}
    assert files.read("runs")["run_id"].to_pylist() == ["b"]
    assert frames_of(files) == frames(a=1, b=2)


@pytest.mark.parametrize(
    ("status", "counts"), [("done", False), ("diverged", False), ("stopped", False), ("failed", True), ("lost", True)]
)
def test_a_run_with_a_result_is_not_running_and_one_that_is_repeated_is(
    files: SweepFiles, status: str, counts: bool
) -> None:
    files.write_running("p", rows({"a": 1}))
    final = rows({"a": 2}, status)
    files.write_results(final if not counts else {"runs": final["runs"]})
    assert frames_of(files) == frames(a=1 if counts else 2)
    assert files.running().num_rows == int(counts)


def test_the_later_generation_counts_and_then_the_higher_step(store: Store, files: SweepFiles) -> None:
    store.sweep("sweep", 2).write_running("p", rows({"a": 9, "b": 9}))
    files.write_running("p", rows({"a": 1}))
    files.write_running("q", rows({"a": 4}))
    assert frames_of(files) == frames(a=4, b=9)


def test_conditions_and_columns_are_the_same_as_for_ended_runs(files: SweepFiles) -> None:
    files.write_running("p", rows({"a": 3}))
    files.write_results(rows({"b": 3}, "done"))
    table = files.read("curves", ["step"], pc.field("step") > 1, running=True)
    assert table.column_names == ["step"]
    assert sorted(table["step"].to_pylist()) == [2, 2, 3, 3]


def test_a_complete_sweep_keeps_no_file_of_this_and_earlier_generations(store: Store, files: SweepFiles) -> None:
    for generation in (2, 3, 4):
        store.sweep("sweep", generation).write_running("p", rows({"a": 1}))
    files.drop_all_running()
    assert left(files) == {"runs/p-000004", "curves/p-000004"}


def test_what_a_killed_writer_left_is_removed_by_the_next_generation(store: Store, files: SweepFiles) -> None:
    earlier = store.sweep("sweep", 2)
    earlier.write_running("unfinished", {"curves": rows({"a": 1})["curves"]})
    earlier.write_running("ended", rows({"b": 1}))
    earlier.write_running("partly", rows({"b": 1, "c": 1}))
    files.write_running("own", {"curves": rows({"d": 1})["curves"]})  # its writer may be about to write `runs`
    files.write_results(rows({"b": 1}, "done"))
    files.drop_ended_running()
    assert left(files) == {"runs/partly-000002", "curves/partly-000002", "curves/own-000003"}


def test_a_pack_is_dropped_without_touching_others(files: SweepFiles) -> None:
    files.write_running("p", rows({"a": 1}))
    files.write_running("q", rows({"b": 1}))
    files.drop_running("p")
    assert frames_of(files) == frames(b=1)


def test_a_file_that_is_removed_while_it_is_read_is_left_out(files: SweepFiles) -> None:
    files.write_running("p", rows({"a": 1}))
    (Path(files.address) / "running/curves/p-000003.parquet").unlink()
    assert frames_of(files) == []


def test_other_names_in_the_folder_are_ignored(files: SweepFiles) -> None:
    files.write_running("p", rows({"a": 1}))
    (Path(files.address) / "running/runs/notes.txt").write_text("x")
    (Path(files.address) / "running/runs/other.parquet").write_text("x")
    assert frames_of(files) == frames(a=1)
