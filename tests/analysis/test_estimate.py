import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import analysis
from analysis.estimate import Estimate, at_end, at_step, best, mean_of, share_of
from analysis.sweep import Sweep
from sweeps.errors import MislabelError
from sweeps.store import Store
from tests.bowls import run


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    store = Store(str(tmp_path_factory.mktemp("store")))
    run(store, parameters={"x": {"values": [0, 1]}}, seeds=4, resources={"pack": 8})
    return analysis.load(store.address, "bowls")


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_a_mean_has_students_interval(values: list[float]) -> None:
    estimate = mean_of(values)
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), error) if error else (values[0], values[0])
    assert (estimate.mean, estimate.low, estimate.high) == pytest.approx(
        (np.mean(values), low, high), rel=1e-6, abs=1e-6
    )
    assert estimate.n == len(values)


def test_one_value_alone_has_an_interval_without_ends() -> None:
    assert mean_of([2.0]) == Estimate(2.0, -math.inf, math.inf, 1)


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_run_without_a_finite_value_leaves_all_open(missing: float) -> None:
    estimate = mean_of([1.0, missing, 2.0])
    assert (estimate.low, estimate.high, estimate.n) == (-math.inf, math.inf, 3)


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_a_share_has_the_exact_interval(held: list[bool]) -> None:
    estimate = share_of(held)
    expected = stats.binomtest(sum(held), len(held)).proportion_ci(0.95, "exact")
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high))
    assert estimate.mean == sum(held) / len(held)


@pytest.mark.parametrize("estimate", [mean_of, share_of])
def test_nothing_gives_no_estimate(estimate: object) -> None:
    assert callable(estimate)
    with pytest.raises(MislabelError, match="no runs to estimate from"):
        estimate([])


def test_values_at_the_end_are_by_seed(sweep: Sweep) -> None:
    runs = sweep.runs
    assert at_end(sweep, "loss", {"x": 1}).to_dict() == runs[runs["x"] == 1].set_index("seed")["loss"].to_dict()
    assert at_end(sweep, "loss").to_dict() == pytest.approx(runs.groupby("seed")["loss"].mean().to_dict())


def test_values_at_a_step_are_those_of_the_last_frame_before_it(sweep: Sweep) -> None:
    curves = sweep.curves
    for step, frame in ((0, 0), (1, 1), (7, 1), (8, 8), (100, 8)):
        expected = curves[curves["step"] == frame].groupby("seed")["loss"].mean().to_dict()
        assert at_step(sweep, "loss", step).to_dict() == pytest.approx(expected)


def test_the_best_value_is_over_all_steps(sweep: Sweep) -> None:
    grouped = sweep.read("curves", ["seed", "loss"], {"x": 0}).groupby("seed")["loss"]
    assert best(sweep, "loss", "minimize", {"x": 0}).to_dict() == grouped.min().to_dict()
    assert best(sweep, "loss", "maximize", {"x": 0}).to_dict() == grouped.max().to_dict()


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(1.5, 1.0, 2.0, 5), "1.5 ± 0.5 (n = 5)"),
        (Estimate(0.25, 0.1, 0.9, 8), "0.25, 0.1 to 0.9 (n = 8)"),
        (Estimate(1.0, 1.0, 1.0, 3), "1 (n = 3)"),
    ],
)
def test_an_estimate_is_read_at_a_glance(estimate: Estimate, text: str) -> None:
    assert str(estimate) == text
