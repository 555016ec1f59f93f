"""Closed forms and bounds of Frei, Chatterji, Bartlett: Random Feature Amplification.

`init_scale` is ω·√(m·d), where ω² is the variance of the initial weights. C₀ is the constant of Lemma 4.
"""

import math

from scipy.special import gammaln, ndtr

C0 = 10.0
"""The proof takes 4⁵·1024²·e⁴. The task's sets J_μ are defined with this number instead."""


def early_step(step_size: float) -> int:
    """T = 1 + 1/(4α) of Theorem 1, rounded up."""
    return 1 + math.ceil(1 / (4 * step_size) * (1 - 1e-6))


def last_aligned_step(step_size: float) -> int:
    """The last step of Lemma 13, 1/(4α), rounded down."""
    return math.floor(1 / (4 * step_size) * (1 + 1e-6))


def margin_bound() -> float:
    """The margin γ of Equation 47: clean points have at least γ at step T, flipped points at most −γ."""
    return math.exp(-2) / (16 * 1024)


def subnetwork_margin_bound(c0: float = C0) -> float:
    """1/C₃ of Lemma 11, the margin of the neurons in all J_μ."""
    return (1 - 1 / c0) ** 2 * math.exp(-2) / 4096


def feature_change_bound(init_scale: float) -> float:
    """The smallest relative change of a point's features, at the end of the proof of Proposition 2 (Appendix C)."""
    return math.exp(-2) / (16 * 1024 * init_scale)


def norm_bound(step_size: float, step: float) -> float:
    """2αt of Lemma 14: for the Frobenius norm, and for each neuron's norm times √m."""
    return 2 * step_size * step


def largest_init_scale(step_size: float) -> float:
    """The largest initialization for which the proof of Lemma 14 holds: ω√(md) ≤ α/3."""
    return step_size / 3


def correlated_share_bound(width: int, delta: float = 0.05, c0: float = C0) -> float:
    """The share of neurons with |⟨w, μ⟩| ≥ ω/(2C₀), at least, with probability 1 − δ (Lemma 3)."""
    return 1 - 1 / (2 * c0) - math.sqrt(2 * math.log(4 / delta) / width)


def candidate_share_bound(c0: float = C0) -> float:
    """The size of each J_μ over m/4, at least (Lemma 4)."""
    return (1 - 1 / c0) ** 2


def initial_correlation(dim: int) -> float:
    """The mean |cosine| of a random neuron with a fixed direction (Lemma 4 gives its order, 1/√d)."""
    return math.exp(gammaln(dim / 2) - gammaln((dim + 1) / 2)) / math.sqrt(math.pi)


def expected_edge(dim: int, spread: float, noise_rate: float, c0: float = C0) -> float:
    """The expected edge of a neuron at the threshold of J_μ, for Gaussian clusters with σ² = d^(−spread) (Lemma 6).

    The neuron has the cosine 1/(3C₀√d) with μ. It fires on a clean point of μ with the probability Φ(cosine/σ), and on
    one of −μ with the rest. The edge is the difference of the numbers of such points, divided by n.
    """
    ratio = dim ** ((spread - 1) / 2) / (3 * c0)
    return (1 - noise_rate) / 4 * (2 * float(ndtr(ratio)) - 1)


def simple_classifier_error(variance: float) -> float:
    """The error of sgn(|⟨μ₁, x⟩| − |⟨μ₂, x⟩|) on clean Gaussian clusters with this variance (Appendix D).

    |1 + z₁| < |z₂| means that 1 + z₁ − z₂ and 1 + z₁ + z₂ have different signs. They are independent.
    """
    right = float(ndtr(1 / math.sqrt(2 * variance)))
    return 2 * right * (1 - right)


def simple_classifier_error_bound(variance: float) -> float:
    """The bound on this error for every log-concave cluster, from Equation 56: 6·exp(−1/(3σ))."""
    return 6 * math.exp(-1 / (3 * math.sqrt(variance)))
