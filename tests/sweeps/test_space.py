import itertools
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sweeps.check import checked_spec
from sweeps.document import Document
from sweeps.errors import SpecError
from sweeps.expression import parse_expression
from sweeps.identity import cell_id
from sweeps.ranges import problem_with
from sweeps.space import Space, branches
from sweeps.spec import Spec
from sweeps.store import Store
from tasks.parameters import Value
from tests import specs
from tests.bowls import BOWL, run, runs_of

Cell = dict[str, Value]


def space_of(parameters: dict[str, Any], **keys: Any) -> Space:
    spec, task = checked_spec(Document("a.yaml", {"name": "a", "task": "bowl", "parameters": parameters, **keys}))
    return Space(spec, task)


def random_space(parameters: dict[str, Any], cells: int, seed: int = 0, **keys: Any) -> Space:
    return space_of(parameters, method={"name": "random", "seed": seed}, budget={"cells": cells}, **keys)


def all_cells(space: Space) -> list[tuple[str, Cell]]:
    return [(chunk.ids[i], chunk.values(i)) for chunk in space.cells() for i in range(len(chunk))]


def grid_the_slow_way(space: Space) -> list[Cell]:
    """Each combination of the axes' values, one by one, with defaults where a condition does not hold."""
    cells: list[Cell] = []
    for combination in itertools.product(*(space.candidates(name) for name in space.axes)):
        cell = {**space.base, **dict(zip(space.axes, combination, strict=True))}
        if any(tuple(cell[name] for name in group) not in space.combinations(group) for group in space.spec.zip):
            continue
        # Conditions may read conditional parameters: a few rounds settle all that depends on each other.
        chosen = dict(cell)
        for _ in space.axes:
            for name, axis in space.axes.items():
                active = axis.when is None or parse_expression(axis.when).holds(cell)
                cell[name] = chosen[name] if active else BOWL.parameters[name].default
        excluded = any(parse_expression(text).holds(cell) for text in space.spec.exclude)
        if not excluded and cell not in cells:
            cells.append(cell)
    return cells


@settings(max_examples=60, deadline=None)
@given(specs.spaces("grid"))
def test_a_grid_is_the_product_of_its_axes_without_what_is_excluded(values: dict[str, Any]) -> None:
    space = space_of(**values)
    assume(space.grid_size < 300)
    found = all_cells(space)
    assert [cell for _, cell in found] == grid_the_slow_way(space)
    assert [name for name, _ in found] == [cell_id("bowl", 1, cell) for _, cell in found]
    assert len({name for name, _ in found}) == len(found)


@settings(max_examples=60)
@given(specs.parameters())
def test_every_value_of_a_grid_is_allowed_by_the_task_and_of_its_type(parameters: dict[str, Any]) -> None:
    space = space_of(parameters)
    for name in space.axes:
        for value in space.candidates(name):
            assert BOWL.parameters[name].problem(value) is None
            assert type(value) is BOWL.parameters[name].type


@given(specs.ranges(-10, 10), st.integers(2, 20))
def test_a_range_includes_both_ends_exactly(axis: dict[str, Any], points: int) -> None:
    at: Any = space_of({"x": {**axis, "points": points}}).candidates("x")
    assert at[0] == axis["min"]
    assert at[-1] == axis["max"]
    assert at == sorted(set(at))


def test_points_of_a_linear_range_are_evenly_spaced_and_round() -> None:
    assert space_of({"x": {"min": 0, "max": 1, "points": 11}}).candidates("x") == [i / 10 for i in range(11)]


def test_points_of_a_log_range_are_bounds_and_powers_between() -> None:
    space = space_of({"rate": {"min": 0.001, "max": 1, "points": 4, "scale": "log"}})
    assert space.candidates("rate") == [0.001, 0.01, 0.1, 1.0]


def test_points_of_an_integer_range_are_whole_and_distinct() -> None:
    space = space_of({"width": {"min": 1, "max": 64, "points": 7, "scale": "log"}})
    assert space.candidates("width") == [1, 2, 4, 8, 16, 32, 64]
    assert space_of({"width": {"min": 1, "max": 3, "points": 9}}).candidates("width") == [1, 2, 3]
    assert space_of({"level": {"min": 3, "max": 6}}).candidates("level") == [3, 4, 5, 6]


def test_without_axes_there_is_one_cell_of_defaults_and_fixed_values() -> None:
    ((_, cell),) = all_cells(space_of({"x": 2}))
    assert cell == {name: parameter.default for name, parameter in BOWL.parameters.items()} | {"x": 2.0}


def test_a_fixed_value_that_is_the_default_makes_the_same_cell() -> None:
    """So that writing a default out does not make a sweep run again."""
    assert all_cells(space_of({"x": 0, "level": 1})) == all_cells(space_of({}))


def test_cells_of_equal_shape_follow_each_other() -> None:
    cells = all_cells(space_of({"x": {"values": [1, 2]}, "width": {"values": [1, 2, 3]}}))
    assert [cell["width"] for _, cell in cells] == [1, 1, 2, 2, 3, 3]


def test_an_inactive_axis_holds_its_default_and_makes_no_further_cells() -> None:
    cells = all_cells(space_of({"tilted": {"values": [False, True]}, "x": {"values": [1, 2, 3], "when": "tilted"}}))
    assert [(cell["tilted"], cell["x"]) for _, cell in cells] == [(False, 0.0), (True, 1.0), (True, 2.0), (True, 3.0)]


def test_a_condition_on_a_condition_is_settled_first() -> None:
    """`level` reads `x`, which holds its default where the bowl does not stand on a slope."""
    space = space_of(
        {
            "level": {"values": [5, 6], "when": "x > 0"},
            "x": {"values": [1, -1], "when": "tilted"},
            "tilted": {"values": [False, True]},
        }
    )
    found = {(cell["tilted"], cell["x"], cell["level"]) for _, cell in all_cells(space)}
    assert found == {(False, 0.0, 1), (True, 1.0, 5), (True, 1.0, 6), (True, -1.0, 1)}


def test_a_grid_of_which_all_is_excluded_is_empty() -> None:
    assert all_cells(space_of({"x": {"values": [1, 2]}}, exclude=["x > 0"])) == []


def test_words_of_different_length_stay_whole() -> None:
    cells = all_cells(space_of({"surface": {"values": ["rough", "smooth"], "when": "width > 1"}, "width": 2}))
    assert [cell["surface"] for _, cell in cells] == ["rough", "smooth"]


@settings(max_examples=80, deadline=None)
@given(specs.spaces("grid", "random", "qmc"))
def test_every_cell_obeys_its_spec(values: dict[str, Any]) -> None:
    """Bounds, types, steps, conditions, groups and exclusions, each checked by itself."""
    space = accepted(values)
    assume(values["method"] != "grid" or space.grid_size < 2000)
    found = all_cells(space)
    assert len({name for name, _ in found}) == len(found)
    for name, cell in found:
        assert name == cell_id("bowl", 1, cell)
        for parameter in BOWL.parameters.values():
            assert type(cell[parameter.name]) is parameter.type
            assert parameter.problem(cell[parameter.name]) is None
        for axis_name, axis in space.spec.axes().items():
            if axis.when is None or parse_expression(axis.when).holds(cell):
                assert problem_with(axis, BOWL.parameters[axis_name], cell[axis_name]) is None
            else:
                assert cell[axis_name] == BOWL.parameters[axis_name].default
        for group in space.spec.zip:
            assert tuple(cell[n] for n in group) in space.combinations(group)
        assert not any(parse_expression(text).holds(cell) for text in space.spec.exclude)


@settings(max_examples=40, deadline=None)
@given(specs.spaces("random", "qmc"), st.integers(0, 60))
def test_draws_come_again_and_a_larger_budget_keeps_them(values: dict[str, Any], more: int) -> None:
    space = accepted(values)
    found = dict(all_cells(space))
    assert list(found) == [name for name, _ in all_cells(space)]
    assert len(found) <= values["budget"]["cells"]
    larger = accepted({**values, "budget": {"cells": values["budget"]["cells"] + more}})
    assert found.keys() <= dict(all_cells(larger)).keys()


def accepted(values: dict[str, Any]) -> Space:
    """The space, unless nothing is left of it."""
    try:
        return space_of(**values)
    except SpecError as error:
        assume("leaves no combination" not in str(error) and "nothing left to propose" not in str(error))
        raise


# Random

AXES: dict[str, Any] = {
    "x": {"min": -2, "max": 5},
    "rate": {"min": 0.001, "max": 1, "scale": "log"},
    "level": {"min": 3, "max": 9, "when": "x > 0"},
    "surface": {"values": ["smooth", "rough"]},
}


@settings(max_examples=30)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 5))
def test_a_larger_budget_adds_cells_and_changes_none(few: int, more: int, seed: int) -> None:
    first = all_cells(random_space(AXES, min(few, more), seed, exclude=["x > 4"]))
    assert first == all_cells(random_space(AXES, max(few, more), seed, exclude=["x > 4"]))[: len(first)]


def test_a_budget_beyond_one_chunk_keeps_the_first_cells() -> None:
    few, many = random_space(AXES, 1000), random_space(AXES, 40_000)
    assert all_cells(few) == list(itertools.islice(iter(all_cells(many)), 1000))


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(0, 100))
def test_random_cells_are_distinct_within_bounds_and_never_excluded(count: int, seed: int) -> None:
    found = all_cells(random_space(AXES, count, seed, exclude=["x > 4 and rate < 0.1"]))
    assert len(found) == count
    assert len({name for name, _ in found}) == count
    for name, cell in found:
        x, rate, level = float(cell["x"]), float(cell["rate"]), int(cell["level"])
        assert name == cell_id("bowl", 1, cell)
        assert -2 <= x <= 5
        assert 0.001 <= rate <= 1
        assert level in range(3, 10) if x > 0 else level == 1
        assert not (x > 4 and rate < 0.1)
        assert [type(cell[name]) for name in AXES] == [float, float, int, str]


def test_another_seed_draws_other_cells() -> None:
    first, second = (all_cells(random_space(AXES, 20, seed)) for seed in (0, 1))
    assert not {name for name, _ in first} & {name for name, _ in second}


def test_an_axis_is_drawn_the_same_whatever_the_others_are() -> None:
    alone = all_cells(random_space({"x": AXES["x"]}, 50))
    together = all_cells(random_space(AXES, 50))
    assert [cell["x"] for _, cell in alone] == [cell["x"] for _, cell in together]


def test_a_small_discrete_space_ends_when_all_of_it_has_been_drawn() -> None:
    parameters = {"level": {"min": 1, "max": 5}, "surface": {"values": ["smooth", "rough"]}}
    found = all_cells(random_space(parameters, 1000))
    assert len(found) == 10


def test_a_space_of_which_all_is_excluded_ends() -> None:
    assert all_cells(random_space({"x": {"min": 1, "max": 2}}, 10, exclude=["x > 0"])) == []


def drawn(name: str, axis: dict[str, Any], count: int = 4000) -> np.ndarray:
    return np.array([cell[name] for _, cell in all_cells(random_space({name: axis, "x": {"min": 0, "max": 1}}, count))])


def test_draws_are_uniform_on_the_scale_of_their_axis() -> None:
    x = np.array([float(cell["x"]) for _, cell in all_cells(random_space({"x": {"min": -2, "max": 6}}, 4000))])
    assert np.histogram(x, bins=4, range=(-2, 6))[0] == pytest.approx(1000, rel=0.1)
    rate = np.log10(drawn("rate", {"min": 0.001, "max": 1, "scale": "log"}))
    assert np.histogram(rate, bins=3, range=(-3, 0))[0] == pytest.approx(4000 / 3, rel=0.1)


def test_every_whole_number_of_a_range_is_drawn_equally_often() -> None:
    level = drawn("level", {"min": 1, "max": 4})
    assert np.bincount(level)[1:] == pytest.approx(1000, rel=0.1)


# Steps, groups, branches, cells to try first


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_draws_of_a_range_with_steps_are_its_steps_and_the_same_cells_as_a_grids(method: str) -> None:
    axis = {"x": {"min": 0, "max": 1, "step": 0.1}}
    grid = dict(all_cells(space_of(axis)))
    drawn = dict(all_cells(space_of(axis, method=method, budget={"cells": 100})))
    assert len(grid) == 11
    assert drawn == grid
    assert grid.keys() == dict(all_cells(space_of({"x": {"values": [i / 10 for i in range(11)]}}))).keys()


ZIPPED: dict[str, Any] = {"width": {"values": [1, 2, 2]}, "level": {"values": [5, 5, 6]}, "x": {"values": [0, 1]}}


def test_a_group_is_one_axis_of_a_grid() -> None:
    space = space_of(ZIPPED, zip=[["level", "width"]])
    found = [(cell["width"], cell["level"], cell["x"]) for _, cell in all_cells(space)]
    assert found == [(w, level, x) for w, level in [(1, 5), (2, 5), (2, 6)] for x in (0.0, 1.0)]
    assert space.grid_size == 6


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_a_group_is_one_axis_of_draws(method: str) -> None:
    space = space_of(ZIPPED, zip=[["level", "width"]], method=method, budget={"cells": 100})
    assert {(cell["width"], cell["level"]) for _, cell in all_cells(space)} == {(1, 5), (2, 5), (2, 6)}
    assert len(all_cells(space)) == 6


BRANCHES: dict[str, Any] = {
    "x": {"min": 0, "max": 1},
    "level": {"values": [1, 2, 3], "grid": True},
    "width": {"min": 2, "max": 4, "points": 2, "grid": True},
}


def branches_of(**keys: Any) -> list[Spec]:
    space = space_of(BRANCHES, **{"method": "random", "budget": {"cells": 20}, **keys})
    return branches(space.spec, space.task)


def test_a_spec_without_such_axes_is_its_only_branch() -> None:
    for space in (random_space(AXES, 10), space_of({"x": {"values": [1, 2], "grid": True}})):
        assert branches(space.spec, space.task) == [space.spec]


def test_there_is_a_branch_for_each_combination_with_its_share_of_the_budget() -> None:
    found = branches_of()
    assert [(spec.fixed()["width"], spec.fixed()["level"]) for spec in found] == [
        (width, level) for width in (2, 4) for level in (1, 2, 3)
    ]
    assert [spec.budget.cells for spec in found] == [4, 4, 3, 3, 3, 3]
    assert all(list(spec.axes()) == ["x"] for spec in found)


def test_a_group_makes_branches_if_one_of_its_axes_does() -> None:
    space = space_of(
        {**ZIPPED, "level": {**ZIPPED["level"], "grid": True}},
        zip=[["level", "width"]],
        method="random",
        budget={"cells": 6},
    )
    found = branches(space.spec, space.task)
    assert [(spec.fixed()["width"], spec.fixed()["level"]) for spec in found] == [(1, 5), (2, 5), (2, 6)]
    assert all(spec.zip == () for spec in found)
    assert len(all_cells(space)) == 6


def test_a_branch_that_is_excluded_takes_no_share() -> None:
    found = branches_of(exclude=["level == 2", "width == 4 and level == 3", "x > 0.9 and level == 1"])
    assert [(spec.fixed()["width"], spec.fixed()["level"]) for spec in found] == [(2, 1), (2, 3), (4, 1)]
    assert [spec.budget.cells for spec in found] == [7, 7, 6]


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_all_branches_draw_the_same(method: str) -> None:
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


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_cells_to_try_come_first_and_count(method: str) -> None:
    keys: dict[str, Any] = {"method": method, "budget": {"cells": 10}}
    drawn = all_cells(space_of(AXES, **keys))
    given = [{"x": 1, "rate": 0.5, "level": 4, "surface": "rough"}, {"x": -1, "rate": 0.01, "surface": "smooth"}]
    tried = all_cells(space_of(AXES, **keys, try_first=given))
    assert [{name: cell[name] for name in AXES} for _, cell in tried[:2]] == [given[0], {**given[1], "level": 1}]
    assert tried[2:] == drawn[:8]


def test_what_a_cell_to_try_leaves_open_is_drawn_within_its_group_and_not_excluded() -> None:
    parameters = {**ZIPPED, "x": {"min": 0, "max": 1}}
    keys: dict[str, Any] = {"zip": [["level", "width"]], "exclude": ["x < 0.5"], "try_first": [{"width": 2}, {"x": 1}]}
    (_, first), (_, second), *_ = all_cells(random_space(parameters, 5, **keys))
    assert first["width"] == 2
    assert first["level"] in (5, 6)
    assert float(first["x"]) >= 0.5
    assert second["x"] == 1.0
    assert (second["width"], second["level"]) in [(1, 5), (2, 5), (2, 6)]


def test_a_cell_to_try_belongs_to_the_branches_that_it_agrees_with() -> None:
    found = branches_of(try_first=[{"x": 0.5}, {"x": 0.25, "level": 2}, {"width": 2}])
    tried = {(spec.fixed()["width"], spec.fixed()["level"]): spec.try_first for spec in found}
    assert tried[2, 1] == ({"x": 0.5},)
    assert tried[4, 2] == ({"x": 0.5}, {"x": 0.25})


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_a_sweep_in_branches_is_run_and_widened(store: Store, method: str) -> None:
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


# Sobol


def test_sobol_points_fill_the_space_more_evenly_than_random_ones() -> None:
    """Of 256 points in 16 × 16 boxes, each row and column of boxes has 16, and no other way of drawing does so."""
    axes = {"x": {"min": 0, "max": 1}, "rate": {"min": 0.2, "max": 1}}

    def counts(method: str) -> tuple[list[int], list[int]]:
        found = [cell for _, cell in all_cells(space_of(axes, method=method, budget={"cells": 256}))]
        x, rate = (np.array([float(cell[name]) for cell in found]) for name in axes)
        return np.bincount((x * 16).astype(int)).tolist(), np.bincount(((rate - 0.2) / 0.8 * 16).astype(int)).tolist()

    assert counts("qmc") == ([16] * 16, [16] * 16)
    assert counts("random")[0] != [16] * 16


def test_sobol_points_are_others_with_another_seed() -> None:
    spaces = [space_of(AXES, method={"name": "qmc", "seed": seed}, budget={"cells": 20}) for seed in (0, 1)]
    first, second = ({name for name, _ in all_cells(space)} for space in spaces)
    assert not first & second


def test_sobol_points_beyond_one_chunk_go_on_from_the_first() -> None:
    few, many = (space_of(AXES, method="qmc", budget={"cells": cells}) for cells in (1000, 40_000))
    assert all_cells(few) == all_cells(many)[:1000]


# Size


def large(points: int) -> Space:
    """A grid of 1000 × points × 2 cells, some of which are excluded and some the same."""
    parameters = {
        "x": {"min": -10, "max": 10, "points": 1000},
        "rate": {"min": 0.001, "max": 1, "points": points, "when": "x > -9.99"},
        "level": {"values": [1, 2]},
    }
    return space_of(parameters, exclude=["x > 9.99"])


def test_a_million_cells_are_counted_in_seconds() -> None:
    began = time.perf_counter()
    assert sum(map(len, large(500).cells())) == 998 * 500 * 2 + 2
    assert time.perf_counter() - began < 30


def test_however_many_cells_there_are_only_a_chunk_is_in_memory() -> None:
    tracemalloc.start()
    assert sum(map(len, large(100).cells())) == 998 * 100 * 2 + 2
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The ids of all cells alone would take 14 MB, and a dict of its dozen values for each 120 MB.
    assert peak < 12e6


def test_the_size_of_a_grid_is_known_without_walking_through_it() -> None:
    assert space_of({"x": {"min": 1, "max": 9, "points": 100}}).grid_size == 100
    assert space_of({"x": {"values": [1, 2]}, "level": {"min": 0, "max": 9}}).grid_size == 20
    assert space_of({}).grid_size == 1
