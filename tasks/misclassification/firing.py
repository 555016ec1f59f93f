"""Measure which neurons fire for which class, for all networks of a pack."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images import image_training
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.task import State

# Images are processed in parts, because the hidden activations are far larger than the weights.
_PART = 250
Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs (l b k) and classes (b) to a loss per image (l b)."""


@dataclass(frozen=True)
class Activity:
    error: Tensor  # l
    loss: Tensor  # l
    layers: Tensor  # l h: for each hidden layer, the mean share of neurons that fire on an image
    firing: Tensor  # l m k: for each neuron of the last hidden layer and each class, the share of images it fires on
    active: Tensor  # l m: the same over all images

    @property
    def class_neurons(self) -> Tensor:
        """The number of neurons that fire at least twice as often for one class as for any other; (l,)."""
        return associated(self.firing).sum(dim=1)

    @property
    def dead_neurons(self) -> Tensor:
        return (self.active == 0).sum(dim=1)


def evaluate(lanes: Lanes[Any], network: Network, s: State, x: Tensor, y: Tensor, classes: int, loss: Loss) -> Activity:
    """Evaluate images x (n c h w) of bytes with classes y (n)."""
    parts = []
    for at in image_training.parts(len(y), _PART):
        seen = network.forward(s, image_training.scaled(lanes, x[at]), watch=True)
        fires = (list(seen.hidden.values())[-1].flatten(2) > 0).to(lanes.dtype)  # l b m
        wrong = (seen.outputs.argmax(dim=2) != y[at]).to(lanes.dtype).sum(dim=1)
        shares = torch.stack(list(seen.active_shares().values()), dim=1) * len(y[at])
        fired = torch.matmul(fires.mT, functional.one_hot(y[at], classes).to(lanes.dtype))
        parts.append((wrong, loss(seen.outputs, y[at]).sum(dim=1), shares, fired))
    wrong, lost, shares, fired = (torch.stack(sums).sum(dim=0) for sums in zip(*parts, strict=True))
    # A network without finite outputs predicts no class.
    error = torch.where(lost.isfinite(), wrong / len(y), torch.nan)
    # For a class without images, no neuron fires.
    members = torch.bincount(y, minlength=classes).clamp(min=1)
    return Activity(error, lost / len(y), shares / len(y), fired / members, fired.sum(dim=2) / len(y))


def associated(firing: Tensor) -> Tensor:
    """True for neurons that fire at least twice as often for one class as for any other; (... m k) to (... m)."""
    most = firing.topk(2, dim=-1).values
    return (most[..., 0] > 0) & (most[..., 0] >= 2 * most[..., 1])


def balanced(y: Tensor, count: int, classes: int) -> Tensor:
    """Indices of the first images of each class, equally many per class, at most `count` in total; 0 takes all."""
    if not count:
        return torch.arange(len(y), device=y.device)
    place = functional.one_hot(y, classes).cumsum(dim=0).gather(1, y[:, None])[:, 0]  # index within the class, from 1
    return (place <= max(1, count // classes)).nonzero()[:, 0]
