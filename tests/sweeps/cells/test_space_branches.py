"""Zipped axes, branches, and cells to try first."""

from typing import Any

import pytest

from mislabel.sweeps.cells.space import Space, branch_of
from mislabel.sweeps.store.store import Store
from mislabel.tasks.parameters import Value
from tests.bowls import run, runs_of
from tests.sweeps.cells.spaces import AXES, all_cells, random_space, space_of

# Groups


ZIPPED: dict[str, Any] = {"width": {"values": [1, 2, 2]}, "level": {"values": [5, 5, 6]}, "x": {"values": [0, 1]}}


def test_zipped_axes_are_one_dimension_of_a_grid() -> None:
    space = space_of(ZIPPED, zip=[["level", "width"]])
    found = [(cell["width"], cell["level"], cell["x"]) for _, cell in all_cells(space)]
    assert found == [(w, level, x) for w, level in [(1, 5), (2, 5), (2, 6)] for x in (0.0, 1.0)]
    assert space.grid_size == 6


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_zipped_axes_are_one_dimension_of_draws(method: str) -> None:
    space = space_of(ZIPPED, zip=[["level", "width"]], method=method, budget={"cells": 100})
    assert {(cell["width"], cell["level"]) for _, cell in all_cells(space)} == {(1, 5), (2, 5), (2, 6)}
    assert len(all_cells(space)) == 6


# Branches


BRANCHES: dict[str, Any] = {
    "x": {"min": 0, "max": 1},
    "level": {"values": [1, 2, 3], "grid": True},
    "width": {"min": 2, "max": 4, "points": 2, "grid": True},
}


def branches_of(**keys: Any) -> list[Space]:
    return space_of(BRANCHES, **{"method": "random", "budget": {"cells": 20}, **keys}).branches()


def test_a_space_without_branch_axes_is_its_only_branch() -> None:
    for space in (random_space(AXES, 10), space_of({"x": {"values": [1, 2]}})):
        assert space.branches() == [space]
        assert space.branch == {}


def test_a_grid_has_branches_like_any_other_method() -> None:
    space = space_of({**ZIPPED, "x": {"values": [0, 1], "grid": True}}, zip=[["level", "width"]])
    assert [branch.branch for branch in space.branches()] == [{"x": 0.0}, {"x": 1.0}]
    in_branches = [cell for branch in space.branches() for cell in all_cells(branch)]
    assert sorted(cell for cell, _ in in_branches) == sorted(cell for cell, _ in all_cells(space))


@pytest.mark.parametrize("method", ["grid", "random", "tpe"])
def test_cells_are_compared_within_the_branches_that_are_searched(method: str) -> None:
    """Stopping groups and search branches are the same, also when zipped axes repeat a value."""
    keys: dict[str, Any] = {} if method == "grid" else {"method": method, "budget": {"cells": 9}}
    parameters = {**ZIPPED, "width": {**ZIPPED["width"], "grid": True}}
    metric = {"name": "loss", "goal": "minimize"}
    space = space_of(parameters, zip=[["level", "width"]], metric=metric, **keys)
    axes = space.spec.branch_axes()
    searched = [branch_of(branch.branch, axes) for branch in space.branches()]
    assert len(searched) == 3
    cells = [cell for branch in space.branches() for _, cell in all_cells(branch)]
    assert sorted({branch_of(cell, axes) for cell in cells}) == sorted(searched)


def test_there_is_a_branch_for_each_combination_with_its_share_of_the_budget() -> None:
    found = branches_of()
    assert [(space.branch["width"], space.branch["level"]) for space in found] == [
        (width, level) for width in (2, 4) for level in (1, 2, 3)
    ]
    assert [space.spec.budget.cells for space in found] == [4, 4, 3, 3, 3, 3]
    assert all(list(space.axes) == ["x"] for space in found)


def test_zipped_axes_make_branches_if_one_of_them_does() -> None:
    space = space_of(
        {**ZIPPED, "level": {**ZIPPED["level"], "grid": True}},
        zip=[["level", "width"]],
        method="random",
        budget={"cells": 6},
    )
    found = space.branches()
    assert [(space.branch["width"], space.branch["level"]) for space in found] == [(1, 5), (2, 5), (2, 6)]
    assert all(space.spec.zip == () for space in found)
    assert len(all_cells(space)) == 6


def test_an_excluded_branch_gets_no_share_of_the_budget() -> None:
    found = branches_of(exclude=["level == 2", "width == 4 and level == 3", "x > 0.9 and level == 1"])
    assert [(space.branch["width"], space.branch["level"]) for space in found] == [(2, 1), (2, 3), (4, 1)]
    assert [space.spec.budget.cells for space in found] == [7, 7, 6]


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_all_branches_draw_the_same_values(method: str) -> None:
    space = space_of(BRANCHES, method=method, budget={"cells": 30})
    drawn: dict[Any, list[Value]] = {}
    for _, cell in all_cells(space):
        drawn.setdefault((cell["width"], cell["level"]), []).append(cell["x"])
    assert len(drawn) == 6
    assert {tuple(column) for column in drawn.values()} == {tuple(drawn[2, 1])}
    assert len(set(drawn[2, 1])) == 5


def test_cells_of_all_branches_have_the_same_columns() -> None:
    chunks = list(space_of(BRANCHES, method="random", budget={"cells": 30}).cells())
    assert {tuple(chunk.columns) for chunk in chunks} == {("width", "x", "level")}


@pytest.mark.long
@pytest.mark.parametrize("method", ["random", "qmc"])
def test_a_sweep_with_branches_is_run_and_extended(store: Store, method: str) -> None:
    keys: dict[str, Any] = {
        "method": method,
        "parameters": {
            "x": {"min": 0, "max": 1, "step": 0.05},
            "rate": {"min": 0.1, "max": 1},
            "width": {"values": [1, 2, 3], "grid": True},
            "level": {"values": [4, 5, 6]},
        },
        "zip": [["width", "level"]],
        "try_first": [{"x": 0.5}],
    }
    few = runs_of(run(store, **keys, budget={"cells": 12}).files)
    assert len(few) == 24
    assert set(zip(few.width, few.level, strict=True)) == {(1, 4), (2, 5), (3, 6)}
    assert few.groupby("width").x.apply(lambda column: tuple(sorted(column))).nunique() == 1
    assert (few[few.x == 0.5].groupby("width").size() >= 2).all()
    wider = run(store, **keys, budget={"cells": 15})
    assert wider.plan.missing == 6
    assert {*few.run_id} < {*runs_of(wider.files).run_id}


# Cells to try first


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_cells_to_try_first_come_first_and_count_in_the_budget(method: str) -> None:
    keys: dict[str, Any] = {"method": method, "budget": {"cells": 10}}
    drawn = all_cells(space_of(AXES, **keys))
    given = [{"x": 1, "rate": 0.5, "level": 4, "surface": "rough"}, {"x": -1, "rate": 0.01, "surface": "smooth"}]
    tried = all_cells(space_of(AXES, **keys, try_first=given))
    assert [{name: cell[name] for name in AXES} for _, cell in tried[:2]] == [given[0], {**given[1], "level": 1}]
    assert tried[2:] == drawn[:8]


def test_open_values_of_a_cell_to_try_are_drawn_within_its_group_and_not_excluded() -> None:
    parameters = {**ZIPPED, "x": {"min": 0, "max": 1}}
    keys: dict[str, Any] = {"zip": [["level", "width"]], "exclude": ["x < 0.5"], "try_first": [{"width": 2}, {"x": 1}]}
    (_, first), (_, second), *_ = all_cells(random_space(parameters, 5, **keys))
    assert first["width"] == 2
    assert first["level"] in (5, 6)
    assert float(first["x"]) >= 0.5
    assert second["x"] == 1.0
    assert (second["width"], second["level"]) in [(1, 5), (2, 5), (2, 6)]


def test_a_cell_to_try_belongs_to_the_branches_that_it_fits() -> None:
    found = branches_of(try_first=[{"x": 0.5}, {"x": 0.25, "level": 2}, {"width": 2}])
    tried = {(space.branch["width"], space.branch["level"]): space.spec.try_first for space in found}
    assert tried[2, 1] == ({"x": 0.5},)
    assert tried[4, 2] == ({"x": 0.5}, {"x": 0.25})
