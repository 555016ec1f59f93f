"""Classifiers of frozen features, with true or noisy labels: weighted nearest neighbours and a linear probe.

Neighbours vote as in instance discrimination (Wu et al. 2018, Section 3.4) and MoCo: of the training features, those
with the largest cosine to a test feature vote for their classes, each with weight exp(cosine/temperature).

The probe minimizes the softmax cross entropy by Adam without weight decay (Appendix B.2 of the paper: rate 0.01, 200
epochs on CIFAR-10; the batch size is not given). Weights start as N(0, 0.01²) and biases at 0, as in MoCo. Each lane
shuffles the features in every epoch, by its own seed. Gradients are computed by hand: a step of all lanes is two matrix
products.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.image_training import epoch_order
from mislabel.tasks.lanes import Lanes

# The largest number of similarities between a chunk of test features and all training features.
_CHUNK = 1 << 24
_MEAN_DECAY, _SQUARE_DECAY, _SMALL = 0.9, 0.999, 1e-8  # Adam's default parameters
_START = 0.01


@torch.no_grad()
def neighbour_classes(
    train_x: Tensor, train_y: Tensor, test_x: Tensor, classes: int, neighbours: int = 50, temperature: float = 0.05
) -> Tensor:
    """The class that each test feature's nearest training features vote for; (l m).

    Features are (l n f) and (l m f) and not 0; the classes of the training features are numbers (n, or l n). If classes
    tie, the first one wins. With fewer than `neighbours` training features, all vote.
    """
    train, test = functional.normalize(train_x, dim=2), functional.normalize(test_x, dim=2)
    y = train_y.expand(train.shape[:2])
    rows = max(1, _CHUNK // y.numel())
    with torch.autocast(train.device.type, enabled=False):
        parts = [_vote(train, y, part, classes, neighbours, temperature) for part in torch.split(test, rows, dim=1)]
    return torch.cat(parts, dim=1)


def _vote(train: Tensor, y: Tensor, test: Tensor, classes: int, neighbours: int, temperature: float) -> Tensor:
    cosine, nearest = torch.bmm(test, train.mT).topk(min(neighbours, train.shape[1]), dim=2)  # l m k
    voters = y[:, None, :].expand(-1, test.shape[1], -1).gather(2, nearest)
    # Subtract the largest cosine, so that the exponential does not overflow; the order of the votes stays the same.
    weight = ((cosine - cosine[:, :, :1]) / temperature).exp()
    votes = torch.zeros(*test.shape[:2], classes, dtype=weight.dtype, device=weight.device)
    return votes.scatter_add_(2, voters, weight).argmax(dim=2)


@torch.no_grad()
def trained_probe(
    lanes: Lanes[Any], name: str, x: Tensor, y: Tensor, classes: int, epochs: int, batch: int = 256, rate: float = 0.01
) -> Tensor:
    """Train a linear classifier per lane on features x (l n f) with classes y (n, or l n).

    Returns its weights (l f+1 k). The last row is the bias.
    """
    y = y.expand(x.shape[:2])
    w = functional.pad(_START * lanes.normal(f"{name}.w", x.shape[2], classes), (0, 0, 0, 1))
    mean, square = torch.zeros_like(w), torch.zeros_like(w)
    lane = torch.arange(len(lanes), device=x.device)[:, None]
    step = 0
    with torch.autocast(x.device.type, enabled=False):
        for epoch in range(epochs):
            order = epoch_order(lanes, f"{name}.order", x.shape[1], epoch)
            for index in torch.split(order, batch, dim=1):
                step += 1
                # The feature of the bias is always 1.
                some = functional.pad(x[lane, index].to(lanes.dtype), (0, 1), value=1.0)
                gradient = _gradient(w, some, y.gather(1, index))
                mean.lerp_(gradient, 1 - _MEAN_DECAY)
                square.mul_(_SQUARE_DECAY).addcmul_(gradient, gradient, value=1 - _SQUARE_DECAY)
                scale = (square / (1 - _SQUARE_DECAY**step)).sqrt_().add_(_SMALL)
                w.addcdiv_(mean, scale, value=-rate / (1 - _MEAN_DECAY**step))
    return w


@torch.no_grad()
def probe_classes(w: Tensor, x: Tensor) -> Tensor:
    """The classes of features x (l m f), by a probe with weights w (l f+1 k); (l m)."""
    with torch.autocast(x.device.type, enabled=False):
        return torch.baddbmm(w[:, -1:], x.to(w.dtype), w[:, :-1]).argmax(dim=2)


def _gradient(w: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of the mean cross entropy over a batch x (l b f), y (l b); (l f k)."""
    residual = torch.bmm(x, w).softmax(dim=2)
    residual.scatter_add_(2, y[:, :, None], residual.new_full((*y.shape, 1), -1.0))
    return torch.bmm(x.mT, residual).div_(x.shape[1])
