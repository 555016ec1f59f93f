"""Virtual queries: mixtures of two images, with the same mixture of their labels (Eq. 8).

Momentum mixup mixes queries with positives, which are also the inputs of the momentum encoder. Vanilla mixup mixes
queries with queries.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes

MIXUPS = ("none", "vanilla", "momentum")


def beta(lanes: Lanes[Any], name: str, kappa: Tensor, count: int, step: int) -> Tensor:
    """Numbers from Beta(κ, κ), with each lane's κ (l), drawn independently at every step; (l, count).

    Exact, by Devroye's formula for the symmetric beta distribution (1996): if U and V are uniform and c = cos 2πV, then
    ½ + ½·sign(c)/√(1 + 1/((U^(−1/κ) − 1)·c²)) is Beta(κ, κ). It needs no rejection, so every step has as many draws.
    """
    steps = range(step, step + 1)
    u, v = lanes.uniform(name, 2, count, steps=steps)[:, 0].double().unbind(dim=1)  # l count
    c = torch.cos(2 * math.pi * v)
    spread = torch.expm1(-u.log() / kappa.double()[:, None]) * c.square()
    return (0.5 + 0.5 * c.sign() / (1 + 1 / spread).sqrt()).to(lanes.dtype)


def partners(lanes: Lanes[Any], name: str, count: int, step: int) -> Tensor:
    """For each query, the index in the batch of its partner; (l, count)."""
    return lanes.integers(name, count, count, steps=range(step, step + 1))[:, 0]


def mixed(first: Tensor, second: Tensor, share: Tensor, partner: Tensor) -> Tensor:
    """θ_i·first_i + (1 − θ_i)·second_k, where k is the partner of i; for images (l s c h w) or labels (l s k)."""
    column = [*share.shape, *[1] * (first.dim() - 2)]
    lane = torch.arange(len(share), device=share.device)[:, None]
    return torch.lerp(second[lane, partner], first, share.reshape(column).to(first.dtype))
