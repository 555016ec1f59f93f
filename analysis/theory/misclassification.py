"""Closed forms and bounds of "Regularization by Misclassification in ReLU Neural Networks".

For one neuron under pure label noise, a step changes the squared norm σ² by 2h·E[L'z] + h²·E[L'²‖x‖²] in expectation,
with z = y·w·x from N(0, σ²) and L' the slope of the loss at -z. This gives how fast the norm falls, and the level at
which both terms are equal.
"""

import math
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

Loss = Literal["hinge", "logistic"]

JUMP = 1.0
"""m of Theorem 2 (a): the jump of the hinge loss's slope at 0."""
CURVATURE = 0.25
"""m of Theorem 2 (b): the second derivative of the logistic loss at 0."""
_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(150)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def expected_change(norm: float, dim: int, rate: float, loss: Loss) -> float:
    """The expected change of the squared norm in one step of pure label noise."""
    if loss == "hinge":  # L' is 1 for z < 0, else 0
        return -2 * rate * norm / math.sqrt(2 * math.pi) + rate**2 * dim / 2
    slope = expit(-norm * _POINTS)
    pulled = float(_WEIGHTS @ (slope * norm * _POINTS))
    spread = float(_WEIGHTS @ (slope**2 * (dim - 1 + _POINTS**2)))
    return 2 * rate * pulled + rate**2 * spread


def fall_per_rate(norm: float, dim: int, rate: float, loss: Loss) -> float:
    """How much the norm falls in a step, divided by the rate h; 1/√(2π) at a large norm and a small rate."""
    return -expected_change(norm, dim, rate, loss) / (2 * norm * rate)


def level(dim: int, rate: float, loss: Loss) -> float:
    """The norm that stays the same in expectation: √(2π)/4·d·h with the hinge, near √(d·h/2) with the logistic loss."""
    if loss == "hinge":
        return math.sqrt(2 * math.pi) / 4 * dim * rate
    scale = math.sqrt(dim * rate / 2)
    return float(brentq(expected_change, scale / 10, 10 * scale, args=(dim, rate, loss)))


def theorem_2_level(dim: int, rate: float, loss: Loss) -> float:
    """The level of Theorem 2: d·h·max(M²/m, 1) for the hinge, d·√h·max(M²/m, 1) for the logistic loss; M = 1.

    The proof has an additional factor of 100.
    """
    return dim * rate * max(1 / JUMP, 1) if loss == "hinge" else dim * math.sqrt(rate) * max(1 / CURVATURE, 1)


def theorem_2_steps(norm: float, dim: int, rate: float, loss: Loss) -> float:
    """T of Theorem 2 with the factors of the proof: 3·‖V‖/(m·h) and 7·‖V‖/(m·d·h^(3/2))."""
    if loss == "hinge":
        return 3 * norm / (JUMP * rate)
    return 7 * norm / (CURVATURE * dim * rate * math.sqrt(rate))


def biased_decay(norm: float, bias: float) -> float:
    """r of the proof of Theorem 2 in expectation: E[z; z < 0] with z = y·(w·x + b), ‖w‖ the norm."""
    return -norm / math.sqrt(2 * math.pi) * math.exp(-(bias**2) / (2 * norm**2)) - bias / 2 * math.erf(
        bias / (math.sqrt(2) * norm)
    )


def ideal_active_neurons(dim: int, epsilon: float) -> float:
    """How many neurons of Section 6.3's ideal network fire on a point of the outer cube; the text says d·ε.

    The coordinate that is ±1 always does. Another one does with probability ε/2. Inside, none fires.
    """
    return 1 + (dim - 1) * epsilon / 2


def small_rate(width: int) -> float:
    """1/k, the largest rate of Theorem 4's second part; the width is 2k."""
    return 2 / width
