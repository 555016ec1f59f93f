from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.plan.backlog import Backlog
from mislabel.sweeps.plan.pack_size import Profiler, Sizing
from mislabel.sweeps.plan.plan import make_plan, shape_of
from mislabel.sweeps.plan.sources import SearchSource
from mislabel.sweeps.run.worker import record_failure
from mislabel.sweeps.store.outcome import INTERRUPTED, Status
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, CPU, bowl_spec, orders_of, prepared, run, store_speeds
from tests.examples import examples

CELL = {name: parameter.default for name, parameter in BOWL.parameters.items()}
SEARCH: dict[str, Any] = {
    "method": {"name": "tpe", "startup": 2},
    "budget": {"cells": 8},
    "parameters": {"x": {"min": 0, "max": 1}, "width": {"values": [2, 3]}},
    "resources": {"pack": "auto"},
    "seeds": 1,
}


@examples(25)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    seeds=st.integers(1, 5),
    values=st.integers(1, 7),
)
def test_packs_contain_every_run_once_and_one_shape_each(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seeds: int, values: int
) -> None:
    parameters: dict[str, Any] = {"x": {"values": list(range(values))}}
    parameters["width"] = {"values": [i + 1 for i in range(len(sizes))], "when": "x < 4"}
    spec = bowl_spec(parameters=parameters, seeds=seeds)
    files = Store(str(tmp_path_factory.mktemp("s"))).sweep("bowls")
    index = RunIndex(spec, files)
    plan = make_plan(spec, BOWL, index, files)
    groups = dict(plan.groups)
    for size, shape in zip(sizes, plan.groups, strict=False):
        groups[shape] = replace(groups[shape], size=size)
    plan = replace(plan, groups=groups)
    backlog = Backlog(plan, index, Sizing(BOWL, files, Profiler(CPU), 1 << 30, 1))
    packs = list(backlog.orders(plan.space.cells))
    runs = [name for pack in packs for name in pack.run_ids]
    assert len(runs) == len(set(runs)) == plan.missing
    for pack in packs:
        assert len(pack) <= plan.groups[shape_of(BOWL, pack.common)].size
        assert set(BOWL.names("shape")) <= pack.common.keys()
        assert {
            **pack.common,
            **{name: column[0] for name, column in pack.columns.items()},
        }.keys() == BOWL.parameters.keys()
    assert len(packs) == plan.packs


def test_an_order_has_all_that_its_runs_need(store: Store) -> None:
    (order,) = orders_of(prepared(store, resources={"pack": 6}))
    assert order.columns == {"x": [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]}
    assert order.seeds == [0, 1, 0, 1, 0, 1]
    assert (order.sweep, order.task, order.attempt, order.resume) == ("bowls", "bowl", 1, ())


def test_packs_contain_whole_cells_if_a_stopping_rule_compares_cells(store: Store) -> None:
    run(store, parameters={"x": {"values": [0]}, "frames": 8}, seeds=2)
    rule = {"type": "asha", "min_steps": 3}
    parameters = {"x": {"values": [0, 1, 2, 3]}, "frames": 8}
    values: dict[str, Any] = {"parameters": parameters, "seeds": 3, "resources": {"pack": 7}}
    whole = [order.cells for order in orders_of(prepared(store, **values, early_terminate=rule))]
    assert [len(cells) for cells in whole] == [4, 6]
    assert set(whole[0]).isdisjoint(whole[1])
    single = orders_of(prepared(store, **values, early_terminate={**rule, "per": "run"}))
    assert [len(order) for order in single] == [7, 3]


def test_a_run_that_ended_before_a_crash_leaves_a_gap_and_the_other_packs_keep_their_runs(store: Store) -> None:
    before = orders_of(prepared(store, seeds=4, resources={"pack": 5}))
    assert [len(order) for order in before] == [5, 5, 2]
    record_failure(before[0].select([1, 3]), store.sweep("bowls"), "", Status.DIVERGED)
    after = orders_of(prepared(store, seeds=4, resources={"pack": 5}))
    left = [run for lane, run in enumerate(before[0].run_ids) if lane not in (1, 3)]
    assert [order.run_ids for order in after] == [left, before[1].run_ids, before[2].run_ids]


def test_gaps_are_filled_where_that_saves_packs(store: Store) -> None:
    run(store, seeds=2, resources={"pack": 6})
    wider = orders_of(prepared(store, seeds=4, resources={"pack": 6}))
    assert [len(order) for order in wider] == [6]


def test_a_shape_that_a_search_proposes_has_its_own_cost(store: Store) -> None:
    store_speeds(store.sweep("bowls"), {2: 1.0, 3: 5.0})
    launch = prepared(store, **SEARCH)
    while (order := launch.driver.next()) is not None and order.common["width"] == 2:
        pass
    assert order is not None
    backlog = launch.driver.backlog
    assert [backlog.step_work({**CELL, "width": width}) for width in (2, 3)] == [1.0, 5.0]


def test_the_expected_work_of_a_search_follows_the_shapes_that_it_proposes(store: Store) -> None:
    store_speeds(store.sweep("bowls"), {2: 1.0, 3: 5.0})
    launch = run(store, **SEARCH)
    widths = launch.files.read("runs", ["width"])["width"].to_pylist()
    assert set(widths) == {2, 3}
    steps = int(CELL["steps"])
    assert launch.driver.progress.work == pytest.approx(sum({2: 1.0, 3: 5.0}[width] * steps for width in widths))
    assert launch.driver.progress.share == pytest.approx(1.0)


def test_speeds_that_are_measured_during_a_search_are_stored(store: Store) -> None:
    launch = run(store, **SEARCH)
    assert isinstance(launch.driver._source, SearchSource)
    assert len(launch.files.read_json("speeds.json")) == 2


def test_runs_of_a_search_continue_from_their_checkpoints(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    changes = {**SEARCH, "resources": {"pack": 2}, "seeds": 2}
    first = run(store, lambda launch: launch.driver.stop(INTERRUPTED), **changes)
    ((pack, runs),) = first.files.checkpoints()
    second = prepared(store, **changes)
    assert second.plan.resumed == [pack]
    order = second.driver.next()
    assert order is not None
    assert (order.resume, set(order.run_ids)) == ((pack,), set(runs))
