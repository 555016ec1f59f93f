"""Gaussian inputs in the coordinates of their principal axes, in which a linear network's gradient decouples.

A full-batch gradient depends on the data only through XᵀX/n. A rotation of the inputs changes no norm, angle or loss,
so tasks can train in the coordinates in which this matrix is diagonal.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes

SAMPLES_HELP = "number of inputs n; 0: infinitely many (exact expectation); the theory assumes at least 1/η²"
# Inputs are drawn in parts, because only the sum of their products is needed.
_PART = 1000


@dataclass(frozen=True)
class Inputs:
    variance: Tensor  # l d: mean square of the inputs along each axis
    axes: Tensor  # l d d: the axes, as columns


def drawn_inputs(lanes: Lanes[Any], samples: int, dim: int) -> Inputs:
    """`samples` inputs from N(0, I); 0 gives the limit of infinitely many."""
    eye = torch.eye(dim, dtype=lanes.dtype, device=lanes.device).expand(len(lanes), dim, dim)
    if samples == 0:
        return Inputs(variance=torch.ones_like(eye[:, 0]), axes=eye)
    products = torch.zeros_like(eye)
    for first in range(0, samples, _PART):
        x = lanes.normal("x", dim, steps=range(samples)[first : first + _PART])  # l part d
        products = torch.baddbmm(products, x.mT, x)
    variance, axes = torch.linalg.eigh(products / samples)
    return Inputs(variance=variance.clamp(min=0), axes=axes)
