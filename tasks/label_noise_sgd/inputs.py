"""Gaussian inputs seen along their principal axes, along which a full-batch gradient of the linear network decouples.

With all n inputs at every step, the data enter by XᵀX/n alone. A rotation of the inputs changes no norm, angle or loss,
so tasks may train on the axes of that matrix, where it is diagonal.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes

# Inputs are drawn in parts: only the sum of their products is kept.
_PART = 1000


@dataclass(frozen=True)
class Inputs:
    variance: Tensor  # l d: mean square of the inputs along each axis
    axes: Tensor  # l d d: the axes, as columns


def drawn_inputs(lanes: Lanes[Any], samples: int, dim: int) -> Inputs:
    """So many inputs N(0, I), or, where `samples` is 0, their limit as samples go to infinity."""
    eye = torch.eye(dim, dtype=lanes.dtype, device=lanes.device).expand(len(lanes), dim, dim)
    if samples == 0:
        return Inputs(variance=torch.ones_like(eye[:, 0]), axes=eye)
    products = torch.zeros_like(eye)
    for first in range(0, samples, _PART):
        x = lanes.normal("x", dim, steps=range(samples)[first : first + _PART])  # l part d
        products = torch.baddbmm(products, x.mT, x)
    variance, axes = torch.linalg.eigh(products / samples)
    return Inputs(variance=variance.clamp(min=0), axes=axes)
