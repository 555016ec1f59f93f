"""A linear probe: a linear classifier trained on frozen features, with true or noisy labels.

It minimizes the softmax cross entropy by Adam without weight decay (Appendix B.2 of the paper: rate 0.01, 200 epochs on
CIFAR-10; the batch size is not given). Weights start as N(0, 0.01²) and biases at 0, as in MoCo. Each lane shuffles the
features in every epoch, by its own seed. Gradients are computed by hand: a step of all lanes is two matrix products.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.image_training import epoch_order
from mislabel.tasks.lanes import Lanes

_MEAN_DECAY, _SQUARE_DECAY, _SMALL = 0.9, 0.999, 1e-8  # Adam's default parameters
_START = 0.01


@dataclass(frozen=True)
class Probe:
    w: Tensor  # l f k
    b: Tensor  # l 1 k


@torch.no_grad()
def trained(
    lanes: Lanes[Any], name: str, x: Tensor, y: Tensor, classes: int, epochs: int, batch: int = 256, rate: float = 0.01
) -> Probe:
    """Train a classifier per lane on features x (l n f) with classes y (n, or l n)."""
    count = x.shape[1]
    y = y.expand(len(lanes), count)
    # The last row of the weights is the bias; its feature is always 1.
    w = functional.pad(_START * lanes.normal(f"{name}.w", x.shape[2], classes), (0, 0, 0, 1))  # l f+1 k
    mean, square = torch.zeros_like(w), torch.zeros_like(w)
    lane = torch.arange(len(lanes), device=x.device)[:, None]
    step = 0
    with torch.autocast(x.device.type, enabled=False):
        for epoch in range(epochs):
            order = epoch_order(lanes, f"{name}.order", count, epoch)
            for index in torch.split(order, batch, dim=1):
                step += 1
                some = functional.pad(x[lane, index].to(lanes.dtype), (0, 1), value=1.0)
                gradient = _gradient(w, some, y.gather(1, index))
                mean.lerp_(gradient, 1 - _MEAN_DECAY)
                square.mul_(_SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - _SQUARE_DECAY)
                scale = (square / (1 - _SQUARE_DECAY**step)).sqrt_().add_(_SMALL)
                w.addcdiv_(mean, scale, value=-rate / (1 - _MEAN_DECAY**step))
    return Probe(w[:, :-1], w[:, -1:])


@torch.no_grad()
def accuracy(probe: Probe, x: Tensor, y: Tensor) -> Tensor:
    """The share of features x (l m f) classified as y (m, or l m); (l)."""
    with torch.autocast(x.device.type, enabled=False):
        found = torch.baddbmm(probe.b, x.to(probe.w.dtype), probe.w).argmax(dim=2)
    return (found == y).to(probe.w.dtype).mean(dim=1)


def _gradient(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the mean cross entropy over a batch x (l b f), y (l b); (l f k)."""
    residual = torch.bmm(x, w).softmax(dim=2)
    residual.scatter_add_(2, y[:, :, None], residual.new_full((*y.shape, 1), -1.0))
    return torch.bmm(x.mT, residual).div_(x.shape[1])
