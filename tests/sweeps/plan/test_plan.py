from typing import Any

import pytest

from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.plan.plan import Plan, make_plan
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec, run
from tests.sweeps.run.parts import tables


def plan_of(store: Store, retry: bool = False, **changes: Any) -> Plan:
    spec = bowl_spec(**changes)
    files = store.sweep(spec.name)
    return make_plan(spec, BOWL, RunIndex(spec, files), files, retry)


SEARCH: dict[str, Any] = {"method": "tpe", "budget": {"cells": 7}, "parameters": {"x": {"min": 0, "max": 1}}}


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
    plan = plan_of(store, **SEARCH)
    assert (plan.cells, plan.runs, plan.missing) == (7, 14, 14)


@pytest.mark.parametrize(
    ("seeds", "runs", "stored"),
    [
        ({"count": 2}, 14, 6),  # a repeated proposal of the cell needs the other seeds
        ({"count": 2, "first": 1}, 14, 5),
        ({"count": 2, "up_to": 8}, 14, 2),  # the other seeds are those of a race
        ({"count": 2, "first": 1, "up_to": 8}, 14, 2),
    ],
)
def test_the_stored_seeds_of_a_search_count_if_it_needs_them(
    store: Store, seeds: dict[str, int], runs: int, stored: int
) -> None:
    store.sweep("bowls").write_results(tables([f"a-{seed}" for seed in range(6)], "p"))
    plan = plan_of(store, **SEARCH, seeds=seeds)
    assert (plan.runs, plan.missing) == (runs, runs - stored)


@pytest.mark.parametrize(("retry", "failed"), [(False, 3), (True, 1)])
@pytest.mark.parametrize("changes", [SEARCH, {}], ids=["search", "grid"])
def test_failed_runs_are_missing_if_they_are_retried_and_have_attempts_left(
    store: Store, changes: dict[str, Any], retry: bool, failed: int
) -> None:
    cell = next(plan_of(store).space.cells()).ids[0]
    budget = {**changes.get("budget", {}), "failures": 2}
    files = store.sweep("bowls")
    files.write_results(tables([f"{cell}-0"], "p"))
    files.write_results(tables([f"{cell}-1", f"{cell}-2"], "q", "failed"))
    files.write_results(tables([f"{cell}-3"], "r", "failed", attempt=2))
    plan = plan_of(store, retry, **{**changes, "budget": budget}, seeds=4)
    assert (plan.retry, plan.failed, plan.missing) == (retry, failed, plan.runs - 1 - failed)


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
    assert (plan.cells, plan.runs, plan.missing, plan.packs, plan.train_seconds) == (0, 0, 0, 0, 0.0)
