import threading
from typing import Any

import pytest

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.sources import _PATIENCE_SECONDS, SearchSource, SeedRaceSource
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.launch import Machine
from mislabel.sweeps.run.record import Record
from mislabel.sweeps.run.report import Finished, Report
from mislabel.sweeps.run.worker import reports
from mislabel.sweeps.search.search import Branches, Proposal
from mislabel.sweeps.store.outcome import INTERRUPTED, Outcome, Status
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, CPU, prepared, run, runs_of

TPE: dict[str, Any] = {
    "method": {"name": "tpe", "startup": 5},
    "budget": {"cells": 40},
    "parameters": {"x": {"min": -10, "max": 10}, "rate": {"min": 0.01, "max": 1, "scale": "log"}},
    "resources": {"pack": 8},
}
AHEAD = Machine(workers=2, memory_bytes=1 << 30, device=CPU, ahead=True)


INLINE = Machine(workers=2, memory_bytes=1 << 30, device=CPU)


def asked_of(driver: Driver) -> SearchSource:
    source = driver._source._source if isinstance(driver._source, SeedRaceSource) else driver._source
    assert isinstance(source, SearchSource)
    return source


def learned(search: Branches) -> dict[str, float]:
    """The value of each cell that the study has learned."""
    (only,) = search.searches
    only._learn_results()
    trials = {proposal.cell: only.study.trial(proposal.number) for proposal in only.proposals}
    return {cell: trial.values[0] for cell, trial in trials.items() if trial.values}


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


@pytest.mark.parametrize(
    ("cells", "workers", "seeds", "pack", "proposed"),
    [
        (5, 2, 2, 8, 1),  # a quarter of a cell for each of 20 packs
        (30, 2, 2, 8, 1),  # one and a half
        (60, 1, 3, 8, 2),  # 8 lanes have room for two cells and two thirds
        (60, 1, 3, 2, 1),  # a cell needs two packs
    ],
)
def test_a_request_is_for_whole_cells_that_fit_into_a_pack(
    store: Store, cells: int, workers: int, seeds: int, pack: int, proposed: int
) -> None:
    changes = {**TPE, "budget": {"cells": cells}, "seeds": seeds, "resources": {"pack": pack}}
    driver = prepared(store, machine=Machine(workers, 1 << 30, CPU), **changes).driver
    assert driver.next() is not None
    assert len(asked_of(driver).search.proposals) == proposed


def test_every_shape_of_a_search_may_get_all_its_runs(store: Store) -> None:
    parameters = {**TPE["parameters"], "width": {"values": [2, 3]}}
    driver = prepared(store, machine=INLINE, **{**TPE, "parameters": parameters}).driver
    run_through(driver)
    groups = driver.backlog.groups.values()
    assert sorted((group.values["width"], group.runs) for group in groups) == [(2, 80), (3, 80)]


@pytest.mark.parametrize("seeds", [2, {"count": 2, "up_to": 4}], ids=["search", "search and race"])
@pytest.mark.parametrize("machine", [AHEAD, INLINE], ids=["ahead", "inline"])
def test_the_search_learns_the_mean_of_every_cell(store: Store, machine: Machine, seeds: Any) -> None:
    driver = prepared(store, machine=machine, **{**TPE, "budget": {"cells": 12}, "seeds": seeds}).driver
    run_through(driver)
    source = asked_of(driver)
    if source._thread:
        source._thread.shutdown()  # after the results that it has not handled yet
    means = {p.cell: (float(p.values["x"]) - 3) ** 2 for p in source.search.proposals}
    assert learned(source.search) == pytest.approx(means)


def test_a_proposed_cell_whose_runs_are_known_is_learned_and_not_run(store: Store) -> None:
    """Both sweeps propose the same cells first."""
    first = prepared(store, machine=INLINE, **{**TPE, "name": "first"}).driver.next()
    driver = prepared(store, machine=INLINE, **{**TPE, "name": "second"}).driver
    source = asked_of(driver)
    assert first is not None
    for outcome in finished(first).outcomes:
        source._means.add(outcome)
    order = driver.next()
    assert order is not None
    assert set(order.cells).isdisjoint(first.cells)
    means = {outcome.cell: outcome.metrics["loss"] for outcome in finished(first).outcomes}
    assert learned(source.search) == pytest.approx(means)


def test_an_inline_search_runs_in_the_thread_that_asks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepared(store, machine=INLINE, **TPE).driver
    threads = []
    ask = asked_of(driver).search.ask

    def noted(count: int) -> list[Proposal]:
        threads.append(threading.current_thread())
        return ask(count)

    monkeypatch.setattr(asked_of(driver).search, "ask", noted)
    assert driver.next() is not None
    assert threads == [threading.current_thread()]


def test_a_race_begins_when_all_cells_have_ended(store: Store) -> None:
    """The cells with x = 3 are equal; the others lose at once."""
    changes: dict[str, Any] = {"seeds": {"count": 3, "up_to": 6}, "resources": {"pack": 3}}
    changes["parameters"] = {"x": {"values": [3.0, 9.0]}, "level": {"values": [1, 2]}}
    driver = prepared(store, machine=INLINE, **changes).driver
    *others, last = [order for _ in range(4) if (order := driver.next()) is not None]
    for order in others:
        driver.report(finished(order))
    assert driver.next() is None
    assert not driver.over
    driver.report(finished(last))
    racing = [order for _ in range(2) if (order := driver.next()) is not None]
    assert [order.seeds for order in racing] == [[3, 4, 5]] * 2
    assert {order.values(0)["x"] for order in racing} == {3.0}
    (group,) = driver.backlog.groups.values()
    assert (group.runs, group.missing) == (6, 6)
    driver.report(finished(racing[0]))
    assert driver.next() is None
    driver.report(finished(racing[1]))
    assert driver.next() is None
    assert driver.over


BRANCHES: dict[str, Any] = {**TPE["parameters"], "level": {"values": [1, 2, 3], "grid": True}}


@pytest.mark.parametrize("parameters", [TPE["parameters"], BRANCHES], ids=["one branch", "branches"])
@pytest.mark.parametrize("finish", [0, 1, 2])
def test_a_restarted_search_packs_its_unfinished_cells_as_before(
    store: Store, parameters: dict[str, Any], finish: int
) -> None:
    """In packs of another size, the runs would be rounded differently."""
    machine = Machine(workers=2, memory_bytes=1 << 30, device=CPU)
    values = {**TPE, "parameters": parameters}
    first = prepared(store, machine=machine, **values).driver
    orders = [order for _ in range(4) if (order := first.next()) is not None]
    for order in orders[:finish]:
        outcomes = finished(order).outcomes
        rows = Record(order).rows(outcomes, BOWL, "cpu", "")
        store.sweep("bowls").write_results({"runs": rows})
    again = prepared(store, machine=machine, **values).driver
    resumed = [order for _ in range(4 - finish) if (order := again.next()) is not None]
    assert [order.run_ids for order in resumed] == [order.run_ids for order in orders[finish:]]


def test_a_restarted_search_continues_with_the_branch_whose_turn_it_is(store: Store) -> None:
    values = {**TPE, "parameters": BRANCHES, "resources": {"pack": 2}}
    launch = prepared(store, **values)
    for _ in range(4):
        order = launch.driver.next()
        assert order is not None
        for report in reports(order, launch.files, CPU, ["loss"], None, lambda: False):
            launch.driver.report(report)
    restarted = prepared(store, **values).driver.next()
    fifth = launch.driver.next()
    assert restarted is not None
    assert fifth is not None
    assert restarted.run_ids == fifth.run_ids


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


@pytest.mark.long
def test_the_driver_waits_for_a_slow_search_if_nothing_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = prepared(store, machine=AHEAD, **TPE).driver
    source = asked_of(driver)
    first = driver.next()
    prepared_batch(source)
    release = threading.Event()
    ask = source.search.ask

    def slow(count: int) -> Any:
        release.wait(120)
        return ask(count)

    monkeypatch.setattr(source.search, "ask", slow)
    second = driver.next()  # the batch that was prepared
    for order in (first, second):
        assert order is not None
        driver.report(finished(order))
    timer = threading.Timer(5 * _PATIENCE_SECONDS, release.set)
    timer.start()
    assert driver.next() is not None
    timer.join()


@pytest.mark.parametrize("machine", [AHEAD, INLINE], ids=["ahead", "inline"])
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


@pytest.mark.long
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


@pytest.mark.long
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
