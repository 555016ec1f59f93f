"""Label noise for all tasks: labels fixed before training, redrawn at every step, smoothed, or shifted by ±σ.

All noise is a function of the run's seed, and each lane has its own rate. Symmetric and pair noise corrupt an exact
number of samples: rate·n_c of the n_c samples of a class, rounded. With the same seed, a higher rate corrupts the same
samples and further ones, so runs that differ only in their rate can be compared sample by sample. Labels are class
numbers from 0.
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

# Halves are rounded up, even if a rate such as 0.35 is slightly smaller in binary.
_HALF = 0.5 + 1e-4
# The number of inputs that instance-dependent noise processes at once.
_PART = 1024
# Standard deviation of the samples' rates around the mean rate, as in the paper on instance-dependent noise.
_SPREAD = 0.1

KINDS = ("symmetric", "pair", "instance")
CORRUPTION_HELP = (
    "how wrong labels are chosen: uniformly from the other classes (symmetric), the next class (pair), or by a random "
    "linear map of the image (instance; Xia et al. 2020)"
)


@dataclass(frozen=True, kw_only=True)
class LabelNoise:
    """Parameters of tasks with label noise: derive Params from it, in addition to Training."""

    corruption: str = shape("symmetric", choices=KINDS, help=CORRUPTION_HELP)
    noise_rate: float = knob(
        0.3,
        between=(0, 1),
        help="δ: share of each class's training labels that are wrong, rounded to whole images; fixed before training "
        "(instance: the mean over images of the probability that a label is wrong)",
    )
    relabel_rate: float = knob(
        0.0,
        between=(0, 1),
        help="at every step, each label of the batch is replaced, with this probability, by a class drawn uniformly "
        "from all k; so it changes with probability relabel_rate·(k − 1)/k; in addition to noise_rate",
    )
    smoothing: float = knob(
        0.0, between=(0, 1), help="label smoothing: this share of a label is spread over all classes"
    )


METRICS: Mapping[str, Metric] = {
    "true_label": Metric("true class of each training image", per="sample"),
    "given_label": Metric("given (possibly wrong) class of each training image", per="sample"),
}
"""Metrics that show which samples are corrupted. They are stored at snapshots."""


Inputs = Callable[[slice], Tensor]
"""Gives the inputs (b d) of a slice of the samples, on the lanes' device. A large data set is not all on the device."""


def corrupted(lanes: Lanes[Any], y: Tensor, classes: int, inputs: Inputs | None = None) -> Tensor:
    """The given labels (l n) of training samples with true labels y (n, or l n). `instance` needs the inputs."""
    # Double precision: in single precision, counts of large classes would be off by one.
    rate = torch.tensor([params.noise_rate for params in lanes.params], dtype=torch.float64, device=lanes.device)
    if lanes.shape.corruption == "instance":
        assert inputs is not None, "instance-dependent noise needs the inputs"
        return instance_dependent(lanes, y, classes, rate, inputs)
    if lanes.shape.corruption == "pair":
        return torch.where(chosen(lanes, y, classes, rate), (y + 1) % classes, y)
    return symmetric(lanes, y, classes, rate)


def symmetric(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor) -> Tensor:
    """In each class, replace a share of the labels by another class, drawn uniformly; (l n)."""
    away = 1 + lanes.integers("corruption.label", classes - 1, y.shape[-1])  # l n
    return torch.where(chosen(lanes, y, classes, rate), (y + away) % classes, y)


def chosen(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor) -> Tensor:
    """True for rate·n_c of the n_c samples of each class, rounded; (l n). A higher rate only adds samples."""
    y = y.expand(len(lanes), -1)
    # Class number plus a uniform number: sorts samples by class and shuffles each class.
    order = (lanes.uniform("corruption", y.shape[1]).double() + y).argsort(dim=1, stable=True)  # l n
    members = functional.one_hot(y, classes).sum(dim=1)  # l k
    first = members.cumsum(dim=1) - members
    label = y.gather(1, order)
    place = torch.arange(y.shape[1], device=y.device) - first.gather(1, label)  # within its class
    wanted = (rate.double()[:, None] * members + _HALF).floor()  # l k
    return torch.zeros_like(y, dtype=torch.bool).scatter(1, order, place < wanted.gather(1, label))


def instance_dependent(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor, inputs: Inputs) -> Tensor:
    """Instance-dependent noise (Xia et al. 2020, Algorithm 2); (l n).

    Each sample has its own probability of a wrong label, drawn from N(rate, 0.1²) truncated to [0, 1]. The wrong class
    is drawn from the softmax of a random linear map of the input; there is one map per true class. At rate 0 all labels
    are right.
    """
    n = y.shape[-1]
    y = y.expand(len(lanes), -1)
    chance = _truncated_normal(lanes.uniform("corruption.chance", n).double(), rate.double()[:, None])  # l n
    logits = _mapped(lanes, y, classes, inputs)
    logits.scatter_(2, y[:, :, None], -math.inf)
    until = logits.double().softmax(dim=2).cumsum(dim=2)  # l n k
    drawn = lanes.uniform("corruption.label", n).double()[:, :, None] * until[:, :, -1:]
    other = (until <= drawn).sum(dim=2).clamp(max=classes - 1)
    return torch.where(lanes.uniform("corruption", n) < chance, other, y)


def _mapped(lanes: Lanes[Any], y: Tensor, classes: int, inputs: Inputs) -> Tensor:
    """Each input mapped by the linear map of its class; (l n k)."""
    parts, maps = [], torch.empty(0)
    for first in range(0, y.shape[1], _PART):
        part = slice(first, min(first + _PART, y.shape[1]))
        x, label = inputs(part).to(lanes.dtype), y[:, part, None]  # b d, l b 1
        if not first:
            maps = lanes.normal("corruption.map", classes, x.shape[1], classes)  # l k d k
        mapped = torch.zeros(len(lanes), len(x), classes, dtype=lanes.dtype, device=lanes.device)
        for k in range(classes):
            mapped = torch.where(label == k, torch.matmul(x, maps[:, k]), mapped)
        parts.append(mapped)
    return torch.cat(parts, dim=1)


def _truncated_normal(u: Tensor, mean: Tensor) -> Tensor:
    """N(mean, 0.1²) truncated to [0, 1], from uniform numbers u; 0 where the mean is 0."""
    low, high = (torch.special.ndtr((edge - mean) / _SPREAD) for edge in (0.0, 1.0))
    drawn = mean + _SPREAD * torch.special.ndtri(low + u * (high - low))
    return torch.where(mean > 0, drawn.clamp(0, 1), 0)


def bernoulli(lanes: Lanes[Any], name: str, rate: Tensor, *size: int, steps: range) -> Tensor:
    """True with probability `rate` (l), drawn independently at every step; (l, steps, *size)."""
    return lanes.uniform(name, *size, steps=steps) < rate.reshape(-1, *[1] * (1 + len(size)))


def relabelled(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor, steps: range) -> Tensor:
    """The labels y (l, steps, ...) of these steps, each replaced with probability `rate` by a class drawn from all.

    The right class is among them: a share of rate·(classes - 1)/classes becomes wrong.
    """
    other = lanes.integers("relabel.label", classes, *y.shape[2:], steps=steps)
    return torch.where(bernoulli(lanes, "relabel", rate, *y.shape[2:], steps=steps), other, y)


def smoothed(y: Tensor, classes: int, amount: Tensor) -> Tensor:
    """Labels y (l, ...) as distributions, with a share `amount` (l) spread evenly over all classes; (l, ..., k).

    This is also the mean of labels that are replaced with probability `amount`, see `relabelled`.
    """
    share = amount.reshape(-1, *[1] * y.dim())
    return (1 - share) * functional.one_hot(y, classes).to(amount.dtype) + share / classes


def signed(lanes: Lanes[Any], name: str, sigma: Tensor, *size: int, steps: range) -> Tensor:
    """Noise for regression: +σ or -σ (l), drawn independently at every step; (l, steps, *size)."""
    return sigma.reshape(-1, *[1] * (1 + len(size))) * lanes.sign(name, *size, steps=steps)
