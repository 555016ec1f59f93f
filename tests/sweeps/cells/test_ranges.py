from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.spec.model import Axis
from tests.bowls import BOWL

X, RATE, LEVEL = (BOWL.parameters[name] for name in ("x", "rate", "level"))


@pytest.mark.parametrize(
    ("axis", "values"),
    [
        ({"min": 0, "max": 0.5, "step": 0.1}, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]),
        ({"min": 0.1, "max": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),
        ({"min": -1, "max": 1, "step": 1}, [-1.0, 0.0, 1.0]),
        ({"min": 1, "max": 2, "step": 1 / 3}, [1.0, 1.33333333333, 1.66666666667, 2.0]),
        ({"min": 0.1, "max": 0.7, "step": 0.6}, [0.1, 0.7]),
    ],
)
def test_the_steps_of_a_range_are_round_numbers_from_end_to_end(axis: dict[str, Any], values: list[float]) -> None:
    assert ranges.candidates(Axis(**axis), X) == values


def test_the_steps_of_whole_numbers_are_whole() -> None:
    values = ranges.candidates(Axis(min=10, max=50, step=20), LEVEL)
    assert values == [10, 30, 50]
    assert all(type(value) is int for value in values)


@given(st.integers(-50, 50), st.integers(1, 400), st.sampled_from([0.1, 0.01, 0.025, 0.3, 1.0, 7.0]))
def test_a_grid_a_draw_and_a_search_give_the_same_steps(start: int, steps: int, step: float) -> None:
    low = ranges.cleaned(start * step)
    axis = Axis(min=low, max=ranges.cleaned(low + steps * step), step=step)
    assert ranges.max_that_fits(axis) is None
    values = ranges.candidates(axis, X)
    assert len(set(values)) == steps + 1
    drawn = ranges.values_at(axis, X, (np.arange(steps + 1) + 0.5) / (steps + 1)).tolist()
    assert drawn == values
    assert [ranges.nearest_value(axis, X, low + i * step) for i in range(steps + 1)] == values
    assert all(ranges.problem_with(axis, X, value) is None for value in values)


@pytest.mark.parametrize(("high", "fits"), [(1.0, None), (1.05, 1.0), (1.08, 1.1), (0.01, 0.1), (1.0 + 1e-12, None)])
def test_the_nearest_end_is_suggested_for_a_range_that_steps_do_not_fill(high: float, fits: float | None) -> None:
    assert ranges.max_that_fits(Axis(min=0, max=high, step=0.1)) == fits


@pytest.mark.parametrize(
    ("axis", "value", "contained"),
    [
        (Axis(values=[1.0, 2.0]), 2.0, True),
        (Axis(values=[1.0, 2.0]), 3.0, False),
        (Axis(min=0, max=1), 0.5, True),
        (Axis(min=0, max=1), 1.5, False),
        (Axis(min=0, max=1, step=0.1), 0.3, True),
        (Axis(min=0, max=1, step=0.1), 0.1 + 0.2, True),
        (Axis(min=0, max=1, step=0.1), 0.33, False),
    ],
)
def test_an_axis_says_why_it_does_not_contain_a_value(axis: Axis, value: float, contained: bool) -> None:
    problem = ranges.problem_with(axis, X, value)
    assert contained if problem is None else problem.startswith(repr(value))


def test_every_value_has_an_equal_share_of_the_quantiles() -> None:
    quantiles = (np.arange(1200) + 0.5) / 1200
    for axis in (Axis(values=[1, 2, 3, 4]), Axis(min=1, max=4), Axis(min=2, max=8, step=2)):
        _, counts = np.unique(ranges.values_at(axis, LEVEL, quantiles), return_counts=True)
        assert counts.tolist() == [300] * 4


@given(st.floats(1e-6, 1), st.floats(1e-6, 1), st.sampled_from(["linear", "log"]))
def test_draws_stay_within_their_range(first: float, second: float, scale: Any) -> None:
    low, high = sorted((first, second))
    drawn = ranges.values_at(Axis(min=low, max=high, scale=scale), RATE, np.array([0.0, 0.5, 1.0]))
    assert drawn.min() >= low
    assert drawn.max() <= high
    assert ranges.index_at(np.array([0.0, 1.0]), 3).tolist() == [0, 2]


@pytest.mark.parametrize(
    ("axis", "key"),
    [
        (Axis(min=2, max=1), ()),
        (Axis(min=1, max=1), ()),
        (Axis(min=0, max=1, scale="log"), ("min",)),
        (Axis(min=1, max=2, step=0.5, scale="log"), ("step",)),
        (Axis(min=0, max=1, step=0.3), ("max",)),
        (Axis(min=0, max=1, step=3), ("max",)),
        (Axis(min=0, max=10, step=1e-12), ("step",)),
    ],
)
def test_a_wrong_range_is_reported_at_its_key(axis: Axis, key: tuple[str, ...]) -> None:
    ((found, _),) = ranges.range_problems(axis, X)
    assert found == key


def test_whole_numbers_need_whole_steps() -> None:
    assert list(ranges.range_problems(Axis(min=0, max=4, step=2), LEVEL)) == []
    ((key, text),) = ranges.range_problems(Axis(min=0, max=4, step=0.5), LEVEL)
    assert key == ("step",)
    assert "0.5" in text
