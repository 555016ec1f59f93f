import itertools
import tracemalloc
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mislabel.sweeps.cells.ranges import problem_with
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.spec.condition import parse_expression
from tests import specs
from tests.bowls import BOWL
from tests.examples import examples
from tests.sweeps.cells.spaces import Cell, accepted, all_cells, space_of


def grid_the_slow_way(space: Space) -> list[Cell]:
    """Each combination of the axes' values, one by one, with defaults for inactive axes."""
    cells: list[Cell] = []
    for combination in itertools.product(*(space.candidates(name) for name in space.axes)):
        cell = {**space.base, **dict(zip(space.axes, combination, strict=True))}
        if any(not space.combinations(group, {name: cell[name] for name in group}) for group in space.spec.zip):
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


@examples(60, deadline=None)
@given(specs.spaces("grid"))
def test_a_grid_is_the_product_of_its_axes_without_excluded_cells(values: dict[str, Any]) -> None:
    space = space_of(**values)
    assume(space.grid_size < 300)
    found = all_cells(space)
    slowly = {cell_id(BOWL, cell): cell for cell in grid_the_slow_way(space)}
    assert dict(found) == slowly, "in whatever order: values that are zipped come as they are paired"
    assert [name for name, _ in found] == [cell_id(BOWL, cell) for _, cell in found]
    assert len({name for name, _ in found}) == len(found)


@examples(60)
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
    """Adding a default value to a spec must not run the sweep again."""
    assert all_cells(space_of({"x": 0, "level": 1})) == all_cells(space_of({}))


def test_cells_of_equal_shape_follow_each_other() -> None:
    cells = all_cells(space_of({"x": {"values": [1, 2]}, "width": {"values": [1, 2, 3]}}))
    assert [cell["width"] for _, cell in cells] == [1, 1, 2, 2, 3, 3]


def test_an_inactive_axis_has_its_default_and_adds_no_cells() -> None:
    cells = all_cells(space_of({"tilted": {"values": [False, True]}, "x": {"values": [1, 2, 3], "when": "tilted"}}))
    assert [(cell["tilted"], cell["x"]) for _, cell in cells] == [(False, 0.0), (True, 1.0), (True, 2.0), (True, 3.0)]


def test_a_condition_is_evaluated_after_the_conditions_that_it_reads() -> None:
    """`level` reads `x`, which has its default unless the bowl is tilted."""
    space = space_of(
        {
            "level": {"values": [5, 6], "when": "x > 0"},
            "x": {"values": [1, -1], "when": "tilted"},
            "tilted": {"values": [False, True]},
        }
    )
    found = {(cell["tilted"], cell["x"], cell["level"]) for _, cell in all_cells(space)}
    assert found == {(False, 0.0, 1), (True, 1.0, 5), (True, 1.0, 6), (True, -1.0, 1)}


def test_a_grid_whose_cells_are_all_excluded_is_empty() -> None:
    assert all_cells(space_of({"x": {"values": [1, 2]}}, exclude=["x > 0"])) == []


def test_strings_of_different_length_stay_whole() -> None:
    cells = all_cells(space_of({"surface": {"values": ["rough", "smooth"], "when": "width > 1"}, "width": 2}))
    assert [cell["surface"] for _, cell in cells] == ["rough", "smooth"]


@pytest.mark.long
@examples(80, deadline=None)
@given(specs.spaces("grid", "random", "qmc"))
def test_every_cell_satisfies_its_spec(values: dict[str, Any]) -> None:
    """Bounds, types, steps, conditions, groups and exclusions, each checked separately."""
    space = accepted(values)
    assume(values["method"] != "grid" or space.grid_size < 2000)
    found = all_cells(space)
    assert len({name for name, _ in found}) == len(found)
    for name, cell in found:
        assert name == cell_id(BOWL, cell)
        for parameter in BOWL.parameters.values():
            assert type(cell[parameter.name]) is parameter.type
            assert parameter.problem(cell[parameter.name]) is None
        for axis_name, axis in space.spec.axes().items():
            if axis.when is None or parse_expression(axis.when).holds(cell):
                assert problem_with(axis, BOWL.parameters[axis_name], cell[axis_name]) is None
            else:
                assert cell[axis_name] == BOWL.parameters[axis_name].default
        for group in space.spec.zip:
            assert {n: cell[n] for n in group} in space.combinations(group)
        assert not any(parse_expression(text).holds(cell) for text in space.spec.exclude)


# Size


def large(points: int) -> Space:
    """A grid of 1000 × points × 2 cells, some of which are excluded and some the same."""
    parameters = {
        "x": {"min": -10, "max": 10, "points": 1000},
        "rate": {"min": 0.001, "max": 1, "points": points, "when": "x > -9.99"},
        "level": {"values": [1, 2]},
    }
    return space_of(parameters, exclude=["x > 9.99"])


@pytest.mark.long
def test_a_million_cells_are_counted_in_seconds() -> None:
    assert sum(map(len, large(500).cells())) == 998 * 500 * 2 + 2


@pytest.mark.long
def test_only_one_chunk_of_cells_is_in_memory() -> None:
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
