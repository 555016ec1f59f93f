"""The networks of a pack as one network with an explicit state; each lane has its own weights and images.

The running statistics of batch norm are part of the state (`buffers`); everything else is trained (`weights`).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes


@dataclass(frozen=True)
class Weight:
    """A tensor of each network and its initialization."""

    size: tuple[int, ...]
    deviation: float = 0.0
    """Standard deviation of the initial values, before scaling; 0 if they are a constant."""
    constant: float = 0.0
    uniform: bool = False
    """Whether initial values are uniform instead of normal."""
    trained: bool = True
    """False for buffers: running means and variances."""


@dataclass(frozen=True)
class Result:
    """The result of one forward pass."""

    outputs: Tensor  # l b k
    hidden: Mapping[str, Tensor] = field(default_factory=dict)
    """Activations after ReLU by layer, (l b m) or (l b c h w); empty without `watch`."""
    buffers: Mapping[str, Tensor] = field(default_factory=dict)
    """Running statistics after a pass in training mode; the caller puts them into the state."""

    @classmethod
    def joined(cls, parts: Sequence[Self], dim: int) -> Self:
        """The results for parts of the lanes (0), or of the images (1)."""
        return cls(
            torch.cat([part.outputs for part in parts], dim),
            {name: torch.cat([part.hidden[name] for part in parts], dim) for name in parts[0].hidden},
            {name: torch.cat([part.buffers[name] for part in parts]) for name in parts[0].buffers},
        )

    def active_shares(self) -> dict[str, Tensor]:
        """For each hidden layer, the mean share of neurons that fire on an image; (l)."""
        return {name: (h > 0).to(self.outputs.dtype).flatten(1).mean(dim=1) for name, h in self.hidden.items()}


@dataclass(frozen=True)
class Descent:
    """A step of gradient descent, like torch's SGD. Rate, weight decay and momentum have one value per lane (l).

    Momentum needs velocities by the names of the weights. They start at 0, are updated too, and are part of a task's
    state.
    """

    rate: Tensor
    decay: Tensor | None = None
    momentum: Tensor | None = None
    velocity: Mapping[str, Tensor] | None = None

    @torch.no_grad()
    def update(self, weights: Mapping[str, Tensor], grads: Mapping[str, Tensor]) -> None:
        """Update the weights in place."""
        for name, w in weights.items():
            step = grads[name]
            if self.decay is not None:
                step = torch.addcmul(step, w, column(self.decay, w))
            if self.velocity is not None and self.momentum is not None:
                step = self.velocity[name].mul_(column(self.momentum, w)).add_(step)
            w.addcmul_(step, column(self.rate, w), value=-1)


def column(values: Tensor, like: Tensor) -> Tensor:
    """A value per lane (l), shaped to multiply a tensor with the lane first."""
    return values.reshape([-1, *[1] * (like.dim() - 1)])


class Network(ABC):
    """Networks of one architecture and size."""

    def __init__(self, declared: Mapping[str, Weight]) -> None:
        self.weights = {name: weight for name, weight in declared.items() if weight.trained}
        self.buffers = {name: weight for name, weight in declared.items() if not weight.trained}

    @abstractmethod
    def forward(self, state: Mapping[str, Tensor], x: Tensor, *, training: bool = False, watch: bool = False) -> Result:
        """A forward pass on images (l b c h w), or (b c h w) for the same images in all lanes.

        In training mode, batch norm uses the statistics of the batch. `watch` keeps the hidden activations.
        """

    def init(self, lanes: Lanes[Any], scale: Tensor | None = None) -> dict[str, Tensor]:
        """Initial weights and buffers, from each lane's own seed; `scale` (l) is the knob init_scale by default."""
        scale = lanes["init_scale"] if scale is None else scale
        declared = self.weights | self.buffers
        return {name: _started(lanes, f"network.{name}", weight, scale) for name, weight in declared.items()}

    def trained(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The part of the state that is trained."""
        return {name: state[name] for name in self.weights}

    def first_norm(self, state: Mapping[str, Tensor]) -> Tensor:
        """Frobenius norm of the first layer's weights; (l)."""
        return state[next(iter(self.weights))].flatten(1).square().sum(dim=1).sqrt()

    @property
    def size(self) -> int:
        """The number of trained weights of one network."""
        return sum(math.prod(weight.size) for weight in self.weights.values())


def _started(lanes: Lanes[Any], name: str, weight: Weight, scale: Tensor) -> Tensor:
    if not weight.deviation:
        return torch.full((len(lanes), *weight.size), weight.constant, dtype=lanes.dtype, device=lanes.device)
    if weight.uniform:
        drawn = (2 * lanes.uniform(name, *weight.size) - 1) * math.sqrt(3)
    else:
        drawn = lanes.normal(name, *weight.size)
    return drawn * (weight.deviation * scale.reshape(-1, *[1] * len(weight.size)))
