from typing import Any

import pytest

from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.plan.plan import Plan, make_plan
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec, run


def plan_of(store: Store, **changes: Any) -> Plan:
    spec = bowl_spec(**changes)
    files = store.sweep(spec.name)
    return make_plan(spec, BOWL, RunIndex(spec, files), files)


def test_a_plan_counts_cells_and_runs(store: Store) -> None:
    parameters = {"x": {"values": [0, 1, 2]}, "width": {"values": [2, 3]}}
    plan = plan_of(store, parameters=parameters, seeds=5)
    assert (plan.cells, plan.runs, plan.missing) == (6, 30, 30)
    assert {group.values["width"]: (group.runs, group.missing) for group in plan.groups.values()} == {
        2: (15, 15),
        3: (15, 15),
    }
    assert sum(group.missing * group.steps for group in plan.groups.values()) == 30 * 8


def test_stored_runs_are_not_missing(store: Store) -> None:
    run(store)
    plan = plan_of(store, seeds=3)
    assert (plan.runs, plan.missing) == (9, 3)


def test_a_search_is_counted_by_its_budget(store: Store) -> None:
    changes: dict[str, Any] = {"method": "tpe", "budget": {"cells": 7}, "parameters": {"x": {"min": 0, "max": 1}}}
    plan = plan_of(store, **changes)
    assert (plan.cells, plan.runs, plan.missing) == (7, 14, 14)


def test_conflicting_shapes_are_refused_for_every_combination(store: Store) -> None:
    """The check of the spec tries single values, but two axes together may still conflict."""
    with pytest.raises(SpecError, match="width 64"):
        plan_of(store, parameters={"surface": {"values": ["smooth", "rough"]}, "width": {"values": [2, 64]}})


def test_a_conflict_that_is_excluded_is_allowed(store: Store) -> None:
    plan = plan_of(
        store,
        parameters={"surface": {"values": ["smooth", "rough"]}, "width": {"values": [2, 64]}},
        exclude=["surface == 'rough' and width > 32"],
    )
    assert plan.cells == 3


def test_an_empty_space_has_nothing_to_run(store: Store) -> None:
    plan = plan_of(
        store, method="random", budget={"cells": 5}, parameters={"x": {"min": 1, "max": 2}}, exclude=["x > 0"]
    )
    assert (plan.cells, plan.runs, plan.missing, plan.packs, plan.expected_seconds) == (0, 0, 0, 0, 0.0)
