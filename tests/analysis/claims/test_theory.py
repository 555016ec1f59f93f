"""Closed forms agree with simulations, limits and the tasks' own formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.claims.clean_priority import first_gradient_ratio
from mislabel.analysis.claims.misclassification import _HINGE_LEVEL, _LOGISTIC_LEVEL
from mislabel.analysis.claims.self_labeling import recoverable_corruption, refined_over_given_error
from mislabel.tasks.clean_priority.angles import _wide_angles, _wide_gradient_angle
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


def test_noisy_gradients_are_split_over_the_other_classes() -> None:
    assert first_gradient_ratio(0.3) == pytest.approx(3 / 7)
    assert first_gradient_ratio(0.3, classes=10) == pytest.approx(3 / 7 / 9)


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
