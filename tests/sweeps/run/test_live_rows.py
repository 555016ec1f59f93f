"""Rows of running runs: readers see the frames of runs that train, each run once, whatever happens to its pack."""

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mislabel.sweeps.run import live_rows, worker
from mislabel.sweeps.run.launch import Launch, run_inline
from mislabel.sweeps.run.record import Record
from mislabel.sweeps.run.worker import Worker
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.running import FOLDER
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.pack import Frame, Label
from tests.bowls import BOWL, CPU, curves_of, orders_of, prepared, run

LONG: dict[str, Any] = {
    "parameters": {"x": {"values": [0.0, 1.0, 2.0]}, "steps": 40, "frames": 11, "snapshots": 2},
    "seeds": 2,
}


@pytest.fixture(autouse=True)
def rows_after_every_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "EVERY_SECONDS", "LONGEST_SECONDS"):
        monkeypatch.setattr(live_rows, name, 0.0)
    monkeypatch.setattr(worker, "STRETCH_SECONDS", 0.0)


def half_way(store: Store, stretches: int = 5) -> tuple[Launch, Worker]:
    """A sweep whose first pack, of four of its six runs, is being trained."""
    launch = prepared(store, **LONG)
    trained = Worker(orders_of(launch)[0], launch.files, CPU)
    for _ in range(stretches):
        trained.work(0.0)
    return launch, trained


def rows(files: SweepFiles, table: str = "curves") -> pd.DataFrame:
    found: pd.DataFrame = files.read(table, running=True).to_pandas()
    return found.drop(columns="pack_id").sort_values(["run_id", "step"], ignore_index=True)


def live_files(files: SweepFiles) -> list[str]:
    return [path.name for path in (Path(files.address) / FOLDER).rglob("*.parquet")]


def test_running_runs_have_curves_and_arrays_and_no_row_in_runs(store: Store) -> None:
    launch, trained = half_way(store)
    complete = run(Store(f"{store.address}-complete"), **LONG).files
    step = trained.pack_group.step
    running = launch.files.running().to_pandas()
    assert len(running) == 4
    assert set(running["status"]) == {"running"}
    assert set(running["trained_steps"]) == {step}
    assert launch.files.read("runs").num_rows == launch.files.read("curves").num_rows == 0
    for table, of in (("curves", curves_of(complete)), ("arrays", rows(complete, "arrays"))):
        expected = of[of["run_id"].isin(running["run_id"]) & (of["step"] <= step)]
        found = rows(launch.files, table)
        assert len(found)
        pd.testing.assert_frame_equal(found, expected.reset_index(drop=True), check_exact=True)


def test_running_rows_have_the_parameters_and_last_metrics_of_runs(store: Store) -> None:
    launch, _ = half_way(store)
    running = launch.files.running()
    complete = run(Store(f"{store.address}-complete"), **LONG).files.read("runs")
    assert set(complete.column_names) - set(running.column_names) == {"finished_at", "error"}
    assert set(running.column_names) - set(complete.column_names) == {"trained_steps", "updated_at", "expected_end"}
    last = rows(launch.files).drop_duplicates("run_id", keep="last").set_index("run_id")["loss"]
    assert running.to_pandas().set_index("run_id")["loss"].to_dict() == last.to_dict()


def test_a_run_that_has_ended_counts_once(store: Store) -> None:
    launch, trained = half_way(store)
    trained._write(trained.pack_group.live[:1])  # its row in the live file is still there
    ended = set(launch.files.read("runs")["run_id"].to_pylist())
    assert len(ended) == 1
    assert not rows(launch.files).duplicated(["run_id", "step"]).any()
    assert len(set(rows(launch.files)["run_id"])) == 4
    assert ended.isdisjoint(launch.files.running()["run_id"].to_pylist())


@pytest.mark.long
def test_after_a_crash_the_next_launch_replaces_the_rows_and_leaves_none(store: Store) -> None:
    half_way(store)
    seen: list[int] = []

    def look(launch: Launch) -> None:
        found = rows(launch.files)
        assert not found.duplicated(["run_id", "step"]).any()
        seen.append(len(found))

    files = run(store, look, **LONG).files
    assert seen == sorted(seen), "rows have vanished"
    assert live_files(files) == []
    assert files.running().num_rows == 0
    pd.testing.assert_frame_equal(rows(files), curves_of(files))


def test_a_pack_that_ends_removes_its_rows(store: Store) -> None:
    launch, trained = half_way(store)
    assert live_files(launch.files)
    while trained.pack_group.live:
        trained.work(1.0)
    assert live_files(launch.files) == []


def test_a_stopped_sweep_still_shows_its_rows(store: Store) -> None:
    launch = prepared(store, **LONG)

    def stop() -> None:
        launch.driver.stop(INTERRUPTED)

    run_inline(launch.driver, launch.files, CPU, stop)
    launch.finish()
    assert launch.files.running().num_rows == 4
    assert len(rows(launch.files))


@pytest.mark.long
def test_rows_of_a_pack_that_fails_are_removed(store: Store) -> None:
    values = {**LONG, "parameters": {**LONG["parameters"], "trouble": 1}}
    files = run(store, **values).files
    assert set(files.read("runs")["status"].to_pylist()) == {"failed"}
    assert files.running().num_rows == 0


def test_of_two_files_with_a_run_the_later_generation_counts(store: Store) -> None:
    launch, _ = half_way(store, 6)
    again, trained = half_way(store, 3)
    assert again.files.generation > launch.files.generation
    assert len(live_files(again.files)) == 6  # runs, curves and arrays of both
    assert set(again.files.running()["trained_steps"].to_pylist()) == {trained.pack_group.step}
    assert rows(again.files)["step"].max() == trained.pack_group.step


def test_columns_and_conditions_select_running_rows_too(store: Store) -> None:
    import pyarrow.compute as pc

    launch, _ = half_way(store)
    found = launch.files.read("curves", ["step", "loss"], pc.field("step") > 0, running=True)
    assert found.column_names == ["step", "loss"]
    assert found.num_rows
    assert min(found["step"].to_pylist()) > 0


def test_the_schema_is_known_before_a_run_has_ended(store: Store) -> None:
    launch, _ = half_way(store)
    before = launch.files.schema("curves")
    assert before.equals(run(Store(f"{store.address}-complete"), **LONG).files.schema("curves"))


@pytest.mark.parametrize("table", ["runs", "curves"])
def test_a_damaged_file_is_reported_and_left_out(store: Store, table: str, messages: list[str]) -> None:
    launch, _ = half_way(store)
    (path,) = (Path(launch.files.address) / FOLDER / table).glob("*.parquet")
    path.write_bytes(b"PAR1 no")
    assert launch.files.read("curves", running=True).num_rows == 0
    assert any(path.name in message for message in messages)


def test_a_store_that_can_not_be_written_does_not_end_the_pack(store: Store, messages: list[str]) -> None:
    launch = prepared(store, **LONG)
    (Path(launch.files.address) / FOLDER).write_text("a file where a folder is needed")
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    assert set(launch.files.read("runs")["status"].to_pylist()) == {"done"}
    assert len([message for message in messages if "running runs" in message]) == 2  # once for each pack


def test_rows_are_written_less_often_if_writing_is_slow(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = prepared(store, **LONG)
    order = orders_of(launch)[0]
    clock = [1000.0]
    monkeypatch.setattr("mislabel.sweeps.run.live_rows.time.monotonic", lambda: clock[0])
    for name, value in (("FIRST_SECONDS", 2.0), ("EVERY_SECONDS", 10.0), ("LONGEST_SECONDS", 60.0)):
        monkeypatch.setattr(live_rows, name, value)

    class SlowRecord(Record):
        seconds_to_write = 0.0

        def last_frames(self, runs: Iterable[Label]) -> dict[Label, tuple[Frame, int]]:
            clock[0] += self.seconds_to_write
            return super().last_frames(runs)

    record = SlowRecord(order)
    live = live_rows.LiveRows(launch.files, record, BOWL, "cpu")
    pauses = []
    for seconds in (7.0, 0.05, 0.3, 5.0):
        began = clock[0]
        while not live.is_due:
            clock[0] += 0.5
        pauses.append(clock[0] - began)
        record.seconds_to_write = seconds
        live.write({})
    assert pauses == [2.0, 10.0, 10.0, 60.0]
    assert not live.is_due
    clock[0] += 60.0
    assert live.is_due


def test_the_expected_end_follows_from_the_steps_so_far(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr("mislabel.sweeps.run.live_rows.time.monotonic", lambda: clock[0])
    launch = prepared(store, **LONG)
    trained = Worker(orders_of(launch)[0], launch.files, CPU)
    while not (step := trained.pack_group.step):
        trained.work(0.0)
    assert step < 40
    clock[0] += 10.0 * step
    trained.work(0.0)
    now, row = datetime.now(UTC), launch.files.running().to_pylist()[0]
    step = row["trained_steps"]
    expected = (clock[0] - 1000.0) / step * (40 - step)
    assert (row["expected_end"] - now).total_seconds() == pytest.approx(expected, abs=60)


def test_files_do_not_become_more_with_time(store: Store) -> None:
    counts = set()
    launch, trained = half_way(store, 2)
    while trained.pack_group.live:
        counts.add(len(live_files(launch.files)))
        trained.work(0.0)
    assert counts == {3}


def test_frames_that_were_written_are_not_written_again(store: Store) -> None:
    launch, trained = half_way(store)
    (curves,) = (Path(launch.files.address) / FOLDER / "curves").glob("*.parquet")
    before = curves.stat().st_ino
    trained._live_rows.write(trained.pack_group.steps())
    assert curves.stat().st_ino == before
