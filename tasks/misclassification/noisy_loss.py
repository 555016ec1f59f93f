"""Hinge and logistic loss on labels that are replaced at random or smoothed, and their pull on a network's output.

A label is +1 with chance q, else -1. A replaced label is the wrong one half of the time, so q is 0 or 1 but for
smoothing, which moves it towards 1/2. The loss of an output f is q·L(-f) + (1 - q)·L(f), where L(ξ) is log(1 + exp ξ)
or max(0, β + ξ). Its pull is minus its derivative times the learning rate. At the kinks of the hinge the pull is that
of the flat side: with β = 0 a network whose output is 0 does not move.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.corruption import happens
from mislabel.tasks.lanes import Lanes

LOSSES = ("hinge", "logistic")

Pull = Callable[[Tensor, Tensor, Tensor], Tensor]
"""What moves an output (l,), from how strongly its label pulls it up (l,) and down (l,), see `strengths`."""


def label_chances(lanes: Lanes[Any], y: Tensor, steps: range) -> Tensor:
    """The chance of +1 in each step's label, drawn from the true labels y (l t) by noise, then smoothed; (l t)."""
    flipped = happens(lanes, "flip", lanes["noise_rate"] / 2, steps=steps)
    sure = (0.5 - lanes.column("smoothing", 1) / 2) * y
    return 0.5 + torch.where(flipped, -sure, sure)


def mean_chances(lanes: Lanes[Any], y: Tensor) -> Tensor:
    """The chance of +1 in the labels of points whose true labels are y (l n), over all noise; (l n)."""
    return 0.5 + (1 - lanes.column("noise_rate", 1)) * (1 - lanes.column("smoothing", 1)) * y / 2


def strengths(lanes: Lanes[Any], chances: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """For each step, by how much its label may pull an output up, and down (as a negative number); (l,) each."""
    up = (chances * lanes.column("learning_rate", 1)).T.contiguous()
    return up.unbind(), (up - lanes["learning_rate"]).unbind()


def pull_of(lanes: Lanes[Any]) -> Pull:
    if lanes.shape.loss == "logistic":
        return lambda f, up, down: torch.lerp(up, down, f.sigmoid())
    high = lanes["hinge_offset"]
    low, none = -high, torch.zeros_like(high)
    return lambda f, up, down: torch.where(f < high, up, none).add_(torch.where(f > low, down, none))


def loss_of(lanes: Lanes[Any], f: Tensor, chances: Tensor) -> Tensor:
    """The mean loss of the outputs f (l n) at these chances of +1 (l n); (l,)."""
    if lanes.shape.loss == "logistic":
        lost = functional.softplus(f) - chances * f
    else:
        edge = lanes.column("hinge_offset", 1)
        lost = chances * (edge - f).relu() + (1 - chances) * (edge + f).relu()
    return lost.mean(dim=1)
