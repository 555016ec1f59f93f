"""The papers' predictions as functions of the parameters: numbers, or also columns if typed `Any`. Times are steps."""

import math
from typing import Any

import numpy as np

# Clean-priority learning


def deviation_ratio(wide: float, narrow: float) -> float:
    """A wide network's deviation from infinite width over a narrow one's: sums over m neurons deviate by about 1/√m."""
    return math.sqrt(narrow / wide)


def first_gradient_ratio(noise_rate: Any, classes: Any = 2) -> Any:
    """‖g_noise‖/‖g_clean‖ at initialization, δ/(1 − δ), over the number of classes that a noisy label can name."""
    return noise_rate / (1 - noise_rate) / (classes - 1)


# Label-noise SGD


def small_norm_bound(step_size: Any) -> Any:
    """The step by which the mean squared norm is below √η, by Lemma 3.3: 1/η²."""
    return step_size**-2.0


def small_norm_step(step_size: Any) -> Any:
    """The step at which the mean squared norm reaches √η if θ* is small: it starts at 1 and decays as exp(-η^1.5·t)."""
    return -0.5 * np.log(step_size) * step_size**-1.5


# Regularization by misclassification


def hinge_level(dim: float, rate: float) -> float:
    """Order of the norm at which a neuron levels off under pure noise with the hinge loss, d·h (Theorem 2)."""
    return dim * rate


def logistic_level(dim: float, rate: float) -> float:
    """The same for cross entropy, √(d·h): its slope at 0 is finite, so the pull fades as the norm falls."""
    return math.sqrt(dim * rate)


# Self-labeling


def recoverable_corruption(alpha: float, classes: int = 2) -> float:
    """Share ρ of wrong labels below which every refined label is nearest to the truth, if a sample's crops are equal.

    The network then predicts the mean label of a sample's crops, which is wrong by at most ρ·D, where D =
    (classes - 1)·δ is the largest distance of labels; (1 - α)·D + α·ρ·D < δ/2 gives ρ. It is exact for two classes.
    """
    allowed = 1 / (2 * (classes - 1)) - (1 - alpha)
    return allowed / alpha if allowed > 0 else 0.0


def refined_over_given_error(alpha: float, corruption: float) -> float:
    """‖ỹ − y*‖/‖y − y*‖ for two classes, if a sample's crops are equal.

    A refined label is (1 - α)·given + α·mean, where the mean label of the sample's crops is wrong by ρ.
    """
    own = (1 - alpha) ** 2
    return math.sqrt(own + (1 - own) * corruption)
