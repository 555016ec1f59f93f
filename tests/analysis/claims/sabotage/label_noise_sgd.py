"""Bugs in the tasks of label-noise SGD."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from mislabel.tasks.blocks import lane_rows
from mislabel.tasks.corruption import signed
from mislabel.tasks.label_noise_sgd import alignment, lazy_rich, linear, oscillation

_FIXED = 2.0


@contextmanager
def _noise(size: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Add noise of this size instead of σ."""

    def resized(lanes: Any, name: str, scale: Tensor, *shape: int, **steps: Any) -> Tensor:
        return signed(lanes, name, size(scale), *shape, **steps)

    with ExitStack() as stack:
        for module in (linear, lazy_rich):
            stack.enter_context(mock.patch.object(module, "signed", resized))
        yield


@contextmanager
def _shuffled_labels() -> Iterator[None]:
    """Train on each input with the label of another one."""
    with mock.patch.object(linear, "lane_rows", lambda x, chosen: lane_rows(x.roll(1, dims=1), chosen)):
        yield


@contextmanager
def _constant_signs() -> Iterator[None]:
    """Output weights return to the same value instead of a random one."""
    right = oscillation._signs
    with mock.patch.object(oscillation, "_signs", lambda lanes, pairs: torch.ones_like(right(lanes, pairs))):
        yield


@contextmanager
def _shuffled_target() -> Iterator[None]:
    """Train towards θ* with its coordinates in another order."""
    right = alignment._train
    with mock.patch.object(
        alignment, "_train", lambda a, w, pull, goal, steps: right(a, w, pull, goal.roll(1, dims=0), steps)
    ):
        yield


@contextmanager
def _frozen_first_layer() -> Iterator[None]:
    """Train the output weights only: the neurons are reset after each step."""
    right = alignment._train

    def train(a: Tensor, w: Tensor, pull: Tensor, goal: Tensor, steps: int) -> None:
        start = w.clone()
        for _ in range(steps):
            right(a, w, pull, goal, 1)
            w.copy_(start)

    with mock.patch.object(alignment, "_train", train):
        yield


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "noise-off": lambda: _noise(torch.zeros_like),
    "fixed-noise": lambda: _noise(lambda sigma: torch.full_like(sigma, _FIXED)),
    "shuffled-labels": _shuffled_labels,
    "constant-signs": _constant_signs,
    "shuffled-target": _shuffled_target,
    "frozen-first-layer": _frozen_first_layer,
}
