"""The papers' predictions as functions of the parameters, which are numbers or arrays. Times are in steps."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


# Clean-priority learning


def deviation_ratio(wide: ArrayLike, narrow: ArrayLike) -> Floats:
    """A wide network's deviation from infinite width over a narrow one's: sums over m neurons deviate by about 1/√m."""
    return np.sqrt(_floats(narrow) / _floats(wide))


def first_gradient_ratio(noise_rate: ArrayLike, classes: ArrayLike = 2) -> Floats:
    """‖g_noise‖/‖g_clean‖ at initialization, δ/(1 − δ), over the number of classes that a noisy label can name."""
    return _floats(noise_rate) / (1 - _floats(noise_rate)) / (_floats(classes) - 1)


# Label-noise SGD


def small_norm_bound(step_size: ArrayLike) -> Floats:
    """The step by which the mean squared norm is below √η, by Lemma 3.3: 1/η²."""
    return _floats(_floats(step_size) ** -2)


def small_norm_step(step_size: ArrayLike) -> Floats:
    """The step at which the mean squared norm reaches √η if θ* is small: it starts at 1 and decays as exp(-η^1.5·t)."""
    return -0.5 * np.log(_floats(step_size)) * _floats(step_size) ** -1.5


# Regularization by misclassification


def hinge_level(dim: ArrayLike, rate: ArrayLike) -> Floats:
    """Order of the norm at which a neuron levels off under pure noise with the hinge loss, d·h (Theorem 2)."""
    return _floats(dim) * _floats(rate)


def logistic_level(dim: ArrayLike, rate: ArrayLike) -> Floats:
    """The same for cross entropy, √(d·h): its slope at 0 is finite, so the pull fades as the norm falls."""
    return np.sqrt(_floats(dim) * _floats(rate))


# Self-labeling


def recoverable_corruption(alpha: ArrayLike, classes: int = 2) -> Floats:
    """Share ρ of wrong labels below which every refined label is nearest to the truth, if a sample's crops are equal.

    The network then predicts the mean label of a sample's crops, which is wrong by at most ρ·D, where D =
    (classes - 1)·δ is the largest distance of labels; (1 - α)·D + α·ρ·D < δ/2 gives ρ. It is exact for two classes.
    """
    weight = _floats(alpha)
    allowed = 1 / (2 * (classes - 1)) - (1 - weight)
    return np.where(allowed > 0, allowed / np.where(weight > 0, weight, 1), 0)


def refined_over_given_error(alpha: ArrayLike, corruption: ArrayLike) -> Floats:
    """‖ỹ − y*‖/‖y − y*‖ for two classes, if a sample's crops are equal.

    A refined label is (1 - α)·given + α·mean, where the mean label of the sample's crops is wrong by ρ.
    """
    own = (1 - _floats(alpha)) ** 2
    return np.sqrt(own + (1 - own) * _floats(corruption))


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
