"""Closed forms and bounds of Zhou, Xiong, Yuan, Hoi: A Theory-Driven Self-Labeling Refinement Method.

n crops of K samples, label separation δ, corruption ρ, crops within ε of their sample, weight α of the network's own
labels. The theorems have constants that the paper does not give: here they are 1, except where the proof gives them.
Γ is 1: softplus, sigmoid and tanh have smaller derivatives.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def log_ratio(samples: int, crops: int, corruption: float) -> float:
    """ξ = log(Γ√(n·log K)/ρ) of Theorem 2."""
    return math.log(math.sqrt(samples * crops * math.log(samples)) / corruption)


def clustered_error_bound(corruption: ArrayLike) -> Floats:
    """Theorem 7: |f − y*| ≤ 4ρ on every crop if crops equal their samples; ζ of Theorem 2 for ε → 0."""
    return 4 * _floats(corruption)


def refined_error_bound(alpha: ArrayLike, given_error: ArrayLike, zeta: ArrayLike) -> Floats:
    """Theorem 2 (1): the bound on ‖ỹ − y*‖/√n, from the error of the given labels and the network's own error ζ."""
    return (1 - _floats(alpha)) * _floats(given_error) + _floats(alpha) * _floats(zeta)


def smallest_alpha(separation: float) -> float:
    """Theorem 2 (1): labels are recovered if α ≥ 1 − 3δ/4."""
    return 1 - 0.75 * separation


def largest_corruption(separation: float) -> float:
    """Theorem 2 (1): labels are recovered if ρ ≤ δ/32."""
    return separation / 32


def training_steps(
    step_size: ArrayLike, smallest_eigenvalue: ArrayLike, alpha: float, corruption: float, samples: int, crops: int
) -> Floats:
    """t₀ of Theorems 2 and 7 with the proof's constant 40: (40/(s·λ))·log(Γ√(n·log K)/((1 − α)·ρ)), s = η·n/K.

    Appendix D.2.6 has 5/(η·a²)·log(…) with a² = n·λ/(8K).
    """
    rate = _floats(step_size) * _floats(smallest_eigenvalue)
    return _floats(40 / rate * (log_ratio(samples, crops, corruption) - math.log(1 - alpha)))


def largest_radius(smallest_eigenvalue: ArrayLike, samples: int, crops: int, corruption: float) -> Floats:
    """Theorem 8: the gradient path is robust to ε ≤ λ/(Γ²·K·ξ)."""
    return _floats(smallest_eigenvalue) / (samples * log_ratio(samples, crops, corruption))


def weight_distance_bound(smallest_eigenvalue: ArrayLike, samples: int) -> Floats:
    """Theorem 7 (1): ‖W_t − W_0‖_F ≤ Γ·√(K·log K/λ)."""
    return np.sqrt(samples * math.log(samples) / _floats(smallest_eigenvalue))


def initial_misfit_bound(samples: int) -> float:
    """Lemma 7: ‖f(W_0, X) − y‖/√n ≤ Γ·√(log K)."""
    return math.sqrt(math.log(samples))


def clustered_error(corruption: ArrayLike, separation: ArrayLike = 1.0) -> Floats:
    """|f − y*| of a trained network for two classes, if crops are equal: f is the mean label, wrong by ρ·δ."""
    return _floats(corruption) * _floats(separation)


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


def label_risk_gap(given: ArrayLike, truth: ArrayLike) -> float:
    """Q − Q̃ of Theorem 1 for a network that fits the given label: cross entropy with the true minus the given label."""
    y, true = _floats(given), _floats(truth)
    return float(((true - y) * -np.log(y)).sum())
