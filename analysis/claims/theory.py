"""What the papers' theorems predict, as plain functions of the parameters, to put beside what was measured.

Angles are in radians, times in steps. All functions take numbers or arrays. The tasks have formulas of their own where
they measure a distance from theory, as they know nothing of this package; the tests hold the two together.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


# Clean-priority learning


def feature_angle(input_angle: ArrayLike, hidden_layers: int) -> Floats:
    """Angle between two inputs' features after so many ReLU layers of infinite width (Equation 14)."""
    angle = _floats(input_angle)
    for _ in range(hidden_layers):
        angle = np.arccos(np.clip((1 - angle / np.pi) * np.cos(angle) + np.sin(angle) / np.pi, -1, 1))
    return angle


def gradient_angle(input_angle: ArrayLike, hidden_layers: int, activation: str = "relu") -> Floats:
    """Angle θ_h between the derivatives of an infinitely wide network at two inputs (Equation 13).

    For the linear network all layers keep the inputs' angle, and so does θ_h.
    """
    angle = _floats(input_angle)
    if activation == "linear":
        return angle
    angles = [feature_angle(angle, layer) for layer in range(hidden_layers + 1)]
    terms = [
        np.cos(angles[layer]) * np.prod([1 - later / np.pi for later in angles[layer:-1]], axis=0)
        for layer in range(hidden_layers + 1)
    ]
    return _floats(np.arccos(np.clip(np.mean(terms, axis=0), -1, 1)))


def first_gradient_ratio(noise_rate: ArrayLike) -> Floats:
    """‖g_noise‖/‖g_clean‖ at initialization, δ/(1 − δ)."""
    return _floats(noise_rate) / (1 - _floats(noise_rate))


# Label-noise SGD


def escape_step(width: ArrayLike, sigma: ArrayLike, step_size: ArrayLike) -> Floats:
    """T₁ of Theorem 3.2, by which all neurons have left the lazy regime: 384·√(log m)/(σ²η²√m)."""
    m, noise = _floats(width), (_floats(sigma) * _floats(step_size)) ** 2
    return _floats(384 * np.sqrt(np.log(m)) / (noise * np.sqrt(m)))


def small_norm_level(step_size: ArrayLike) -> Floats:
    """What the mean squared norm falls below in Lemma 3.3, √η; also the bound on weights where phase II begins."""
    return np.sqrt(_floats(step_size))


def small_norm_bound(step_size: ArrayLike) -> Floats:
    """The step by which Lemma 3.3 says so, 1/η²."""
    return _floats(_floats(step_size) ** -2)


def small_norm_step(step_size: ArrayLike) -> Floats:
    """When it does fall below √η, where θ* is small: a neuron's squared norm, 1 at first, decays as exp(-η^1.5·t)."""
    return -0.5 * np.log(_floats(step_size)) * _floats(step_size) ** -1.5


def expected_square_norm(
    steps: ArrayLike, step_size: ArrayLike, active: ArrayLike, target_norm: ArrayLike, start: ArrayLike = 1.0
) -> Floats:
    """Mean squared norm of neurons whose output weights oscillate (Equations 5, 6), over the oscillation's randomness.

    It is exact for inputs of covariance I: `active` neurons move at the same steps, and `steps` counts these alone.
    """
    pull = _floats(step_size) ** 1.5
    decay = 1 - 2 * pull + pull**2 * _floats(active)
    level = _floats(step_size) * pull * _floats(target_norm) ** 2 / (1 - decay)
    return _floats(level + (_floats(start) - level) * decay ** _floats(steps))


def alignment_step(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """T₂ of Lemma 3.4 as printed, ln(1/η)/‖θ*‖."""
    return -np.log(_floats(step_size)) / _floats(target_norm)


def growth_step(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """T₂ with the factor 1/η that the printed one lacks: weights grow by 1 + η‖θ*‖ per step, so by 1/η until then."""
    return alignment_step(step_size, target_norm) / _floats(step_size)


def convergence_steps(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """t₃ - t₂ of Lemma 3.5, ln(1/η)/(η‖θ*‖²)."""
    return growth_step(step_size, target_norm) / _floats(target_norm)


def final_alignment(
    step_size: ArrayLike, width: ArrayLike, target_norm: ArrayLike, init_scale: ArrayLike = 1.0
) -> Floats:
    """Cosine with θ* that neurons of size √η·init_scale are left with once they share θ* equally.

    Each then has ‖θ*‖/m along θ*, squared, and across it what it started with.
    """
    across = _floats(init_scale) ** 2 * _floats(step_size)
    return _floats((1 + across * _floats(width) / _floats(target_norm)) ** -0.5)


# XOR clusters


def early_step(step_size: ArrayLike) -> Floats:
    """T of Theorem 1, 1 + 1/(4·step)."""
    return 1 + 1 / (4 * _floats(step_size))


# Regularization by misclassification


def flip_rate(replacement_rate: ArrayLike, classes: int = 2) -> Floats:
    """Share of labels that are wrong where a share is replaced by uniformly random ones."""
    return _floats(replacement_rate) * (1 - 1 / classes)


# Self-labeling


def recoverable_corruption(alpha: ArrayLike, classes: int = 2) -> Floats:
    """Share ρ of wrong labels below which all refined labels are nearest to the truth, in the limit of alike crops.

    The network then says the mean label of a sample's crops, wrong by at most ρ·D, where D = (classes - 1)·δ is the
    largest distance of labels; (1 - α)·D + α·ρ·D < δ/2 gives the share. It is exact for two classes.
    """
    weight = _floats(alpha)
    allowed = 1 / (2 * (classes - 1)) - (1 - weight)
    return np.where(allowed > 0, allowed / np.where(weight > 0, weight, 1), 0)


def guaranteed_corruption(separation: ArrayLike) -> Floats:
    """The share ρ up to which Theorem 2 promises that all labels are recovered, δ/32."""
    return _floats(separation) / 32


def guaranteed_alpha(separation: ArrayLike) -> Floats:
    """The least weight α of the network's own labels for which it does, 1 - ¾·δ."""
    return 1 - 0.75 * _floats(separation)


def refined_error_bound(alpha: ArrayLike, given_error: ArrayLike, zeta: ArrayLike) -> Floats:
    """Theorem 2's bound on ‖ỹ − y*‖/√n, from that of the given labels and the network's own error ζ."""
    return (1 - _floats(alpha)) * _floats(given_error) + _floats(alpha) * _floats(zeta)


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
