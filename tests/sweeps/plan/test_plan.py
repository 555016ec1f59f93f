from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.plan.plan import Plan, make_plan, orders
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec, prepared, run


def plan_of(store: Store, **changes: Any) -> Plan:
    spec = bowl_spec(**changes)
    files = store.sweep(spec.name)
    return make_plan(spec, BOWL, RunIndex(spec, files), files)


def test_a_plan_counts_cells_and_runs(store: Store) -> None:
    parameters = {"x": {"values": [0, 1, 2]}, "width": {"values": [2, 3]}}
    plan = plan_of(store, parameters=parameters, seeds=5)
    assert (plan.cells, plan.runs, plan.missing) == (6, 30, 30)
    assert {shape: (group.runs, group.missing) for shape, group in plan.groups.items()} == {
        (2,): (15, 15),
        (3,): (15, 15),
    }
    assert plan.run_steps == 30 * 8


def test_what_the_store_has_is_not_missing(store: Store) -> None:
    run(store)
    plan = plan_of(store, seeds=3)
    assert (plan.runs, plan.missing) == (9, 3)


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    seeds=st.integers(1, 5),
    values=st.integers(1, 7),
)
def test_packs_hold_every_run_once_and_one_shape_each(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], seeds: int, values: int
) -> None:
    parameters: dict[str, Any] = {"x": {"values": list(range(values))}}
    parameters["width"] = {"values": [i + 1 for i in range(len(sizes))], "when": "x < 4"}
    plan = plan_of(Store(str(tmp_path_factory.mktemp("s"))), parameters=parameters, seeds=seeds)
    for size, group in zip(sizes, plan.groups.values(), strict=False):
        group.size = size
    packs = list(orders(plan))
    runs = [name for pack in packs for name in pack.run_ids]
    assert len(runs) == len(set(runs)) == plan.missing
    for pack in packs:
        shape = tuple(pack.common[name] for name in ("width",))
        assert len(pack) <= plan.groups[shape].size
        assert set(BOWL.names("shape")) <= pack.common.keys()
        assert {
            **pack.common,
            **{name: column[0] for name, column in pack.columns.items()},
        }.keys() == BOWL.parameters.keys()
    assert len(packs) == plan.packs


def test_an_order_has_all_that_its_runs_need(store: Store) -> None:
    (order,) = orders(prepared(store, resources={"pack": 6}).plan)
    assert order.columns == {"x": [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]}
    assert order.seeds == [0, 1, 0, 1, 0, 1]
    assert (order.sweep, order.task, order.attempt, order.resume) == ("bowls", "bowl", 1, ())


def test_a_search_is_counted_by_its_budget(store: Store) -> None:
    changes: dict[str, Any] = {"method": "tpe", "budget": {"cells": 7}, "parameters": {"x": {"min": 0, "max": 1}}}
    plan = plan_of(store, **changes)
    assert (plan.cells, plan.runs, plan.missing) == (7, 14, 14)


def test_shapes_that_do_not_go_together_are_refused_for_every_combination(store: Store) -> None:
    """The check of the spec tries single values; two axes together may still conflict."""
    with pytest.raises(SpecError, match="a rough bowl holds at most 32 weights, not width 64"):
        plan_of(store, parameters={"surface": {"values": ["smooth", "rough"]}, "width": {"values": [2, 64]}})


def test_an_excluded_conflict_is_no_conflict(store: Store) -> None:
    plan = plan_of(
        store,
        parameters={"surface": {"values": ["smooth", "rough"]}, "width": {"values": [2, 64]}},
        exclude=["surface == 'rough' and width > 32"],
    )
    assert plan.cells == 3


def test_an_empty_space_is_nothing_to_run(store: Store) -> None:
    plan = plan_of(
        store, method="random", budget={"cells": 5}, parameters={"x": {"min": 1, "max": 2}}, exclude=["x > 0"]
    )
    assert (plan.cells, plan.runs, plan.missing, plan.packs, plan.expected_seconds) == (0, 0, 0, 0, 0.0)


def test_a_rule_that_compares_cells_gets_them_whole_though_some_seeds_have_ended(store: Store) -> None:
    run(store, parameters={"x": {"values": [0]}, "frames": 8}, seeds=2)
    rule = {"type": "asha", "min_steps": 3}
    parameters = {"x": {"values": [0, 1, 2, 3]}, "frames": 8}
    values: dict[str, Any] = {"parameters": parameters, "seeds": 3, "resources": {"pack": 7}}
    whole = [order.cells for order in orders(prepared(store, **values, early_terminate=rule).plan)]
    assert [len(cells) for cells in whole] == [4, 6]
    assert set(whole[0]).isdisjoint(whole[1])
    single = orders(prepared(store, **values, early_terminate={**rule, "per": "run"}).plan)
    assert [len(order) for order in single] == [7, 3]
