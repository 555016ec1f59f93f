"""Bugs in the task of XOR clusters that must contradict its claims."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from mislabel.tasks import xor_clusters
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.task import State
from mislabel.tasks.xor_clusters import Params, task

Advance = Callable[[Lanes[Params], State, int, int], State]
_ADVANCE, _LABELS, _INPUTS = task.advance, xor_clusters._labels, xor_clusters._inputs


@contextmanager
def training(advance: Advance) -> Iterator[None]:
    """Train with another function. Tasks are frozen, so the attribute is set past that."""
    object.__setattr__(task, "advance", advance)
    try:
        yield
    finally:
        object.__setattr__(task, "advance", _ADVANCE)


@contextmanager
def patched(owner: object, name: str, function: Callable[..., Any]) -> Iterator[None]:
    with mock.patch.object(owner, name, new=function):
        yield


def replaced(name: str, function: Callable[..., Any]) -> Callable[[], AbstractContextManager[None]]:
    return lambda: patched(xor_clusters, name, function)


def frozen(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    """The weights never change; what happens at each step is still noted."""
    early = int(xor_clusters._early_step(lanes).max().item())
    for step in range(start, min(stop, early) + 1):
        s = _ADVANCE(lanes, s, step, step)
    return s


def ascent(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    """Each step goes up the gradient."""
    s = _ADVANCE(lanes, s, start, start)
    for step in range(start, stop):
        down = _ADVANCE(lanes, s, step, step + 1)["c"]
        s = _ADVANCE(lanes, {**s, "c": 2 * s["c"] - down}, step + 1, step + 1)
    return s


def shuffled_labels(lanes: Lanes[Params], count: int) -> tuple[Tensor, Tensor]:
    """Labels are assigned to other points than their own."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count)).to(lanes.device)
    clean, given = _LABELS(lanes, count)
    return clean[:, order], given[:, order]


def unflipped(lanes: Lanes[Params], count: int) -> tuple[Tensor, Tensor]:
    clean, _ = _LABELS(lanes, count)
    return clean, clean


def one_sided(like: Tensor, count: int, which: range) -> Tensor:
    """Both clusters of a label have the same mean, so that a line separates the labels."""
    cluster = torch.arange(which.start, which.stop, device=like.device) * 4 // count
    return torch.eye(2, dtype=like.dtype, device=like.device)[cluster // 2]


def wide(lanes: Lanes[Params], name: str, count: int, which: range) -> Tensor:
    """The clusters have ten times their standard deviation."""
    x = _INPUTS(lanes, name, count, which)
    means = torch.zeros_like(x)
    means[:, :, :2] = xor_clusters._cluster_means(x, count, which)
    return means + 10 * (x - means)


def with_start(start: Callable[[Tensor, Lanes[Params]], Tensor]) -> Callable[[], AbstractContextManager[None]]:
    """The initial weights (l m d) are changed where they are drawn."""
    normal = Lanes.normal

    def drawn(lanes: Lanes[Any], name: str, *size: int, **how: Any) -> Tensor:
        found = normal(lanes, name, *size, **how)
        return start(found, lanes) if name == "w" else found

    return lambda: patched(Lanes, "normal", drawn)


def large(w: Tensor, lanes: Lanes[Params]) -> Tensor:
    """The scale is not divided by √(m·d)."""
    return w * math.sqrt(lanes.shape.width * lanes.shape.dim)


def same_scale(w: Tensor, lanes: Lanes[Params]) -> Tensor:
    """The parameter has no effect."""
    return w * 0.1 / lanes.column("init_scale")


def orthogonal(w: Tensor, lanes: Lanes[Params]) -> Tensor:
    """The weights of the first two inputs are almost zero."""
    return torch.cat([w[:, :, :2] * 1e-3, w[:, :, 2:]], dim=2)


SABOTAGES: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    "frozen-layer": lambda: training(frozen),
    "gradient-ascent": lambda: training(ascent),
    "shuffled-labels": replaced("_labels", shuffled_labels),
    "noise-off": replaced("_labels", unflipped),
    "one-sided-clusters": replaced("_cluster_means", one_sided),
    "wide-clusters": replaced("_inputs", wide),
    "large-start": with_start(large),
    "same-start-for-every-scale": with_start(same_scale),
    "start-orthogonal-to-means": with_start(orthogonal),
}
