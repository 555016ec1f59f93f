"""The papers' predictions for what the tasks measure, as functions of the parameters.

Times are in steps. All functions take numbers or arrays. Tasks that measure a distance from theory
have their own formulas; the tests compare the two.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def expected_square_norm(
    steps: ArrayLike, step_size: ArrayLike, active: ArrayLike, target_norm: ArrayLike, start: ArrayLike = 1.0
) -> Floats:
    """Mean squared norm of neurons whose output weights oscillate (Equations 5, 6), over the oscillation's randomness.

    It is exact for inputs of covariance I. `active` neurons move at the same steps, and `steps` counts only these.
    """
    pull = _floats(step_size) ** 1.5
    decay = 1 - 2 * pull + pull**2 * _floats(active)
    level = _floats(step_size) * pull * _floats(target_norm) ** 2 / (1 - decay)
    return _floats(level + (_floats(start) - level) * decay ** _floats(steps))


def alignment_step(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """T₂ of Lemma 3.4 as printed, ln(1/η)/‖θ*‖."""
    return -np.log(_floats(step_size)) / _floats(target_norm)


def growth_step(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """T₂ of Lemma 3.4 with the factor 1/η that the printed one lacks.

    Weights grow by the factor 1 + η‖θ*‖ per step, and by 1/η until T₂.
    """
    return alignment_step(step_size, target_norm) / _floats(step_size)


def convergence_steps(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """t₃ - t₂ of Lemma 3.5, ln(1/η)/(η‖θ*‖²)."""
    return growth_step(step_size, target_norm) / _floats(target_norm)


def final_alignment(
    step_size: ArrayLike, width: ArrayLike, target_norm: ArrayLike, init_scale: ArrayLike = 1.0
) -> Floats:
    """Final cosine with θ* of neurons that start with size √η·init_scale and share θ* equally.

    Each neuron's squared component along θ* is ‖θ*‖/m; its component across θ* keeps its initial size.
    """
    across = _floats(init_scale) ** 2 * _floats(step_size)
    return _floats((1 + across * _floats(width) / _floats(target_norm)) ** -0.5)


def refined_error_bound(alpha: ArrayLike, given_error: ArrayLike, zeta: ArrayLike) -> Floats:
    """Theorem 2's bound on ‖ỹ − y*‖/√n, from the error of the given labels and the network's own error ζ."""
    return (1 - _floats(alpha)) * _floats(given_error) + _floats(alpha) * _floats(zeta)
