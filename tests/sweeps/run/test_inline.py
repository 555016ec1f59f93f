"""Whole sweeps in this process: interrupted, continued, widened, with runs that fail."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mislabel.sweeps.run.launch import Launch, run_inline
from mislabel.sweeps.store.outcome import INTERRUPTED, StopCause
from mislabel.sweeps.store.store import Store
from tests.bowls import CPU, curves_of, prepared, run, runs_of

MIXED = {"x": {"values": [0, 1, 2, 3]}, "trouble": {"values": [0, 2]}, "width": {"values": [2, 3]}, "snapshots": 2}


def statuses(launch: Launch) -> dict[str, int]:
    return dict(Counter(runs_of(launch.files)["status"]))


def stopping_after(reports: int) -> Callable[[Launch], None]:
    """A `show` function that stops the sweep at the given report."""
    seen = 0

    def show(launch: Launch) -> None:
        nonlocal seen
        seen += 1
        if seen == reports:
            launch.driver.stop(INTERRUPTED)

    return show


@pytest.fixture
def in_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers report after every stretch of steps, so that a sweep can be stopped in the middle of a pack.

    After the first step, a stretch lasts until the next frame, so that packs report equally often on any machine.
    """
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    monkeypatch.setattr("mislabel.tasks.pack._STRETCH_SECONDS", 1e9)


def test_a_sweep_runs_every_cell_from_every_seed(store: Store) -> None:
    launch = run(store)
    runs = runs_of(launch.files)
    assert sorted(zip(runs["x"], runs["seed"], strict=True)) == [(x, seed) for x in (0, 1, 2) for seed in (0, 1)]
    assert statuses(launch) == {"done": 6}
    assert launch.driver.progress.done == launch.driver.progress.runs == 6
    assert launch.driver.progress.running == 0
    assert launch.files.progress()["state"] == "done"


def test_running_a_complete_sweep_does_nothing(store: Store) -> None:
    first = run(store)
    before = runs_of(first.files)
    again = run(store)
    assert again.plan.missing == 0
    assert sum(again.driver.progress.statuses.values()) == 0
    pd.testing.assert_frame_equal(runs_of(again.files), before)


@pytest.mark.long
@pytest.mark.usefixtures("in_small_steps")
@pytest.mark.parametrize("reports", [1, 2, 3, 5, 8, 13, 21])
def test_a_sweep_stopped_anywhere_and_continued_has_the_same_tables(
    store: Store, tmp_path_factory: pytest.TempPathFactory, reports: int
) -> None:
    undisturbed = run(Store(str(tmp_path_factory.mktemp("other"))), parameters=MIXED)
    stopped = run(store, stopping_after(reports), parameters=MIXED)
    assert stopped.files.progress()["state"] == "stopped"
    assert stopped.driver.over
    rest = run(store, parameters=MIXED)
    ended = sum(stopped.driver.progress.statuses.values())
    assert ended < 32
    assert ended + sum(rest.driver.progress.statuses.values()) == 32
    pd.testing.assert_frame_equal(runs_of(rest.files), runs_of(undisturbed.files))
    pd.testing.assert_frame_equal(curves_of(rest.files), curves_of(undisturbed.files))
    arrays = [launch.files.read("arrays").drop(["pack_id"]).to_pandas() for launch in (rest, undisturbed)]
    first, second = (table.sort_values(["run_id", "step"], ignore_index=True) for table in arrays)
    pd.testing.assert_frame_equal(first, second)
    assert list(rest.files.checkpoints()) == []


@pytest.mark.usefixtures("in_small_steps")
def test_a_stopped_pack_continues_from_its_checkpoint(store: Store) -> None:
    stopped = run(store, stopping_after(4))
    ((_, held),) = stopped.files.checkpoints()
    rest = run(store)
    assert list(rest.plan.checkpoints) == held
    steps = stopped.driver.progress.steps_done + rest.driver.progress.steps_done
    assert steps == 6 * 8


@pytest.mark.usefixtures("in_small_steps")
def test_a_checkpoint_is_used_in_part_when_some_of_its_runs_have_ended(store: Store) -> None:
    """As after a crash between writing the rows of a pack and removing its checkpoint."""
    stopped = run(store, stopping_after(2), resources={"pack": 6})
    ((pack, held),) = stopped.files.checkpoints()
    data = stopped.files.load_checkpoint(pack)
    assert data is not None
    expected = runs_of(run(store, resources={"pack": 6}).files)
    stopped.files.save_checkpoint(pack, data, held)
    wider = run(store, seeds=3, resources={"pack": 6})
    assert wider.plan.resumed == []
    assert statuses(wider) == {"done": 9}
    kept = runs_of(wider.files)
    pd.testing.assert_frame_equal(kept[kept["seed"] < 2].reset_index(drop=True), expected)


def test_more_seeds_run_only_the_new_ones(store: Store) -> None:
    before = runs_of(run(store, seeds=2).files)
    wider = run(store, seeds=5)
    assert wider.driver.progress.statuses == {"done": 9}
    after = runs_of(wider.files)
    pd.testing.assert_frame_equal(after[after["seed"] < 2].reset_index(drop=True), before)


def test_more_values_run_only_the_new_ones(store: Store) -> None:
    before = runs_of(run(store).files)
    wider = run(store, parameters={"x": {"values": [0, 1, 2, 3, 4]}, "width": {"values": [2, 3]}})
    assert wider.driver.progress.statuses == {"done": 14}
    after = runs_of(wider.files)
    pd.testing.assert_frame_equal(after[after["run_id"].isin(before["run_id"])].reset_index(drop=True), before)


def test_a_run_that_raises_is_found_by_halving_and_the_others_are_not_affected(
    store: Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good = run(Store(str(tmp_path_factory.mktemp("other"))), parameters={"x": {"values": [0, 1, 2, 3]}}, seeds=2)
    parameters = {"x": {"values": [0, 1, 2, 3]}, "trouble": {"values": [0, 1], "when": "x == 2"}}
    mixed = run(store, parameters=parameters, seeds=2, resources={"pack": 16})
    assert statuses(mixed) == {"done": 8, "failed": 2}
    runs = runs_of(mixed.files)
    failed = runs[runs["status"] == "failed"]
    assert failed["trouble"].tolist() == [1, 1]
    assert failed["loss"].isna().all()
    assert all(error.startswith("RuntimeError: the bowl broke\nTraceback") for error in failed["error"])
    assert set(mixed.driver.errors) == set(failed["run_id"])
    ended = runs[runs["status"] == "done"].reset_index(drop=True)
    assert ended["error"].isna().all()
    pd.testing.assert_frame_equal(ended, runs_of(good.files), check_dtype=False)
    assert set(curves_of(mixed.files)["run_id"]) == set(ended["run_id"])


def test_failed_runs_are_run_again_on_request_only(store: Store) -> None:
    parameters = {"trouble": {"values": [0, 1]}}
    assert statuses(run(store, parameters=parameters)) == {"done": 2, "failed": 2}
    again = run(store, parameters=parameters)
    assert again.plan.missing == 0
    assert again.plan.failed == 2
    retried = run(store, retry=True, parameters=parameters)
    assert retried.plan.missing == 2
    assert retried.driver.progress.statuses == {"failed": 2}
    table = retried.files.read("runs", ["status", "attempt"]).to_pandas()
    assert sorted(table[table["status"] == "failed"]["attempt"]) == [2, 2]
    assert len(table) == 4


def test_a_run_is_tried_as_often_as_the_budget_allows_and_losses_do_not_count(store: Store) -> None:
    changes: dict[str, Any] = {"parameters": {"trouble": 1}, "seeds": 1, "budget": {"failures": 2}}
    launch = prepared(store, **changes)
    order = launch.driver.next()
    assert order is not None
    launch.driver.lost(order.id, "its worker died")
    first = run(store, **changes)
    assert first.files.read("runs", ["status", "attempt"]).to_pylist() == [{"status": "failed", "attempt": 1}]
    second = run(store, retry=True, **changes)
    assert second.files.read("runs", ["status", "attempt"]).to_pylist() == [{"status": "failed", "attempt": 2}]
    third = run(store, retry=True, **changes)
    assert (third.plan.missing, third.plan.failed) == (0, 1)
    more = run(store, retry=True, **{**changes, "budget": {"failures": 3}})
    assert more.files.read("runs", ["status", "attempt"]).to_pylist() == [{"status": "failed", "attempt": 3}]


def test_too_many_failures_stop_the_sweep(store: Store) -> None:
    parameters = {"trouble": 1, "x": {"values": [0, 1, 2, 3, 4, 5]}}
    launch = run(store, parameters=parameters, budget={"failures": 3}, resources={"pack": 4})
    assert launch.driver.stop_reason is not None
    assert launch.driver.stop_reason.cause is StopCause.TOO_MANY_FAILURES
    assert statuses(launch) == {"failed": 4}
    assert launch.driver.over
    assert launch.files.progress()["state"] == "stopped"
    assert launch.files.progress()["stopped_because"] == launch.driver.stop_reason.text


def test_a_budget_of_no_failures_stops_at_the_first(store: Store) -> None:
    launch = run(store, parameters={"trouble": 1, "x": {"values": [0, 1]}}, budget={"failures": 0})
    assert statuses(launch) == {"failed": 1}


@pytest.mark.usefixtures("in_small_steps")
def test_a_budget_of_time_stops_the_sweep_and_a_larger_one_continues_it(store: Store) -> None:
    stopped = run(store, budget={"wall": 1e-9})
    assert stopped.driver.stop_reason is not None
    assert stopped.driver.stop_reason.cause is StopCause.TIME_USED_UP
    assert stopped.files.parts("runs") == []
    rest = run(store, budget={"wall": "1h"})
    assert statuses(rest) == {"done": 6}


@pytest.mark.long
@pytest.mark.usefixtures("in_small_steps")
@pytest.mark.parametrize("budgets", [[{"runs": 3}, {"runs": 10}], [{"wall": 1e-9}, {"runs": 7, "wall": 1e-9}]])
def test_a_sweep_whose_budget_is_raised_has_the_tables_of_an_undisturbed_one(
    store: Store, tmp_path_factory: pytest.TempPathFactory, budgets: list[dict[str, float]]
) -> None:
    undisturbed = run(Store(str(tmp_path_factory.mktemp("other"))), parameters=MIXED)
    for budget in budgets:
        stopped = run(store, parameters=MIXED, budget=budget)
        assert stopped.driver.stop_reason is not None
        assert stopped.driver.stop_reason.cause in (StopCause.RUNS_USED_UP, StopCause.TIME_USED_UP)
        if "wall" not in budget:
            assert sum(statuses(stopped).values()) == budget["runs"]
            assert run(store, parameters=MIXED, budget=budget).driver.progress.statuses == {}
    rest = run(store, parameters=MIXED)
    assert rest.driver.stop_reason is None
    # Runs are packed with others than in the undisturbed sweep, which may round differently.
    pd.testing.assert_frame_equal(runs_of(rest.files), runs_of(undisturbed.files), rtol=1e-5)
    pd.testing.assert_frame_equal(curves_of(rest.files), curves_of(undisturbed.files), rtol=1e-5)


def test_diverged_runs_are_recorded_and_not_run_again(store: Store) -> None:
    parameters = {"trouble": {"values": [0, 2]}}
    launch = run(store, parameters=parameters)
    assert statuses(launch) == {"diverged": 2, "done": 2}
    assert run(store, parameters=parameters).plan.missing == 0


def test_lost_runs_are_recorded_and_run_again(store: Store) -> None:
    launch = prepared(store)
    order = launch.driver.next()
    assert order is not None
    launch.driver.lost(order.id, "its worker died 6 times")
    launch.finish()
    assert statuses(launch) == {"lost": 4}
    again = run(store)
    assert statuses(again) == {"done": 6}
    assert again.driver.progress.statuses == {"done": 6}
    attempts = again.files.read("runs", ["attempt"])["attempt"].to_pylist()
    assert attempts == [1] * 6, "what was lost has not failed"


def test_a_store_that_can_not_be_written_stops_the_sweep(store: Store) -> None:
    launch = prepared(store)
    Path(launch.files.address, "curves").write_text("a file in place of the folder")
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    assert launch.driver.broken is not None
    assert str(launch.driver.broken).startswith(launch.files.address)
    assert launch.files.parts("runs") == []
    launch.finish()
    Path(launch.files.address, "curves").unlink()
    assert statuses(run(store)) == {"done": 6}


def test_an_error_of_the_driver_is_not_a_failure_of_runs(store: Store) -> None:
    def show(launch: Launch) -> None:
        raise ZeroDivisionError("a bug in what is shown")

    with pytest.raises(ZeroDivisionError):
        run(store, show)


def test_a_task_with_packs_of_one_run_gets_them(store: Store) -> None:
    launch = run(store, task="bowl.single", resources={"pack": "auto"})
    lanes = launch.files.read("runs", ["pack_lanes"])["pack_lanes"].to_pylist()
    assert lanes == [1] * 6


def test_runs_of_different_shapes_are_in_different_packs(store: Store) -> None:
    launch = run(store, parameters={"width": {"values": [2, 3, 4]}}, seeds=3, resources={"pack": 16})
    packs = launch.files.read("runs", ["pack_id", "width", "pack_lanes"]).to_pandas()
    assert packs.groupby("pack_id")["width"].nunique().tolist() == [1, 1, 1]
    assert (packs["pack_lanes"] == 3).all()
