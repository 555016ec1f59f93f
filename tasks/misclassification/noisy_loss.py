"""Hinge and logistic loss on labels that are replaced at random or smoothed, and the SGD step on a network's output.

A label is a probability q of +1. Noise replaces the label, and half of the replacements are right, so q is 0 or 1
without smoothing. Smoothing moves q towards 1/2. The loss of an output f is q·L(-f) + (1 - q)·L(f), where L(ξ) is
log(1 + exp ξ) or max(0, β + ξ). The *pull* on an output is the learning rate times the negative derivative of the loss.
At the kinks of the hinge loss the derivative is that of the flat side: with β = 0, a network with output 0 does not
move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.corruption import bernoulli
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.training import Training

NOISE_HELP = (
    "p: at every step, the label is replaced by a random sign with probability p; it is wrong with probability p/2"
)
LOSS_HELP = "hinge loss with offset hinge_offset, or logistic loss (cross entropy)"
SMOOTHING_HELP = "label smoothing: this share of a label is spread over +1 and −1; noise_rate in expectation"


@dataclass(frozen=True, kw_only=True)
class NoisyLoss(Training):
    """Parameters of tasks with these losses. Tasks set their own defaults."""

    loss: str = shape("hinge", choices=("hinge", "logistic"), help=LOSS_HELP)
    noise_rate: float = knob(1.0, between=(0, 1), help=NOISE_HELP)
    smoothing: float = knob(0.0, between=(0, 1), help=SMOOTHING_HELP)
    hinge_offset: float = knob(0.0, at_least=0, help="β of the hinge loss max(0, β − y·N(x)); not in the logistic loss")


Pull = Callable[[Tensor, Tensor, Tensor], Tensor]
"""The pull on an output (l,), from the largest pulls of its label up (l,) and down (l,), see `strengths`."""


def label_chances(lanes: Lanes[Any], y: Tensor, steps: range) -> Tensor:
    """The probability of +1 in the label of each step: the true labels y (l t) with noise and smoothing; (l t)."""
    flipped = bernoulli(lanes, "flip", lanes["noise_rate"] / 2, steps=steps)
    sure = (0.5 - lanes.column("smoothing", 1) / 2) * y
    return 0.5 + torch.where(flipped, -sure, sure)


def mean_chances(lanes: Lanes[Any], y: Tensor) -> Tensor:
    """The probability of +1 in the labels of points with true labels y (l n), averaged over the noise; (l n)."""
    return 0.5 + (1 - lanes.column("noise_rate", 1)) * (1 - lanes.column("smoothing", 1)) * y / 2


def strengths(lanes: Lanes[Any], chances: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """For each step, the largest pulls of its label up, and down (a negative number); (l,) each."""
    up = (chances * lanes.column("learning_rate", 1)).T.contiguous()
    return up.unbind(), (up - lanes["learning_rate"]).unbind()


def pull_of(lanes: Lanes[Any]) -> Pull:
    if lanes.shape.loss == "logistic":
        return lambda f, up, down: torch.lerp(up, down, f.sigmoid())
    high = lanes["hinge_offset"]
    low, none = -high, torch.zeros_like(high)
    return lambda f, up, down: torch.where(f < high, up, none).add_(torch.where(f > low, down, none))


def loss_of(lanes: Lanes[Any], f: Tensor, chances: Tensor) -> Tensor:
    """The mean loss of the outputs f (l n) at these probabilities of +1 (l n); (l,)."""
    if lanes.shape.loss == "logistic":
        lost = functional.softplus(f) - chances * f
    else:
        edge = lanes.column("hinge_offset", 1)
        lost = chances * (edge - f).relu() + (1 - chances) * (edge + f).relu()
    return lost.mean(dim=1)
