"""Closed forms agree with simulations, limits and the tasks' own formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.claims.label_noise_sgd import small_norm_bound, small_norm_step
from mislabel.analysis.claims.misclassification import _HINGE_LEVEL, _LOGISTIC_LEVEL
from mislabel.analysis.claims.self_labeling import recoverable_corruption, refined_over_given_error
from mislabel.tasks.label_noise_sgd.linear import Params, _theory_escape_step
from mislabel.tasks.lanes import Lanes
from tests.tasks import predictions


@given(sigma=st.floats(0.01, 10), step_size=st.floats(1e-4, 1), width=st.integers(2, 1000))
def test_the_task_measures_the_escape_step_of_theorem_3_2(sigma: float, step_size: float, width: int) -> None:
    lanes = Lanes([Params(width=width, sigma=sigma, step_size=step_size, precision="float64")], [0])
    found = _theory_escape_step(lanes).item()
    assert found == pytest.approx(384 * np.sqrt(np.log(width)) / (sigma**2 * step_size**2 * np.sqrt(width)))


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
    assert found == pytest.approx(predictions.expected_square_norm(steps, step_size, active, 0.5), rel=0.02)
    assert predictions.expected_square_norm(0, step_size, active, 0.5) == pytest.approx(1)


@given(st.floats(1e-8, 0.5))
def test_norms_are_small_before_the_bound_of_lemma_3_3(step_size: float) -> None:
    steps = small_norm_step(step_size)
    assert steps < small_norm_bound(step_size)
    active = max(1, round(step_size**-0.5 / 2))
    # Half of the steps move a neuron.
    found = predictions.expected_square_norm(steps / 2, step_size, active, target_norm=0.0)
    assert found == pytest.approx(np.sqrt(step_size), rel=0.5)


@given(st.floats(1e-6, 0.3), st.floats(0.01, 1))
def test_weights_grow_by_the_inverse_step_size_until_the_growth_step(step_size: float, target_norm: float) -> None:
    growth = np.exp(predictions.growth_step(step_size, target_norm) * step_size * target_norm)
    assert growth == pytest.approx(1 / step_size)
    assert predictions.alignment_step(step_size, target_norm) == pytest.approx(np.log(1 / step_size) / target_norm)
    assert predictions.convergence_steps(step_size, target_norm) == pytest.approx(
        predictions.growth_step(step_size, target_norm) / target_norm
    )


def test_neurons_that_start_smaller_align_better() -> None:
    # A right triangle: √(‖θ*‖/m) along θ*, √η across.
    assert predictions.final_alignment(0.09, 4, 0.64) == pytest.approx(0.4 / 0.5)
    assert predictions.final_alignment(0.09, 4, 0.64, init_scale=0.01) > 0.9999


def test_a_neuron_keeps_a_larger_norm_with_cross_entropy_than_with_the_hinge_loss() -> None:
    assert pytest.approx(1 / 30) == _HINGE_LEVEL
    assert pytest.approx(30**-0.5) == _LOGISTIC_LEVEL


def test_the_error_of_refined_labels_is_that_of_a_simulation() -> None:
    alpha, corruption = 0.8, 0.2
    wrong = np.random.default_rng(0).permutation(100) < 100 * corruption
    refined = (1 - alpha) * wrong + alpha * wrong.mean()
    found = np.linalg.norm(refined) / np.linalg.norm(wrong)
    assert refined_over_given_error(alpha, corruption) == pytest.approx(found)
    assert predictions.refined_error_bound(0.75, 0.4, 0.1) == pytest.approx(0.175)


@given(alpha=st.floats(0.5, 1), share=st.floats(0, 1))
def test_two_classes_are_recovered_below_the_recoverable_corruption(alpha: float, share: float) -> None:
    truth, wrong = -0.5, 0.5
    mean = (1 - share) * truth + share * wrong
    refined = (1 - alpha) * wrong + alpha * mean
    bound = recoverable_corruption(alpha)
    if abs(share - bound) > 1e-9:
        assert (abs(refined - truth) < abs(refined - wrong)) == (share < bound)


def test_with_more_classes_less_can_be_recovered() -> None:
    shares = [float(recoverable_corruption(0.95, classes)) for classes in (2, 3, 5)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] > 0
    assert recoverable_corruption(0.4) == 0
    assert recoverable_corruption(0.0) == 0
