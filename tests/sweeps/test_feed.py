import math
from pathlib import Path
from typing import Any

import pytest

from sweeps.errors import StoreError
from sweeps.feed import Feed, Means
from sweeps.order import PackOrder
from sweeps.outcome import Outcome
from sweeps.store import Store
from sweeps.worker import Report
from tests.bowls import bowl_spec, prepared, run, runs_of


def finished(order: PackOrder, loss: float = 1.0) -> Report:
    """What a worker says at the end of a pack, with the same loss for all of its runs."""
    ended = [Outcome(cell, seed, "done", {"loss": loss}) for cell, seed in zip(order.cells, order.seeds, strict=True)]
    return Report(order.id, run_steps=8 * len(order), train_seconds=1.0, outcomes=ended, finished=True)


def next_order(feed: Feed) -> PackOrder:
    order = feed.next()
    assert order is not None
    return order


def test_packs_are_handed_out_until_there_are_none(store: Store) -> None:
    feed = prepared(store).feed
    first, second = next_order(feed), next_order(feed)
    assert (len(first), len(second)) == (4, 2)
    assert feed.next() is None
    assert not feed.over
    assert feed.progress.running == 6
    for order in (first, second):
        feed.report(finished(order))
    assert feed.over
    assert (feed.progress.running, feed.progress.done, feed.progress.steps_done) == (0, 6, 48)


def test_a_pack_that_fails_is_halved_until_one_run_is_left(store: Store) -> None:
    feed = prepared(store).feed
    order = next_order(feed)
    feed.report(Report(order.id, error="it broke"))
    assert not feed.over
    halves = [next_order(feed), next_order(feed)]
    assert [run for half in halves for run in half.run_ids] == order.run_ids
    feed.report(finished(halves[0]))
    feed.report(Report(halves[1].id, error="it broke"))
    single = next_order(feed)
    assert len(single) == 1
    feed.report(Report(single.id, error="it broke"))
    assert feed.errors == {single.run_ids[0]: "it broke"}
    assert feed.progress.statuses == {"done": 2, "failed": 1}


def test_a_stopped_feed_hands_out_nothing_and_ends_when_the_last_pack_does(store: Store) -> None:
    feed = prepared(store).feed
    order = next_order(feed)
    feed.stop("interrupted")
    assert feed.stopping
    assert feed.next() is None
    assert not feed.over
    feed.report(Report(order.id, halted=True))
    assert feed.over


def test_a_stopped_feed_is_over_though_halves_of_a_failed_pack_are_left(store: Store) -> None:
    """Else whoever asks it for packs would wait for ever."""
    feed = prepared(store).feed
    order = next_order(feed)
    feed.stop("interrupted")
    feed.report(Report(order.id, error="it broke"))
    assert feed.next() is None
    assert feed.over


def test_the_first_reason_to_stop_is_kept(store: Store) -> None:
    feed = prepared(store).feed
    feed.break_off(StoreError("the disk is full"))
    feed.stop("interrupted")
    assert feed.stop_reason == "the disk is full"
    assert str(feed.broken) == "the disk is full"


def test_a_failure_that_can_not_be_written_down_breaks_the_sweep_off(store: Store) -> None:
    launch = prepared(store, resources={"pack": 1})
    first, second = next_order(launch.feed), next_order(launch.feed)
    Path(launch.files.address, "runs").write_text("a file in place of the folder")
    launch.feed.report(Report(first.id, error="it broke"))
    launch.feed.lost(second.id, "its worker died")
    assert "is not a folder" in str(launch.feed.broken)
    assert launch.feed.next() is None
    assert launch.feed.over


def test_proposals_that_can_not_be_written_down_break_the_sweep_off(store: Store) -> None:
    launch = prepared(store, method="tpe", budget={"cells": 3}, parameters={"x": {"min": 0, "max": 1}})
    Path(launch.files.address, "proposals").write_text("a file in place of the folder")
    assert launch.feed.next() is None
    assert "is not a folder" in str(launch.feed.broken)
    assert launch.feed.over


def test_a_report_of_a_pack_that_is_no_longer_running_changes_no_run(store: Store) -> None:
    """A worker that was taken for dead may still speak up."""
    launch = prepared(store)
    order = next_order(launch.feed)
    launch.feed.lost(order.id, "its worker died")
    launch.feed.report(Report(order.id, error="too late"))
    launch.feed.lost(order.id, "its worker died")
    assert launch.feed.progress.statuses == {"lost": 4}
    assert launch.feed.progress.running == 0
    assert launch.feed.errors == {}


def test_the_best_cell_is_known_once_all_its_seeds_have_ended(store: Store) -> None:
    feed = prepared(store, resources={"pack": 1}).feed
    orders = [next_order(feed) for _ in range(6)]
    feed.report(finished(orders[0], 5.0))
    assert feed.means.best is None
    feed.report(finished(orders[1], 7.0))
    assert feed.means.best == (6.0, orders[0].cells[0])
    assert feed.best_cell == {"x": 0.0}
    for order in orders[2:4]:
        feed.report(finished(order, 9.0))
    assert feed.best_cell == {"x": 0.0}
    for order in orders[4:]:
        feed.report(finished(order, 1.0))
    assert feed.best_cell == {"x": 2.0}
    assert feed.means.best == (1.0, orders[4].cells[0])


# Means


def test_a_mean_is_over_all_seeds_or_not_at_all(store: Store) -> None:
    means = Means(bowl_spec(seeds=3), store.sweep("bowls"))
    means.add("a", 0, [1.0])
    means.add("a", 2, [4.0])
    assert means.of("a") is None
    means.add("a", 1, [1.0])
    assert means.of("a") == [2.0]
    assert means.of("b") is None
    assert means.complete() == {"a": [2.0]}


def test_a_mean_has_the_same_bits_in_whatever_order_seeds_end(store: Store) -> None:
    values = {0: 0.1, 1: 1e16, 2: -1e16, 3: 0.3}
    results = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        means = Means(bowl_spec(seeds=4), store.sweep("bowls"))
        for seed in order:
            means.add("a", seed, [values[seed]])
        results.append(means.of("a"))
    assert results[0] == results[1] == results[2]


def test_several_objectives_have_a_mean_each(store: Store) -> None:
    metric = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
    means = Means(bowl_spec(metric=metric), store.sweep("bowls"))
    means.add("a", 0, [1.0, 10.0])
    means.add("a", 1, [3.0, 30.0])
    assert means.of("a") == [2.0, 20.0]


@pytest.mark.parametrize(("goal", "best"), [("minimize", 1.0), ("maximize", 3.0)])
def test_the_best_is_the_lowest_or_the_highest_and_always_finite(store: Store, goal: str, best: float) -> None:
    means = Means(bowl_spec(seeds=1, metric={"name": "loss", "goal": goal}), store.sweep("bowls"))
    for cell, value in {"a": 2.0, "b": math.nan, "c": 1.0, "d": math.inf, "e": -math.inf, "f": 3.0}.items():
        means.add(cell, 0, [value])
    assert means.best is not None
    assert means.best[0] == best


def test_means_of_earlier_launches_come_from_the_store(store: Store) -> None:
    launch = run(store, parameters={"x": {"values": [0, 1]}, "trouble": {"values": [0, 2]}})
    means = Means(launch.spec, launch.files)
    table = runs_of(launch.files).groupby("cell_id")["loss"].agg(lambda losses: losses.mean(skipna=False))
    complete = means.complete()
    assert set(complete) == set(table.index)
    for cell, (mean,) in ((cell, values or [math.nan]) for cell, values in complete.items()):
        assert mean == pytest.approx(table[cell], nan_ok=True)


def test_failed_seeds_count_as_ended_unless_they_are_run_again(store: Store) -> None:
    launch = run(store, parameters={"trouble": {"values": [0, 1]}})
    found: Any = Means(launch.spec, launch.files).complete()
    assert sorted(math.isnan(mean) for (mean,) in found.values()) == [False, True]
    assert len(Means(launch.spec, launch.files, retry=True).complete()) == 1


def test_means_need_no_metric_columns_where_all_runs_failed(store: Store) -> None:
    launch = run(store, parameters={"trouble": 1})
    (mean,) = Means(launch.spec, launch.files).complete().values()
    assert mean is not None
    assert math.isnan(mean[0])


def test_lost_seeds_are_still_to_come(store: Store) -> None:
    launch = prepared(store)
    launch.feed.lost(next_order(launch.feed).id, "its worker died")
    assert Means(launch.spec, launch.files).complete() == {}


def test_seeds_that_the_spec_no_longer_asks_for_are_not_averaged(store: Store) -> None:
    launch = run(store, seeds={"count": 3, "first": 0})
    later = bowl_spec(seeds={"count": 2, "first": 1})
    found = Means(later, launch.files).complete()
    table = runs_of(launch.files)
    expected = table[table["seed"] > 0].groupby("cell_id")["loss"].mean()
    assert {cell: values[0] if values else None for cell, values in found.items()} == pytest.approx(expected.to_dict())
