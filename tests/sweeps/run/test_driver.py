import time
from pathlib import Path

import pytest

from mislabel.sweeps.errors import StoreError, WrongStoreError
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.report import Advanced, Failed, Finished, Halted, Refill, Report
from mislabel.sweeps.store.outcome import INTERRUPTED, Outcome, Status, StopCause, StopReason
from mislabel.sweeps.store.store import Store
from tests.bowls import prepared, store_speeds


def finished(order: PackOrder, loss: float = 1.0) -> Report:
    """A worker's report at the end of a pack, with the same loss for all of its runs."""
    runs = zip(order.cells, order.seeds, strict=True)
    ended = [Outcome(cell, seed, Status.DONE, {"loss": loss}) for cell, seed in runs]
    return Finished(order.id, run_steps=8 * len(order), train_seconds=1.0, outcomes=ended)


def next_order(driver: Driver) -> PackOrder:
    order = driver.next()
    assert order is not None
    return order


def test_the_driver_hands_out_packs_until_none_are_left(store: Store) -> None:
    driver = prepared(store).driver
    first, second = next_order(driver), next_order(driver)
    assert (len(first), len(second)) == (4, 2)
    assert driver.next() is None
    assert not driver.over
    assert driver.progress.running == 6
    for order in (first, second):
        driver.report(finished(order))
    assert driver.over
    assert (driver.progress.running, driver.progress.done, driver.progress.steps_done) == (0, 6, 48)


def test_a_pack_that_fails_is_halved_until_one_run_is_left(store: Store) -> None:
    driver = prepared(store).driver
    order = next_order(driver)
    driver.report(Failed(order.id, error="it broke"))
    assert not driver.over
    halves = [next_order(driver), next_order(driver)]
    assert [run for half in halves for run in half.run_ids] == order.run_ids
    driver.report(finished(halves[0]))
    driver.report(Failed(halves[1].id, error="it broke"))
    single = next_order(driver)
    assert len(single) == 1
    driver.report(Failed(single.id, error="it broke"))
    assert driver.errors == {single.run_ids[0]: "it broke"}
    assert driver.progress.statuses == {"done": 2, "failed": 1}


def test_a_pack_that_makes_room_for_another_sweep_is_handed_out_again_from_its_checkpoint(store: Store) -> None:
    driver = prepared(store).driver
    first, second = next_order(driver), next_order(driver)
    driver.report(Halted(first.id))
    driver.report(finished(second))
    assert not driver.over
    again = next_order(driver)
    assert (again.run_ids, again.resume) == (first.run_ids, (first.id,))
    driver.report(finished(again))
    assert driver.over


def test_a_stopped_driver_hands_out_nothing_and_is_over_with_its_last_pack(store: Store) -> None:
    driver = prepared(store).driver
    order = next_order(driver)
    driver.stop(INTERRUPTED)
    assert driver.stopping
    assert driver.next() is None
    assert not driver.over
    driver.report(Halted(order.id))
    assert driver.over


def test_a_stopped_driver_is_over_even_if_halves_of_a_failed_pack_are_left(store: Store) -> None:
    """Otherwise the runner would wait for packs forever."""
    driver = prepared(store).driver
    order = next_order(driver)
    driver.stop(INTERRUPTED)
    driver.report(Failed(order.id, error="it broke"))
    assert driver.next() is None
    assert driver.over


def test_the_first_reason_to_stop_is_kept(store: Store) -> None:
    driver = prepared(store).driver
    driver.break_off(StoreError("the disk is full"))
    driver.stop(INTERRUPTED)
    assert driver.stop_reason == StopReason(StopCause.STORE_FAILED, "the disk is full")
    assert str(driver.broken) == "the disk is full"


def test_a_failure_that_can_not_be_stored_stops_the_sweep(store: Store) -> None:
    launch = prepared(store, resources={"pack": 1})
    first, second = next_order(launch.driver), next_order(launch.driver)
    Path(launch.files.address, "runs").write_text("a file in place of the folder")
    launch.driver.report(Failed(first.id, error="it broke"))
    launch.driver.lost(second.id, "its worker died")
    assert isinstance(launch.driver.broken, WrongStoreError)
    assert launch.driver.next() is None
    assert launch.driver.over


def test_proposals_that_can_not_be_stored_stop_the_sweep(store: Store) -> None:
    launch = prepared(store, method="tpe", budget={"cells": 3}, parameters={"x": {"min": 0, "max": 1}})
    Path(launch.files.address, "proposals").write_text("a file in place of the folder")
    assert launch.driver.next() is None
    assert isinstance(launch.driver.broken, WrongStoreError)
    assert launch.driver.over


def test_a_report_of_a_pack_that_is_no_longer_running_changes_no_run(store: Store) -> None:
    """A worker that was taken for dead may still report."""
    launch = prepared(store)
    order = next_order(launch.driver)
    launch.driver.lost(order.id, "its worker died")
    launch.driver.report(Failed(order.id, error="too late"))
    launch.driver.lost(order.id, "its worker died")
    assert launch.driver.progress.statuses == {"lost": 4}
    assert launch.driver.progress.running == 0
    assert launch.driver.errors == {}


def test_the_best_cell_is_known_once_all_its_seeds_have_ended(store: Store) -> None:
    driver = prepared(store, resources={"pack": 1}).driver
    orders = [next_order(driver) for _ in range(6)]
    driver.report(finished(orders[0], 5.0))
    assert driver.means.best is None
    driver.report(finished(orders[1], 7.0))
    assert driver.means.best == (6.0, orders[0].cells[0])
    assert driver.best_cell == {"x": 0.0}
    for order in orders[2:4]:
        driver.report(finished(order, 9.0))
    assert driver.best_cell == {"x": 0.0}
    for order in orders[4:]:
        driver.report(finished(order, 1.0))
    assert driver.best_cell == {"x": 2.0}
    assert driver.means.best == (1.0, orders[4].cells[0])


def ended(order: PackOrder, lanes: list[int], status: Status = Status.STOPPED, step: int = 2) -> list[Outcome]:
    return [Outcome(order.cells[i], order.seeds[i], status, {"loss": 1.0}, step) for i in lanes]


def test_runs_end_while_others_of_their_pack_continue(store: Store) -> None:
    driver = prepared(store).driver
    order = next_order(driver)
    driver.report(Advanced(order.id, outcomes=ended(order, [0, 1])))
    assert (driver.progress.done, driver.progress.running) == (2, 2)
    assert driver.progress.work == pytest.approx(driver.backlog.work * (6 * 8 - 2 * 6) / (6 * 8))
    assert driver.means.of(order.cells[0]) is not None
    driver.report(Advanced(order.id, outcomes=ended(order, [0, 1, 2])))
    assert driver.progress.statuses == {"stopped": 3}, "a restarted worker reports some runs again"


def test_a_failed_or_lost_pack_affects_only_runs_that_have_not_ended(store: Store) -> None:
    driver = prepared(store).driver
    first, second = next_order(driver), next_order(driver)
    driver.report(Failed(first.id, outcomes=ended(first, [0, 2]), error="it broke"))
    halves = [next_order(driver), next_order(driver)]
    assert [half.run_ids for half in halves] == [[first.run_ids[1]], [first.run_ids[3]]]
    driver.report(Advanced(second.id, outcomes=ended(second, [1])))
    driver.lost(second.id, "its worker died")
    assert driver.progress.statuses == {"stopped": 3, "lost": 1}
    assert driver.progress.running == 2


ASHA = {"type": "asha", "min_steps": 3, "eta": 2}
LONG = {"x": {"values": [0, 1, 2, 3]}, "steps": 30, "frames": 11}


def test_parked_packs_are_merged_after_new_runs_have_begun(store: Store) -> None:
    driver = prepared(store, parameters=LONG, early_terminate=ASHA).driver
    first = next_order(driver)
    assert first.refill
    driver.report(Refill(first.id, outcomes=ended(first, [0, 1]), step=3))
    assert driver.progress.running == 0
    second = next_order(driver)
    assert set(second.run_ids).isdisjoint(first.run_ids)
    driver.report(Refill(second.id, outcomes=ended(second, [2, 3]), step=3))
    assert not driver.over
    both = next_order(driver)
    assert both.run_ids == first.run_ids[2:] + second.run_ids[:2]
    assert both.resume == (first.id, second.id)
    driver.report(finished(both))
    assert driver.next() is None
    assert driver.over
    assert driver.progress.done == 8


def test_a_pack_is_not_parked_if_no_other_runs_wait(store: Store) -> None:
    driver = prepared(store, parameters=LONG, early_terminate=ASHA, resources={"pack": 8}).driver
    only = next_order(driver)
    assert driver.next() is None
    driver.report(Refill(only.id, outcomes=ended(only, [0, 1, 2, 3]), step=3))
    assert not next_order(driver).refill


def test_a_sweep_that_stops_leaves_parked_packs_to_the_next_launch(store: Store) -> None:
    driver = prepared(store, parameters=LONG, early_terminate=ASHA).driver
    first = next_order(driver)
    driver.stop(INTERRUPTED)
    driver.report(Refill(first.id, outcomes=ended(first, [0, 1]), step=3))
    assert driver.next() is None
    assert driver.over


def test_a_budget_of_runs_cuts_the_last_pack_and_lets_the_others_finish(store: Store) -> None:
    driver = prepared(store, budget={"runs": 5}).driver
    first, second = next_order(driver), next_order(driver)
    assert (len(first), len(second)) == (4, 1)
    assert driver.next() is None
    assert not driver.stopping, "packs that run are not halted"
    driver.report(Failed(first.id, error="it broke"))
    driver.report(finished(second))
    assert not driver.over, "runs that have begun are finished"
    halves = [next_order(driver), next_order(driver)]
    for half in halves:
        driver.report(finished(half))
    assert driver.next() is None
    assert driver.over
    assert driver.stop_reason is not None
    assert driver.stop_reason.cause is StopCause.RUNS_USED_UP


def test_a_budget_that_suffices_is_no_reason_to_stop(store: Store) -> None:
    driver = prepared(store, budget={"runs": 6}).driver
    for order in (next_order(driver), next_order(driver)):
        driver.report(finished(order))
    assert driver.next() is None
    assert driver.over
    assert driver.stop_reason is None


def test_the_time_left_depends_on_the_cost_of_each_shape(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    parameters = {"x": 1.0, "width": {"values": [2, 64]}}
    store_speeds(store.sweep("bowls"), {2: 1.0, 64: 9.0})
    driver = prepared(store, parameters=parameters, resources={"pack": 1}).driver
    progress = driver.progress
    assert progress.work == pytest.approx(2 * 8 * 1.0 + 2 * 8 * 9.0)
    for _ in range(2):
        order = next_order(driver)
        assert order.common["width"] == 2
        driver.report(finished(order))
    assert progress.share == pytest.approx(0.1)
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now)
    progress.first_report = now - 10.0
    assert progress.seconds_left == pytest.approx(90, rel=0.01)
