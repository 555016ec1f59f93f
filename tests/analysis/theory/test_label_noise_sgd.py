"""Bounds and closed forms of label-noise SGD agree with simulations, limits and the task's own formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.theory import label_noise_sgd as theory
from mislabel.tasks.label_noise_sgd.linear import Params, _theory_escape_step
from mislabel.tasks.lanes import Lanes


@given(sigma=st.floats(0.01, 10), step_size=st.floats(1e-4, 1), width=st.integers(2, 1000))
def test_the_task_measures_the_escape_step_of_theorem_3_2(sigma: float, step_size: float, width: int) -> None:
    lanes = Lanes([Params(width=width, sigma=sigma, step_size=step_size, precision="float64")], [0])
    expected = 384 * np.sqrt(np.log(width)) / (sigma**2 * step_size**2 * np.sqrt(width))
    assert _theory_escape_step(lanes).item() == pytest.approx(expected)
    assert theory.escape_bound(sigma, step_size, width) == pytest.approx(expected)


def test_the_escape_bound_has_its_exponent_in_sigma_and_in_the_step_size() -> None:
    one = theory.escape_bound(0.5, 0.01, 100)
    assert theory.escape_bound(1.0, 0.01, 100) / one == pytest.approx(2**theory.ESCAPE_EXPONENT)
    assert theory.escape_bound(0.5, 0.02, 100) / one == pytest.approx(2**theory.ESCAPE_EXPONENT)


def test_the_expected_square_norm_is_the_mean_over_many_oscillations() -> None:
    step_size, active, dim, steps, runs = 0.3, 4, 3, 12, 20_000
    rng = np.random.default_rng(0)
    start = rng.normal(size=(active, dim))
    start /= np.sqrt((start**2).sum() / active)
    target = np.array([0.5, 0, 0])
    w = np.repeat(start[None], runs, axis=0)
    for _ in range(steps):
        a = step_size**0.25 * rng.choice([-1.0, 1.0], size=(runs, active))
        gradient = np.einsum("ra,rad->rd", a, w) - target
        w = w - step_size * a[:, :, None] * gradient[:, None]
    found = (w**2).sum(axis=2).mean()
    assert found == pytest.approx(theory.expected_square_norm(steps, step_size, active, 0.5), rel=0.02)
    assert theory.expected_square_norm(0, step_size, active, 0.5) == pytest.approx(1)


@given(st.floats(1e-8, 0.5))
def test_norms_are_small_before_the_bound_of_lemma_3_3(step_size: float) -> None:
    steps = theory.small_norm_step(step_size)
    assert steps < theory.small_norm_bound(step_size)
    active = max(1, round(step_size**-0.5 / 2))
    # Half of the steps move a neuron.
    found = theory.expected_square_norm(steps / 2, step_size, active, target_norm=0.0)
    assert found == pytest.approx(np.sqrt(step_size), rel=0.5)


@given(st.floats(1e-6, 0.3), st.floats(0.01, 1))
def test_weights_grow_by_the_inverse_step_size_until_the_corrected_time(step_size: float, target_norm: float) -> None:
    growth = np.exp(theory.alignment_steps(step_size, target_norm) * step_size * target_norm)
    assert growth == pytest.approx(1 / step_size)
    printed = theory.printed_alignment_steps(step_size, target_norm)
    assert printed == pytest.approx(np.log(1 / step_size) / target_norm)
    assert theory.convergence_steps(step_size, target_norm) == pytest.approx(printed / step_size / target_norm)


@pytest.mark.parametrize("step_size", [1e-2, 1e-3, 1e-4])
def test_equation_54_aligns_neurons_at_the_corrected_time_and_not_at_the_printed_one(step_size: float) -> None:
    norm, dim = 0.5, 20
    rng = np.random.default_rng(0)
    target = norm * np.eye(dim)[0]
    m = np.zeros((dim + 1, dim + 1))
    m[:dim, dim] = m[dim, :dim] = target
    w = rng.normal(size=(50, dim))
    start = np.sqrt(step_size) * np.hstack([w / np.linalg.norm(w, axis=1, keepdims=True), np.ones((50, 1))])

    def misalignment(steps: np.ndarray) -> float:
        end = start @ np.linalg.matrix_power(np.eye(dim + 1) + step_size * m, int(np.ceil(steps)))
        return float((1 - np.abs(end[:, 0]) / np.linalg.norm(end[:, :dim], axis=1)).max())

    order = float(theory.misalignment_order(step_size))
    assert misalignment(theory.alignment_steps(step_size, norm)) < order
    assert misalignment(theory.printed_alignment_steps(step_size, norm)) > max(0.8, order)


def test_the_orders_vanish_with_the_step_size() -> None:
    rates = np.array([1e-2, 1e-4, 1e-6])
    assert theory.misalignment_order(0.01) == pytest.approx(0.1 * np.log(100))
    assert theory.convergence_order(0.01) == pytest.approx(0.01 * np.log(100))
    for order in (theory.misalignment_order(rates), theory.convergence_order(rates)):
        assert (np.diff(order) < 0).all()


def test_neurons_that_start_smaller_align_better() -> None:
    # A right triangle: √(‖θ*‖/m) along θ*, √η across.
    assert theory.final_alignment(0.09, 4, 0.64) == pytest.approx(0.4 / 0.5)
    assert theory.final_alignment(0.09, 4, 0.64, init_scale=0.01) > 0.9999


def test_the_bound_on_initial_norms_needs_millions_of_neurons() -> None:
    assert theory.initial_norm_bound(4**12) == pytest.approx(1)
    assert theory.initial_norm_bound(10**6) < 1


def test_the_bound_on_output_weights_exceeds_their_initial_values_in_wide_networks() -> None:
    a = np.random.default_rng(0).normal(size=(200, 10_000)) / 100
    assert (np.abs(a).max(axis=1) <= theory.output_weight_bound(10_000)).all()


@pytest.mark.parametrize(("width", "dim"), [(10**6, 3), (10**8, 10)])
def test_norms_grow_at_most_as_often_as_lemma_c_3_says(width: int, dim: int) -> None:
    # A neuron of norm 1 grows if an input's direction has a component along it below |a_i| = m^(−1/4).
    x = np.random.default_rng(0).normal(size=(100_000, dim))
    share = (np.abs(x[:, 0]) < width**-0.25 * np.linalg.norm(x, axis=1)).mean()
    assert share < theory.growing_share_bound(width, dim) < 1


def test_the_bound_of_lemma_c_3_says_nothing_at_feasible_widths() -> None:
    assert theory.growing_share_bound(26_000, 10) > 1
    assert theory.growing_share_bound(27_000, 10) < 1
