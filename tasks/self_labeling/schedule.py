"""What changes in the course of a run, each as a function of the step alone."""

import math

from torch import Tensor


def confidence(m1: Tensor, m2: Tensor, step: int, steps: int) -> Tensor:
    """μ_t = m₂ − (m₂ − m₁)·(cos(πt/T) + 1)/2: from m₁ at the start to m₂ at the end; (l)."""
    return m2 - (m2 - m1) * (math.cos(math.pi * step / steps) + 1) / 2


def annealed(rate: Tensor, step: int, steps: int) -> Tensor:
    """The learning rate, cosine decayed to 0; (l)."""
    return rate * ((math.cos(math.pi * step / steps) + 1) / 2)
