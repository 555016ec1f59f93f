import io
from collections.abc import Sequence
from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch

from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.lane_stopper import LaneStopper, lane_stopper_of
from mislabel.sweeps.run.report import Finished, Refill
from mislabel.sweeps.run.worker import Worker, record_failure
from mislabel.sweeps.stopping.stopper import Entry, Stopper
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import CPU, curves_of, orders_of, prepared, runs_of


@pytest.fixture
def order(store: Store) -> PackOrder:
    (order,) = orders_of(prepared(store, resources={"pack": 6}))
    return order


def worked(order: PackOrder, files: SweepFiles, seconds: float = 600.0) -> Worker:
    worker = Worker(order, files, CPU, ["loss"])
    while not worker.work(seconds).ends_pack:
        pass
    return worker


def test_a_pack_ends_with_its_rows_in_the_store(order: PackOrder, files: SweepFiles) -> None:
    report = Worker(order, files, CPU, ["loss"]).work(600.0)
    assert isinstance(report, Finished)
    assert report.run_steps == 6 * 8
    assert [(o.cell, o.seed, o.status) for o in report.outcomes] == [
        (cell, seed, "done") for cell, seed in zip(order.cells, order.seeds, strict=True)
    ]
    stored = runs_of(files).set_index("run_id")
    for run, outcome in zip(order.run_ids, report.outcomes, strict=True):
        assert outcome.metrics == {"loss": stored["loss"][run]}
    assert len(curves_of(files)) == 6 * 3


def test_stretches_of_any_length_give_the_same_rows(order: PackOrder, files: SweepFiles, store: Store) -> None:
    worked(order, files, seconds=600.0)
    worked(order, store.sweep("slowly"), seconds=0.0)
    pd.testing.assert_frame_equal(runs_of(files), runs_of(store.sweep("slowly")))
    pd.testing.assert_frame_equal(curves_of(files), curves_of(store.sweep("slowly")))


def test_another_worker_resumes_a_checkpoint(order: PackOrder, files: SweepFiles, store: Store) -> None:
    worked(order, store.sweep("undisturbed"))
    first = Worker(order, files, CPU)
    while first.pack_group.step == 0:
        first.work(0.0)
    first.save()
    second = Worker(order, files, CPU)
    assert second.pack_group.step == first.pack_group.step < 8
    while not second.work(0.0).ends_pack:
        pass
    pd.testing.assert_frame_equal(runs_of(files), runs_of(store.sweep("undisturbed")))
    pd.testing.assert_frame_equal(curves_of(files), curves_of(store.sweep("undisturbed")))
    assert list(files.checkpoints()) == []


def test_a_run_has_the_commits_of_all_code_that_trained_it(order: PackOrder, files: SweepFiles) -> None:
    first = Worker(replace(order, commit="a1-dirty"), files, CPU)
    while first.pack_group.step == 0:
        first.work(0.0)
    first.save()
    worked(replace(order, commit="b2"), files)
    assert set(files.read("runs")["commit"].to_pylist()) == {"a1-dirty b2"}


def test_a_pack_that_resumes_its_own_checkpoint_keeps_the_next_one(order: PackOrder, files: SweepFiles) -> None:
    Worker(order, files, CPU).save()
    Worker(order.select(range(len(order)), resume=(order.id,)), files, CPU).save()
    assert [pack for pack, _ in files.checkpoints()] == [order.id]


def test_part_of_a_checkpoint_can_be_resumed(order: PackOrder, files: SweepFiles, store: Store) -> None:
    worked(order, store.sweep("undisturbed"))
    first = Worker(order, files, CPU)
    first.work(0.0)
    first.save()
    part = order.select([1, 4], resume=(order.id,), attempt=3)
    worked(part, files)
    expected = runs_of(store.sweep("undisturbed"))
    chosen = expected[expected["run_id"].isin(part.run_ids)].reset_index(drop=True)
    pd.testing.assert_frame_equal(runs_of(files), chosen)
    assert files.read("runs", ["attempt"])["attempt"].to_pylist() == [3, 3]


def test_a_checkpoint_without_its_diverged_runs_can_be_resumed(store: Store) -> None:
    parameters = {"trouble": {"values": [0, 2]}, "frames": 8}
    (order,) = orders_of(prepared(store, parameters=parameters, resources={"pack": 4}))
    files = store.sweep("bowls")
    worker = Worker(order, files, CPU)
    while worker.pack_group.live and len(worker.pack_group.live) == 4:
        worker.work(0.0)
    assert worker.pack_group.live
    worker.save()
    gone = [lane for lane in range(4) if order.values(lane)["trouble"] == 2]
    worked(order.select(gone, resume=(order.id,)), files)
    assert runs_of(files)["status"].tolist() == ["diverged", "diverged"]


@pytest.mark.parametrize("data", [b"", b"garbage", b"PK\x03\x04half"])
def test_without_a_readable_checkpoint_a_pack_starts_over(order: PackOrder, files: SweepFiles, data: bytes) -> None:
    files.save_checkpoint(order.id, data, order.run_ids)
    worker = Worker(order, files, CPU)
    assert worker.pack_group.step == 0
    assert worker.work(600.0).ends_pack


def test_checkpoints_are_taken_while_a_pack_trains(
    order: PackOrder, files: SweepFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.worker.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("mislabel.sweeps.run.worker.CHECKPOINT_SHARE", float("inf"))
    worker = Worker(order, files, CPU)
    assert not worker.work(0.0).ends_pack
    assert list(files.checkpoints()) == [(order.id, order.run_ids)]


def test_diverged_runs_end_alone_and_are_recorded(store: Store) -> None:
    parameters = {"trouble": {"values": [0, 2]}}
    (order,) = orders_of(prepared(store, parameters=parameters, resources={"pack": 4}))
    files = store.sweep("bowls")
    worked(order, files)
    runs = runs_of(files).set_index("run_id")
    assert runs.groupby("trouble")["status"].unique().map(list).to_dict() == {0: ["done"], 2: ["diverged"]}
    assert runs[runs["trouble"] == 2]["loss"].isna().all()
    assert (runs[runs["trouble"] == 2]["step"] == 8).all()


def test_runs_without_a_result_are_recorded_with_the_reason(order: PackOrder, files: SweepFiles) -> None:
    outcomes = record_failure(order, files, "node went away", Status.LOST)
    assert {outcome.status for outcome in outcomes} == {"lost"}
    rows = files.read("runs", ["status", "error"]).to_pylist()
    assert rows == [{"status": "lost", "error": "node went away"}] * 6


LONG = {"x": {"values": [0, 1, 2]}, "steps": 30, "frames": 11, "spacing": "linear"}
ASHA = {"type": "asha", "min_steps": 6, "eta": 3}


def watched(store: Store, refill: bool = False) -> tuple[PackOrder, LaneStopper]:
    """Six runs of three cells, two of which ASHA stops at step 6, and their lane stopper."""
    launch = prepared(store, parameters=LONG, early_terminate=ASHA, resources={"pack": 6})
    watch = lane_stopper_of(launch.plan.spec, launch.driver.stopper)
    assert watch is not None
    (order,) = orders_of(launch)
    return order.select(range(6), refill=refill), watch


def worked_until_some_have_ended(
    order: PackOrder, files: SweepFiles, watch: LaneStopper
) -> tuple[Worker, Sequence[Outcome]]:
    worker = Worker(order, files, CPU, ["loss"], watch)
    while not (report := worker.work(0.0)).outcomes:
        pass
    return worker, report.outcomes


def test_stopped_runs_are_written_and_reported_at_once(store: Store, files: SweepFiles) -> None:
    order, watch = watched(store)
    worker, outcomes = worked_until_some_have_ended(order, files, watch)
    assert [(outcome.status, outcome.step) for outcome in outcomes] == [("stopped", 6)] * 4
    assert worker.pack_group.step == 6
    assert worker.pack_group.live
    table = runs_of(files)
    assert sorted(table["run_id"]) == sorted(run_id(outcome.cell, outcome.seed) for outcome in outcomes)
    assert curves_of(files).groupby("run_id")["step"].apply(list).tolist() == [[0, 3, 6]] * 4
    worker.save()
    ((_, held),) = files.checkpoints()
    assert set(held) == set(order.run_ids) - set(table["run_id"])


@pytest.mark.parametrize("saved", [True, False], ids=["after its checkpoint", "before it"])
def test_a_worker_that_dies_after_runs_have_ended_is_replaced_without_losing_or_repeating_a_run(
    store: Store, files: SweepFiles, saved: bool
) -> None:
    order, watch = watched(store)
    worker, told = worked_until_some_have_ended(order, files, watch)
    if saved:
        worker.save()
    second, again = worked_until_some_have_ended(order, files, watch)
    assert sorted(o.cell for o in again) == sorted(o.cell for o in told), "the driver may not have heard of them"
    assert [(o.status, o.step) for o in again] == [("stopped", 6)] * 4
    while not second.work(600.0).ends_pack:
        pass
    table = runs_of(files)
    assert len(table) == table["run_id"].nunique() == 6
    assert table["status"].value_counts().to_dict() == {"stopped": 4, "done": 2}
    assert len(curves_of(files)) == 4 * 3 + 2 * 11
    assert list(files.checkpoints()) == []


def test_a_worker_that_resumes_a_checkpoint_tells_the_stopper_what_was_measured(
    store: Store, files: SweepFiles
) -> None:
    order, watch = watched(store)
    worker, _ = worked_until_some_have_ended(order, files, watch)
    worker.save()
    stopper = Stopper(watch.rule, "minimize", 30)
    Worker(order, files, CPU, ["loss"], LaneStopper(watch.rule, "loss", [], stopper))
    assert stopper.decide(6, [Entry("worse", 0)], [1e9]) == [True], "alone at its step, it would continue"
    assert stopper.decide(6, [Entry("better", 0)], [-1.0]) == [False]


def test_a_pack_that_lost_half_of_its_lanes_asks_for_a_refill(store: Store, files: SweepFiles) -> None:
    order, watch = watched(store, refill=True)
    report = Worker(order, files, CPU, ["loss"], watch).work(600.0)
    assert isinstance(report, Refill)
    assert report.step == 6
    assert len(report.outcomes) == 4
    left = sorted(set(order.run_ids) - {run_id(o.cell, o.seed) for o in report.outcomes})
    rest = order.select([order.run_ids.index(run) for run in left], resume=(order.id,), refill=False)
    second = Worker(rest, files, CPU, ["loss"], watch)
    assert second.pack_group.step == 6
    second.save()
    assert [pack for pack, _ in files.checkpoints()] == [rest.id], "the resumed checkpoint is replaced"
    assert second.work(600.0).ends_pack
    assert sorted(runs_of(files)["run_id"]) == sorted(order.run_ids)


def test_training_time_is_divided_in_proportion_to_steps(store: Store, files: SweepFiles) -> None:
    order, watch = watched(store)
    worker = Worker(order, files, CPU, ["loss"], watch)
    seconds = worker.work(600.0).train_seconds
    table = files.read("runs", ["step", "train_seconds"]).to_pandas()
    assert table["train_seconds"].sum() == pytest.approx(seconds)
    assert (table["train_seconds"] / table["step"]).std() == pytest.approx(0, abs=1e-9)


def test_slow_checkpoints_are_taken_less_often(order: PackOrder, files: SweepFiles) -> None:
    worker = Worker(order, files, CPU)
    assert worker._checkpoint_seconds == 30
    worker.save()
    assert worker._save_seconds > 0
    for taken, wanted in ((1.0, 30), (4.0, 80), (1e6, 600)):
        worker._save_seconds = taken
        assert worker._checkpoint_seconds == wanted


def test_runs_of_an_older_checkpoint_start_over_with_a_warning(
    order: PackOrder, files: SweepFiles, caplog: pytest.LogCaptureFixture
) -> None:
    data = io.BytesIO()
    torch.save({"order": asdict(order), "packs": [], "frames": [], "seconds": [], "ended": []}, data)
    files.save_checkpoint(order.id, data.getvalue(), order.run_ids[:4])
    worker = Worker(order, files, CPU)
    assert worker.pack_group.steps() == dict.fromkeys(order.run_ids, 0)
    (record,) = caplog.records
    assert record.args == (4,)
