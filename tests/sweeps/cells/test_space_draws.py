"""Random and Sobol cells: within their axes, reproducible, and extended by a larger budget."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.ids import cell_id
from tests import specs
from tests.bowls import BOWL
from tests.examples import examples
from tests.sweeps.cells.spaces import AXES, accepted, all_cells, random_space, space_of


@pytest.mark.long
@examples(12, deadline=None)
@given(specs.spaces("random", "qmc"), st.integers(0, 60))
def test_draws_are_reproducible_and_a_larger_budget_keeps_them(values: dict[str, Any], more: int) -> None:
    space = accepted(values)
    found = dict(all_cells(space))
    assert list(found) == [name for name, _ in all_cells(space)]
    assert len(found) <= values["budget"]["cells"]
    larger = accepted({**values, "budget": {"cells": values["budget"]["cells"] + more}})
    assert found.keys() <= dict(all_cells(larger)).keys()


# Random


@pytest.mark.long
@examples(30)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(0, 5))
def test_a_larger_budget_adds_cells_and_changes_none(few: int, more: int, seed: int) -> None:
    first = all_cells(random_space(AXES, min(few, more), seed, exclude=["x > 4"]))
    assert first == all_cells(random_space(AXES, max(few, more), seed, exclude=["x > 4"]))[: len(first)]


@pytest.mark.long
def test_a_budget_beyond_one_chunk_keeps_the_first_cells() -> None:
    few, many = random_space(AXES, 1000), random_space(AXES, 40_000)
    assert all_cells(few) == list(itertools.islice(iter(all_cells(many)), 1000))


@examples(30)
@given(st.integers(1, 300), st.integers(0, 100))
def test_random_cells_are_distinct_within_bounds_and_never_excluded(count: int, seed: int) -> None:
    found = all_cells(random_space(AXES, count, seed, exclude=["x > 4 and rate < 0.1"]))
    assert len(found) == count
    assert len({name for name, _ in found}) == count
    for name, cell in found:
        x, rate, level = float(cell["x"]), float(cell["rate"]), int(cell["level"])
        assert name == cell_id(BOWL, cell)
        assert -2 <= x <= 5
        assert 0.001 <= rate <= 1
        assert level in range(3, 10) if x > 0 else level == 1
        assert not (x > 4 and rate < 0.1)
        assert [type(cell[name]) for name in AXES] == [float, float, int, str]


def test_another_seed_draws_other_cells() -> None:
    first, second = (all_cells(random_space(AXES, 20, seed)) for seed in (0, 1))
    assert not {name for name, _ in first} & {name for name, _ in second}


def test_the_draws_of_an_axis_do_not_depend_on_other_axes() -> None:
    alone = all_cells(random_space({"x": AXES["x"]}, 50))
    together = all_cells(random_space(AXES, 50))
    assert [cell["x"] for _, cell in alone] == [cell["x"] for _, cell in together]


def test_a_small_discrete_space_ends_when_all_cells_are_drawn() -> None:
    parameters = {"level": {"min": 1, "max": 5}, "surface": {"values": ["smooth", "rough"]}}
    found = all_cells(random_space(parameters, 1000))
    assert len(found) == 10


def test_a_space_whose_cells_are_all_excluded_ends() -> None:
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


@pytest.mark.parametrize("method", ["random", "qmc"])
def test_draws_of_a_range_with_steps_are_cells_of_its_grid(method: str) -> None:
    axis = {"x": {"min": 0, "max": 1, "step": 0.1}}
    grid = dict(all_cells(space_of(axis)))
    drawn = dict(all_cells(space_of(axis, method=method, budget={"cells": 100})))
    assert len(grid) == 11
    assert drawn == grid
    assert grid.keys() == dict(all_cells(space_of({"x": {"values": [i / 10 for i in range(11)]}}))).keys()


# Sobol


def test_sobol_points_fill_the_space_more_evenly_than_random_ones() -> None:
    """Of 256 Sobol points in 16 × 16 boxes, each row and each column of boxes has exactly 16."""
    axes = {"x": {"min": 0, "max": 1}, "rate": {"min": 0.2, "max": 1}}

    def counts(method: str) -> tuple[list[int], list[int]]:
        found = [cell for _, cell in all_cells(space_of(axes, method=method, budget={"cells": 256}))]
        x, rate = (np.array([float(cell[name]) for cell in found]) for name in axes)
        return np.bincount((x * 16).astype(int)).tolist(), np.bincount(((rate - 0.2) / 0.8 * 16).astype(int)).tolist()

    assert counts("qmc") == ([16] * 16, [16] * 16)
    assert counts("random")[0] != [16] * 16


def test_another_seed_gives_other_sobol_points() -> None:
    spaces = [space_of(AXES, method={"name": "qmc", "seed": seed}, budget={"cells": 20}) for seed in (0, 1)]
    first, second = ({name for name, _ in all_cells(space)} for space in spaces)
    assert not first & second


@pytest.mark.long
def test_sobol_points_continue_beyond_one_chunk() -> None:
    few, many = (space_of(AXES, method="qmc", budget={"cells": cells}) for cells in (1000, 40_000))
    assert all_cells(few) == all_cells(many)[:1000]
