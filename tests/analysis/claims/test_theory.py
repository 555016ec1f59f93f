"""Closed forms agree with simulations, limits and the tasks' own formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.claims.clean_priority import first_gradient_ratio
from mislabel.analysis.claims.label_noise_sgd import small_norm_bound, small_norm_step
from mislabel.analysis.claims.misclassification import _HINGE_LEVEL, _LOGISTIC_LEVEL
from mislabel.tasks.clean_priority.angles import _wide_angles, _wide_gradient_angle
from mislabel.tasks.label_noise_sgd.linear import Params, _theory_escape_step
from mislabel.tasks.lanes import Lanes
from tests.tasks import predictions

ANGLES = np.linspace(0, np.pi, 50)


def test_feature_angles_are_those_of_a_wide_layer() -> None:
    w = np.random.default_rng(0).normal(size=(200_000, 2))
    for angle in (0.3, 1.2, 2.5, np.pi):
        one, other = np.maximum(w @ [1, 0], 0), np.maximum(w @ [np.cos(angle), np.sin(angle)], 0)
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert np.cos(predictions.feature_angle(angle, 1)) == pytest.approx(cosine, abs=0.01)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_gradient_angles_are_the_sum_as_printed(layers: int) -> None:
    for angle in ANGLES:
        total = 0.0
        for layer in range(layers + 1):
            term = float(np.cos(predictions.feature_angle(angle, layer)))
            for later in range(layer, layers):
                term *= 1 - float(predictions.feature_angle(angle, later)) / np.pi
            total += term
        assert predictions.gradient_angle(angle, layers) == pytest.approx(np.arccos(total / (layers + 1)))


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_small_angles_have_the_expansion_of_equation_15(layers: int) -> None:
    angle = 1e-4
    cosine = np.cos(predictions.gradient_angle(angle, layers))
    assert (1 - cosine) / angle == pytest.approx(layers / (2 * np.pi), rel=0.01)


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
def test_angles_rise_up_to_ninety_degrees(layers: int) -> None:
    below = np.linspace(0, np.pi / 2, 100)
    assert (np.diff(predictions.gradient_angle(below, layers)) > 0).all()
    assert predictions.gradient_angle(0.0, layers) == pytest.approx(0, abs=1e-7)
    assert predictions.gradient_angle(below, layers).max() < np.pi / 2 + 1e-9


@pytest.mark.parametrize("activation", ["relu", "linear"])
def test_the_task_measures_deviations_from_the_same_angles(activation: str) -> None:
    layers = _wide_angles(torch.from_numpy(ANGLES), 4, activation)
    found = _wide_gradient_angle(layers, activation)
    np.testing.assert_allclose(found.numpy(), predictions.gradient_angle(ANGLES, 4, activation), rtol=1e-7, atol=1e-7)
    if activation == "relu":
        np.testing.assert_allclose(layers[-1].numpy(), predictions.feature_angle(ANGLES, 4), rtol=1e-12)


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


def test_noisy_gradients_are_split_over_the_other_classes() -> None:
    assert first_gradient_ratio(0.3) == pytest.approx(3 / 7)
    assert first_gradient_ratio(0.3, classes=10) == pytest.approx(3 / 7 / 9)


def test_a_neuron_keeps_a_larger_norm_with_cross_entropy_than_with_the_hinge_loss() -> None:
    assert pytest.approx(1 / 30) == _HINGE_LEVEL
    assert pytest.approx(30**-0.5) == _LOGISTIC_LEVEL
