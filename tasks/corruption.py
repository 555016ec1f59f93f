"""Wrong labels, for all tasks: of fixed samples, fresh at every step, smoothed, or off by ±σ.

Everything is a function of the run's seed, and each lane has its own rate. Symmetric and
pair flips take exact counts: of the n_c samples of a class, rate·n_c rounded to whole samples. With one seed, a higher
rate corrupts the same samples and further ones, so that runs that differ in rate alone can be compared sample by
sample. Labels are class numbers from 0.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric

# A half is rounded up, also where a rate such as 0.35 is a little less in binary.
_HALF = 0.5 + 1e-4
# Inputs that instance-dependent noise looks at together.
_PART = 1024
# Spread of the samples' own rates around the mean rate, as in the paper on instance-dependent noise.
_SPREAD = 0.1


@dataclass(frozen=True, kw_only=True)
class LabelNoise:
    """Parameters of tasks with wrong labels: derive Params from it, beside Training."""

    corruption: str = shape(
        "symmetric",
        choices=("symmetric", "pair", "instance"),
        help="wrong labels are any other class, the next class, or a class that depends on the image",
    )
    noise_rate: float = knob(0.3, between=(0, 1), help="share of each class's training labels that are wrong")
    relabel_rate: float = knob(0.0, between=(0, 1), help="chance that a step's label is replaced by a random one")
    smoothing: float = knob(0.0, between=(0, 1), help="share of a label that is spread evenly over all classes")


METRICS: Mapping[str, Metric] = {
    "true_label": Metric("class of each training sample", per="sample"),
    "given_label": Metric("class that each training sample is labelled as", per="sample"),
}
"""Which samples are corrupted, for tasks to measure: kept where a run asks for snapshots."""


Inputs = Callable[[slice], Tensor]
"""From a part of the samples to their inputs (b d), on the lanes' device: a large data set's are not all there."""


def corrupted(lanes: Lanes[Any], y: Tensor, classes: int, inputs: Inputs | None = None) -> Tensor:
    """The labels that training samples of true labels y (n, or l n) are given; (l n). `instance` needs their inputs."""
    # As the runs say it: in single precision, counts of large classes would be off by one.
    rate = torch.tensor([params.noise_rate for params in lanes.params], dtype=torch.float64, device=lanes.device)
    if lanes.shape.corruption == "instance":
        assert inputs is not None, "give the inputs that noise depends on"
        return by_instance(lanes, y, classes, rate, inputs)
    return _FIXED[lanes.shape.corruption](lanes, y, classes, rate)


def symmetric(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor, name: str = "corruption") -> Tensor:
    """In each class, a share of labels become another class, all others alike; (l n)."""
    away = 1 + lanes.integers(f"{name}.label", classes - 1, y.shape[-1])  # l n
    return torch.where(chosen(lanes, y, classes, rate, name), (y + away) % classes, y)


def pair(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor, name: str = "corruption") -> Tensor:
    """In each class, a share of labels become the next class, and the last one's the first; (l n)."""
    return torch.where(chosen(lanes, y, classes, rate, name), (y + 1) % classes, y)


_FIXED: Mapping[str, Callable[[Lanes[Any], Tensor, int, Tensor], Tensor]] = {"symmetric": symmetric, "pair": pair}


def chosen(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor, name: str = "corruption") -> Tensor:
    """True for rate·n_c of the n_c samples of each class, rounded; the same ones and more at a higher rate; (l n)."""
    y = y.expand(len(lanes), -1)
    # The whole part sorts samples by class, the rest shuffles each class.
    order = (lanes.uniform(name, y.shape[1]).double() + y).argsort(dim=1, stable=True)  # l n
    members = functional.one_hot(y, classes).sum(dim=1)  # l k
    first = members.cumsum(dim=1) - members
    label = y.gather(1, order)
    place = torch.arange(y.shape[1], device=y.device) - first.gather(1, label)  # within its class
    wanted = (rate.double()[:, None] * members + _HALF).floor()  # l k
    return torch.zeros_like(y, dtype=torch.bool).scatter(1, order, place < wanted.gather(1, label))


def by_instance(
    lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor, inputs: Inputs, name: str = "corruption"
) -> Tensor:
    """Instance-dependent noise (Xia et al. 2020, Algorithm 2); (l n).

    Each sample has a chance of its own to be wrong, N(rate, 0.1²) cut to [0, 1], and which class it then becomes is
    drawn by the softmax of a random linear map of its input, one map per class. At rate 0 nothing is wrong.
    """
    n = y.shape[-1]
    y = y.expand(len(lanes), -1)
    chance = _cut_normal(lanes.uniform(f"{name}.chance", n).double(), rate.double()[:, None])  # l n
    logits = _mapped(lanes, y, classes, inputs, f"{name}.map")
    logits.scatter_(2, y[:, :, None], -math.inf)
    until = logits.double().softmax(dim=2).cumsum(dim=2)  # l n k
    drawn = lanes.uniform(f"{name}.label", n).double()[:, :, None] * until[:, :, -1:]
    other = (until <= drawn).sum(dim=2).clamp(max=classes - 1)
    wrong = lanes.uniform(name, n) < chance
    return torch.where(wrong, other, y)


def _mapped(lanes: Lanes[Any], y: Tensor, classes: int, inputs: Inputs, name: str) -> Tensor:
    """Each input, by the linear map of its class; (l n k)."""
    parts, maps = [], torch.empty(0)
    for first in range(0, y.shape[1], _PART):
        part = slice(first, min(first + _PART, y.shape[1]))
        x, of = inputs(part).to(lanes.dtype), y[:, part, None]  # b d, l b 1
        if not first:
            maps = lanes.normal(name, classes, x.shape[1], classes)  # l k d k
        said = torch.zeros(len(lanes), len(x), classes, dtype=lanes.dtype, device=lanes.device)
        for k in range(classes):
            said = torch.where(of == k, torch.matmul(x, maps[:, k]), said)
        parts.append(said)
    return torch.cat(parts, dim=1)


def _cut_normal(u: Tensor, mean: Tensor) -> Tensor:
    """N(mean, 0.1²) cut to [0, 1], from uniform numbers; 0 where the mean is 0."""
    low, high = (torch.special.ndtr((edge - mean) / _SPREAD) for edge in (0.0, 1.0))
    drawn = mean + _SPREAD * torch.special.ndtri(low + u * (high - low))
    return torch.where(mean > 0, drawn.clamp(0, 1), 0)


def happens(lanes: Lanes[Any], name: str, rate: Tensor, *size: int, steps: range) -> Tensor:
    """True with a chance of `rate` (l), drawn anew at every step; (l, steps, *size)."""
    return lanes.uniform(name, *size, steps=steps) < rate.reshape(-1, *[1] * (1 + len(size)))


def relabelled(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor, steps: range, name: str = "relabel") -> Tensor:
    """Labels of these steps' samples y (l, steps, ...), each replaced with a chance of `rate` by one of all classes.

    The right one is among them: a share of rate·(classes - 1)/classes are wrong.
    """
    size = y.shape[2:]
    other = lanes.integers(f"{name}.label", classes, *size, steps=steps)
    return torch.where(happens(lanes, name, rate, *size, steps=steps), other, y)


def smoothed(y: Tensor, classes: int, amount: Tensor) -> Tensor:
    """Labels y (l, ...) as distributions: all on the class, but for a share that is spread over all; (l, ..., k).

    This is also the mean of labels that are replaced with a chance of `amount`, see `relabelled`.
    """
    share = amount.reshape(-1, *[1] * y.dim())
    return (1 - share) * functional.one_hot(y, classes).to(amount.dtype) + share / classes


def signed(lanes: Lanes[Any], name: str, sigma: Tensor, *size: int, steps: range) -> Tensor:
    """Noise for regression: +σ or -σ (l), drawn anew at every step; (l, steps, *size)."""
    return sigma.reshape(-1, *[1] * (1 + len(size))) * lanes.sign(name, *size, steps=steps)
