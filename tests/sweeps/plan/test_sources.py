import threading
from typing import Any

import pytest

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.sources import SearchSource
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.launch import Machine
from mislabel.sweeps.run.report import Finished, Report
from mislabel.sweeps.search.search import Proposal
from mislabel.sweeps.store.outcome import INTERRUPTED, Outcome, Status
from mislabel.sweeps.store.store import Store
from tests.bowls import CPU, prepared, run, runs_of

TPE: dict[str, Any] = {
    "method": {"name": "tpe", "startup": 5},
    "budget": {"cells": 40},
    "parameters": {"x": {"min": -10, "max": 10}, "rate": {"min": 0.01, "max": 1, "scale": "log"}},
    "resources": {"pack": 8},
}
AHEAD = Machine(workers=2, memory_bytes=1 << 30, device=CPU, ahead=True)


def asked_of(driver: Driver) -> SearchSource:
    assert isinstance(driver._source, SearchSource)
    return driver._source


def finished(order: PackOrder) -> Report:
    ended = [
        Outcome(cell, seed, Status.DONE, {"loss": (float(order.values(lane)["x"]) - 3) ** 2})
        for lane, (cell, seed) in enumerate(zip(order.cells, order.seeds, strict=True))
    ]
    return Finished(order.id, run_steps=8 * len(order), train_seconds=1.0, outcomes=ended)


def run_through(driver: Driver, workers: int = 2) -> list[PackOrder]:
    """Workers that finish their packs one after the other."""
    done: list[PackOrder] = []
    running: list[PackOrder] = []
    while True:
        while len(running) < workers and (order := driver.next()) is not None:
            running.append(order)
        if not running:
            assert driver.over
            return done
        done.append(running.pop(0))
        driver.report(finished(done[-1]))


def test_packs_are_small_enough_that_each_worker_gets_ten(store: Store) -> None:
    orders = run_through(prepared(store, machine=AHEAD, **TPE).driver)
    assert [len(order) for order in orders] == [4] * 20  # two cells of two seeds; the pack could hold four
    assert len({cell for order in orders for cell in order.cells}) == 40


def test_a_search_in_its_own_thread_uses_the_whole_budget(store: Store) -> None:
    launch = prepared(store, machine=AHEAD, **TPE)
    orders = run_through(launch.driver)
    assert sum(len(order) for order in orders) == 80
    assert launch.driver.progress.done == 80
    search = asked_of(launch.driver).search.searches[0]
    assert len(search.proposals) == 40


def prepared_batch(source: SearchSource) -> list[Proposal]:
    """Wait for the batch that the search's thread prepares."""
    assert source._batch is not None
    return source._batch.result(120)


def test_a_batch_is_prepared_while_packs_train(store: Store) -> None:
    driver = prepared(store, machine=AHEAD, **TPE).driver
    assert driver.next() is not None
    source = asked_of(driver)
    prepared_cells = {proposal.cell for proposal in prepared_batch(source)}
    order = driver.next()
    assert order is not None
    assert set(order.cells) == prepared_cells


def test_the_driver_does_not_wait_for_a_slow_search(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepared(store, machine=AHEAD, **TPE).driver
    source = asked_of(driver)
    release = threading.Event()
    ask = source.search.ask
    assert driver.next() is not None
    prepared_batch(source)
    assert driver.next() is not None
    prepared_batch(source)

    def slow(count: int) -> Any:
        release.wait(120)
        return ask(count)

    monkeypatch.setattr(source.search, "ask", slow)
    assert driver.next() is not None  # the batch that was prepared
    assert driver.next() is None
    assert not driver.over
    release.set()
    prepared_batch(source)
    assert driver.next() is not None


@pytest.mark.parametrize("machine", [AHEAD, Machine(2, 1 << 30, CPU)], ids=["ahead", "inline"])
def test_an_error_of_the_search_is_raised_by_the_sweep(
    store: Store, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = prepared(store, machine=machine, **TPE).driver

    def broken(count: int) -> Any:
        raise RuntimeError("the model broke")

    monkeypatch.setattr(asked_of(driver).search, "ask", broken)
    with pytest.raises(RuntimeError, match="the model broke"):
        run_through(driver)


def test_with_the_same_order_of_results_the_thread_proposes_the_same(store: Store) -> None:
    """With one worker, a pack's results always arrive before the batch after the next is requested."""
    machine = Machine(1, 1 << 30, CPU, ahead=True)
    cells = []
    for name in "ab":
        driver = prepared(store, machine=machine, **{**TPE, "name": name, "budget": {"cells": 20}}).driver
        cells.append([order.cells for order in run_through(driver, workers=1)])
    assert cells[0] == cells[1]


def test_a_cell_that_is_proposed_again_is_run_from_more_seeds(store: Store) -> None:
    parameters = {"x": {"values": [1.0, 2.0, 3.0]}, "width": {"values": [1, 2]}}
    changes = {**TPE, "parameters": parameters, "budget": {"cells": 15}}
    launch = run(store, **changes)
    runs = runs_of(launch.files)
    seeds = runs.groupby("cell_id")["seed"].apply(sorted)
    assert len(runs) == 30  # as many as the budget's cells with the spec's seeds
    assert all(found == list(range(len(found))) and len(found) % 2 == 0 for found in seeds)
    assert max(map(len, seeds)) > 2
    search = asked_of(launch.driver).search.searches[0]
    search._learn_results()
    means = runs.groupby("cell_id")["loss"].mean()
    for proposal in search.proposals:
        if proposal.seeds == len(seeds[proposal.cell]):
            assert search.study.trial(proposal.number).value == pytest.approx(means[proposal.cell])
    again = prepared(store, **changes)
    assert again.plan.missing == 0
    assert {p.cell: len(again.driver.backlog.seeding.of(p.cell)) for p in search.proposals} == seeds.apply(
        len
    ).to_dict()


def test_an_interrupted_sweep_with_repeated_cells_ends_like_an_uninterrupted_one(store: Store) -> None:
    parameters = {"x": {"values": [1.0, 2.0, 3.0]}, "width": {"values": [1, 2]}}
    changes = {**TPE, "parameters": parameters, "budget": {"cells": 15}}
    whole = runs_of(run(store, **{**changes, "name": "whole"}).files)
    stopped = 0

    def stop(launch: Any) -> None:
        if launch.driver.progress.done > stopped + 6:
            launch.driver.stop(INTERRUPTED)

    for _ in range(20):
        launch = run(store, stop, **changes)
        if not launch.plan.missing:
            break
        stopped = launch.driver.progress.done
    runs = runs_of(launch.files)
    assert sorted(runs["run_id"]) == sorted(whole["run_id"])
