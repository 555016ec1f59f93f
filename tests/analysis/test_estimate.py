"""Estimates and their intervals against scipy's own."""

import numpy as np
import pytest
from scipy import stats

from analysis.estimate import Estimate, mean_of, share_of
from sweeps.errors import MislabelError


def test_a_mean_has_students_interval() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 9.5]
    estimate = mean_of(values)
    expected = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert (estimate.low, estimate.high) == pytest.approx(expected)
    assert estimate.mean == pytest.approx(4.9)
    assert estimate.n == 5


@pytest.mark.parametrize(("held", "of"), [(0, 5), (3, 8), (20, 20), (1, 1)])
def test_a_share_has_clopper_and_pearsons_interval(held: int, of: int) -> None:
    estimate = share_of([True] * held + [False] * (of - held))
    expected = stats.binomtest(held, of).proportion_ci(method="exact")
    assert [estimate.low, estimate.high] == pytest.approx([expected.low, expected.high])


def test_one_value_and_values_that_are_not_finite_leave_the_interval_open() -> None:
    for values in ([3.0], [1.0, float("nan")], [1.0, float("inf")]):
        assert (mean_of(values).low, mean_of(values).high) == (float("-inf"), float("inf"))


def test_nothing_to_estimate_from_is_said() -> None:
    with pytest.raises(MislabelError, match="not complete"):
        mean_of([])
    with pytest.raises(MislabelError, match="not complete"):
        share_of([])


def test_estimates_show_mean_interval_and_number() -> None:
    assert str(Estimate(1.0, 0.5, 1.5, 7)) == "1 ± 0.5 (n = 7)"
    assert str(Estimate(1.0, 0.5, 1.0, 7)) == "1, 0.5 to 1 (n = 7)"
    assert str(Estimate(1.0, 1.0, 1.0, 7)) == "1 (n = 7)"
