"""Zhang et al., On the Learning Dynamics of Two-layer Linear Networks with Label Noise SGD: bounds and closed forms.

Times are in steps. Functions take numbers or arrays. Orders O(…) are returned without their constant, which the paper
does not give.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ESCAPE_EXPONENT = -2.0
"""T₁ of Theorem 3.2 is proportional to this power of σ, and of η."""
DIMINISHING_SHARE = 1 / 4
"""ΔW_i ≤ −(σ/4)² at least this often, by Lemma C.3 (2)."""


def escape_bound(sigma: ArrayLike, step_size: ArrayLike, width: ArrayLike) -> Floats:
    """T₁ = 384·√(log m)/(σ²η²√m), by which all neurons have left the lazy regime (Theorem 3.2)."""
    noise = (_floats(sigma) * _floats(step_size)) ** 2
    return _floats(384 * np.sqrt(np.log(_floats(width))) / (noise * np.sqrt(_floats(width))))


def small_norm_bound(step_size: ArrayLike) -> Floats:
    """The step by which the mean squared norm is below √η: 1/η² (Lemma 3.3)."""
    return _floats(_floats(step_size) ** -2.0)


def small_norm_step(step_size: ArrayLike) -> Floats:
    """The step at which the mean squared norm reaches √η if θ* is small: it starts at 1 and decays as exp(−η^1.5·t).

    Under Equations 5 and 6 each neuron moves at every second step, and its norm then shrinks by the factor 1 − η^1.5.
    """
    eta = _floats(step_size)
    return _floats(-0.5 * np.log(eta) * eta**-1.5)


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


def printed_alignment_steps(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """T₂ as printed in Lemma 3.4, ln(1/η)/‖θ*‖."""
    return _floats(-np.log(_floats(step_size)) / _floats(target_norm))


def alignment_steps(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """T₂ with the factor 1/η that the printed one lacks, ln(1/η)/(η‖θ*‖).

    By Equation 54, a step multiplies (w_i, a_i) by I + ηM, whose top eigenvalue is 1 + η‖θ*‖. In the printed T₂ steps
    the component along θ* grows by exp(η‖θ*‖T₂) = η^(−η), which is hardly more than 1: neurons don't turn. The proof
    needs it to grow by a power of 1/η, so it needs a T₂ with η‖θ*‖T₂ = ln(1/η). Then the component along θ* has grown
    by 1/η or has reached θ*, and the components across θ*, whose eigenvalue is 1, are as they were.
    """
    return printed_alignment_steps(step_size, target_norm) / _floats(step_size)


def convergence_steps(step_size: ArrayLike, target_norm: ArrayLike) -> Floats:
    """t₃ − t₂ of Lemma 3.5, ln(1/η)/(η‖θ*‖²)."""
    return alignment_steps(step_size, target_norm) / _floats(target_norm)


def misalignment_order(step_size: ArrayLike) -> Floats:
    """The order of 1 − |⟨θ*, w_i⟩| at t₂: √η·ln(1/η) (Equation 8)."""
    return _floats(-np.sqrt(_floats(step_size)) * np.log(_floats(step_size)))


def convergence_order(step_size: ArrayLike) -> Floats:
    """The order of ‖θ − θ*‖ and of 1 − |⟨θ*, w_i⟩| at t₃: η·ln(1/η) (Lemma 3.5, Equation 9)."""
    return _floats(-_floats(step_size) * np.log(_floats(step_size)))


def final_alignment(
    step_size: ArrayLike, width: ArrayLike, target_norm: ArrayLike, init_scale: ArrayLike = 1.0
) -> Floats:
    """Final cosine with θ* of neurons that start with size √η·init_scale and share θ* equally.

    Each neuron's squared component along θ* is ‖θ*‖/m; its component across θ* keeps its initial size.
    """
    across = _floats(init_scale) ** 2 * _floats(step_size)
    return _floats((1 + across * _floats(width) / _floats(target_norm)) ** -0.5)


def initial_norm_bound(width: ArrayLike) -> Floats:
    """The bound m^(1/12)/4 on every ‖w_i(0)‖ (Lemma C.1). Neurons start with norms near 1, so m must be above 4¹²."""
    return _floats(_floats(width) ** (1 / 12) / 4)


def output_weight_bound(width: ArrayLike) -> Floats:
    """The bound m^(−1/4) on every |a_i| in the lazy regime (Lemma C.2 (ii))."""
    return _floats(_floats(width) ** -0.25)


def growing_share_bound(width: ArrayLike, dim: ArrayLike) -> Floats:
    """The bound ρ/m^(1/8), ρ = 2·√(d/π), on the probability of ΔW_i > 0 (Lemma C.3); above 1 it says nothing."""
    return _floats(2 * np.sqrt(_floats(dim) / np.pi) * _floats(width) ** -0.125)


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)
