"""Clean-priority learning: angles of infinitely wide networks, and the gradients of clean and noisy samples.

Angles are in radians. Functions take numbers or arrays.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

WIDTH_EXPONENT = -0.5
"""Deviations from the infinitely wide network are sums over m independent neurons: they fall as m^(-1/2)."""


def feature_angle(input_angle: ArrayLike, hidden_layers: int) -> Floats:
    """Angle between two inputs' features after this many ReLU layers of infinite width (Equation 14)."""
    angle = np.asarray(input_angle, dtype=np.float64)
    for _ in range(hidden_layers):
        angle = np.arccos(np.clip((1 - angle / np.pi) * np.cos(angle) + np.sin(angle) / np.pi, -1, 1))
    return angle


def gradient_angle(input_angle: ArrayLike, hidden_layers: int, activation: str = "relu") -> Floats:
    """Angle θ_h between the derivatives of an infinitely wide network at two inputs (Equation 13).

    Every layer of a linear network preserves the angle of the inputs, so θ_h is that angle.
    """
    angle = np.asarray(input_angle, dtype=np.float64)
    if activation == "linear":
        return angle
    angles = [feature_angle(angle, layer) for layer in range(hidden_layers + 1)]
    terms = [
        np.cos(angles[layer]) * np.prod([1 - later / np.pi for later in angles[layer:-1]], axis=0)
        for layer in range(hidden_layers + 1)
    ]
    return np.asarray(np.arccos(np.clip(np.mean(terms, axis=0), -1, 1)), dtype=np.float64)


def small_angle_slope(hidden_layers: Any) -> Any:
    """(1 − cos θ_h/cos θ_d)/θ_d of ReLU networks in the limit of small θ_d (Equation 15)."""
    return hidden_layers / (2 * np.pi)


def cluster_gap(hidden_layers: int, cluster_angle: float, spread: float) -> float:
    """Mean θ_h between two clusters on the unit circle minus that within one, at infinite width (Figure 3).

    θ_h depends on the inputs' angles alone, and those deviate from the angle of the mean by about `spread`.
    """
    nodes = np.linspace(-6, 6, 4001)  # standard deviations; a fine grid, because θ_h has a cusp at 0
    weights, difference = np.exp(-(nodes**2) / 2), np.sqrt(2) * spread * nodes
    between = gradient_angle(_folded(cluster_angle + difference), hidden_layers)
    return float(weights @ (between - gradient_angle(_folded(difference), hidden_layers)) / weights.sum())


def first_gradient_ratio(noise_rate: Any, classes: Any = 2) -> Any:
    """α at initialization, δ/(1 − δ), over the number of classes that a noisy label can name.

    It is exact on each logit, and for all of them together, if all outputs are 1/k and the images of a class's clean
    and noisy samples are the same.
    """
    return noise_rate / (1 - noise_rate) / (classes - 1)


def untrained(quantity: str, classes: int) -> float:
    """Mean error, residual or loss of any sample if all outputs are 1/k."""
    residual = np.sqrt(1 - 1 / classes) / _outputs_per_logit(classes)
    return float({"error": 1 - 1 / classes, "residual": residual, "loss": np.log(classes)}[quantity])


def calibrated(segment: str, quantity: str, noise_rate: float, classes: int) -> float:
    """Mean error, residual or loss of a segment, for outputs that know the true class and the noise but not the sample.

    They give 1 − δ to the true class and δ/(k − 1) to each other one: the best outputs that treat the clean and the
    noisy samples of a class alike. The paper does not name them; its early stage leads towards them.
    """
    other = noise_rate / (classes - 1)
    label, rest = (1 - noise_rate, 0.0) if segment == "clean" else (other, 1 - noise_rate)
    equal = classes - 1 if segment == "clean" else classes - 2
    norm = np.sqrt((1 - label) ** 2 + rest**2 + equal * other**2)
    residual = norm / _outputs_per_logit(classes)
    return float({"error": segment == "noisy", "residual": residual, "loss": -np.log(label)}[quantity])


def turning_ratio(angle: ArrayLike) -> Floats:
    """α at which a small step of gradient descent leaves the noisy samples' loss as it is, given the angle to g_clean.

    The loss changes by −η·⟨g_noise, g_clean + g_noise⟩. Opposite gradients (Assumption 4.1) give 1, as in Equation 21.
    """
    return -np.cos(np.asarray(angle, dtype=np.float64))


def _outputs_per_logit(classes: int) -> float:
    """√2 for two classes: their residual is that of one logit, and the norm over both outputs is √2 times as large."""
    return float(np.sqrt(2)) if classes == 2 else 1.0


def _folded(angle: Floats) -> Floats:
    """The angle between two directions whose polar angles differ by this much."""
    return np.asarray(np.arccos(np.cos(angle)), dtype=np.float64)
