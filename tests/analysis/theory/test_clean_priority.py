"""Closed forms of clean-priority learning agree with simulations, limits and the task's own formulas."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.theory import clean_priority as theory
from mislabel.tasks.clean_priority.angles import _wide_angles, _wide_gradient_angle

ANGLES = np.linspace(0, np.pi, 50)


def test_feature_angles_are_those_of_a_wide_layer() -> None:
    w = np.random.default_rng(0).normal(size=(200_000, 2))
    for angle in (0.3, 1.2, 2.5, np.pi):
        one, other = np.maximum(w @ [1, 0], 0), np.maximum(w @ [np.cos(angle), np.sin(angle)], 0)
        cosine = one @ other / np.linalg.norm(one) / np.linalg.norm(other)
        assert np.cos(theory.feature_angle(angle, 1)) == pytest.approx(cosine, abs=0.01)


def test_one_layer_keeps_angles_below_ninety_degrees_and_their_order() -> None:
    """Lemma A.3."""
    below = np.linspace(1e-3, np.pi / 2 - 1e-3, 200)
    found = theory.feature_angle(below, 1)
    assert ((found > 0) & (found < np.pi / 2)).all()
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_gradient_angles_are_the_sum_as_printed(layers: int) -> None:
    for angle in ANGLES:
        total = 0.0
        for layer in range(layers + 1):
            term = float(np.cos(theory.feature_angle(angle, layer)))
            for later in range(layer, layers):
                term *= 1 - float(theory.feature_angle(angle, later)) / np.pi
            total += term
        assert theory.gradient_angle(angle, layers) == pytest.approx(np.arccos(total / (layers + 1)))


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_small_angles_have_the_expansion_of_equation_15(layers: int) -> None:
    angle = 1e-4
    cosine = np.cos(theory.gradient_angle(angle, layers)) / np.cos(angle)
    assert (1 - cosine) / angle == pytest.approx(theory.small_angle_slope(layers), rel=0.01)


@pytest.mark.parametrize("layers", [1, 2, 3, 4, 5])
def test_angles_rise_up_to_ninety_degrees(layers: int) -> None:
    below = np.linspace(0, np.pi / 2, 100)
    assert (np.diff(theory.gradient_angle(below, layers)) > 0).all()
    assert theory.gradient_angle(0.0, layers) == pytest.approx(0, abs=1e-7)
    assert theory.gradient_angle(below, layers).max() < np.pi / 2


@pytest.mark.parametrize("activation", ["relu", "linear"])
def test_the_task_measures_deviations_from_the_same_angles(activation: str) -> None:
    layers = _wide_angles(torch.from_numpy(ANGLES), 4, activation)
    found = _wide_gradient_angle(layers, activation)
    np.testing.assert_allclose(found.numpy(), theory.gradient_angle(ANGLES, 4, activation), rtol=1e-7, atol=1e-7)
    if activation == "relu":
        np.testing.assert_allclose(layers[-1].numpy(), theory.feature_angle(ANGLES, 4), rtol=1e-12)


@pytest.mark.parametrize(("cluster_angle", "spread"), [(np.pi / 2, 0.1), (1.0, 0.1), (np.pi, 0.05)])
def test_the_gap_between_clusters_is_that_of_a_simulation(cluster_angle: float, spread: float) -> None:
    rng = np.random.default_rng(0)
    means = np.array([[1, 0], [np.cos(cluster_angle), np.sin(cluster_angle)]])
    one, other, third = (means[i] + spread * rng.normal(size=(100_000, 2)) for i in (0, 0, 1))

    def mean_angle(x: np.ndarray, z: np.ndarray) -> float:
        cosine = (x * z).sum(axis=1) / np.linalg.norm(x, axis=1) / np.linalg.norm(z, axis=1)
        return float(theory.gradient_angle(np.arccos(np.clip(cosine, -1, 1)), 2).mean())

    simulated = mean_angle(one, third) - mean_angle(one, other)
    assert theory.cluster_gap(2, cluster_angle, spread) == pytest.approx(simulated, rel=0.02)


def summed(labels: np.ndarray, images: np.ndarray, classes: int) -> np.ndarray:
    """The summed gradient of a linear softmax network with outputs 1/k; k d."""
    gradient: np.ndarray = np.einsum("nk,nd->kd", 1 / classes - np.eye(classes)[labels], images)
    return gradient


@given(noise=st.integers(1, 9), classes=st.integers(2, 6), seed=st.integers(0, 1000))
def test_the_first_ratio_is_that_of_equal_outputs(noise: int, classes: int, seed: int) -> None:
    """Every class has one image; each wrong label is given to `noise` copies, the right one to 10·(classes − 1)."""
    images, right = np.random.default_rng(seed).normal(size=(classes, 5)), 10 * (classes - 1)
    rate, truth = noise * (classes - 1) / (noise * (classes - 1) + right), np.arange(classes)
    clean = right * summed(truth, images, classes)
    pairs = [(c, label) for c in truth for label in truth if c != label]
    noisy = noise * summed(np.array([b for _, b in pairs]), images[[a for a, _ in pairs]], classes)
    np.testing.assert_allclose(noisy, -theory.first_gradient_ratio(rate, classes) * clean, atol=1e-9)


def test_noisy_gradients_are_split_over_the_other_classes() -> None:
    assert theory.first_gradient_ratio(0.3) == pytest.approx(3 / 7)
    assert theory.first_gradient_ratio(0.3, classes=10) == pytest.approx(3 / 7 / 9)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_calibrated_outputs_minimize_the_loss_of_all_samples(classes: int) -> None:
    rate = 0.3

    def loss(own: float) -> float:
        clean, noisy = -np.log(own), -np.log((1 - own) / (classes - 1))
        return float((1 - rate) * clean + rate * noisy)

    best = sum(
        share * theory.calibrated(segment, "loss", rate, classes) for segment, share in (("clean", 0.7), ("noisy", 0.3))
    )
    assert best == pytest.approx(min(loss(own) for own in np.linspace(0.01, 0.99, 99)))
    assert best < theory.untrained("loss", classes)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("segment", ["clean", "noisy"])
def test_residuals_are_distances_between_outputs_and_labels(segment: str, classes: int) -> None:
    rate = 0.3
    outputs = np.full(classes, rate / (classes - 1))
    outputs[0] = 1 - rate
    label = np.eye(classes)[0 if segment == "clean" else 1]
    distance = np.linalg.norm(outputs - label) if classes > 2 else abs(outputs[1] - label[1])
    assert theory.calibrated(segment, "residual", rate, classes) == pytest.approx(distance)
    even = np.linalg.norm(1 / classes - label) if classes > 2 else 0.5
    assert theory.untrained("residual", classes) == pytest.approx(even)


@given(angle=st.floats(np.pi / 2 + 0.01, np.pi), length=st.floats(0.1, 10))
def test_at_the_turning_ratio_a_step_does_not_change_the_noisy_loss(angle: float, length: float) -> None:
    clean = length * np.array([1.0, 0.0])
    noisy = float(theory.turning_ratio(angle)) * length * np.array([np.cos(angle), np.sin(angle)])
    assert noisy @ (clean + noisy) == pytest.approx(0, abs=1e-9 * length**2)
    assert theory.turning_ratio(np.pi) == pytest.approx(1)
