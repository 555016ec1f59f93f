"""Bugs that contradict claims about clean-priority learning."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from mislabel.tasks import corruption
from mislabel.tasks.clean_priority import angles, images
from mislabel.tasks.clean_priority.segments import Segments
from mislabel.tasks.images import image_training, readout
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.task import State

_DISTINCT = 16


def _doubled_circle(lanes: Lanes[angles.Params]) -> Tensor:
    """The points go around the whole circle."""
    x, y = _CIRCLE(lanes).unbind(dim=1)
    return torch.stack([x * x - y * y, 2 * x * y], dim=1)


def _unnormalized_angles(products: Tensor) -> Tensor:
    """The square root of the squared norms is forgotten."""
    square = products.diagonal(dim1=1, dim2=2)
    return (products / (square[:, :, None] * square[:, None])).clamp(-1, 1).arccos()


def _copied_neurons(lanes: Lanes[Any], name: str, *size: int, **others: Any) -> Tensor:
    """Wide layers repeat the same few neurons."""
    if not name.startswith("w") or size[0] <= _DISTINCT:
        return _NORMAL(lanes, name, *size, **others)
    return _NORMAL(lanes, name, _DISTINCT, *size[1:]).repeat(1, size[0] // _DISTINCT, 1)


def _mixed_clusters(lanes: Lanes[angles.Params]) -> Tensor:
    """Each cluster consists of points of both."""
    points = _CLUSTERS(lanes)
    return torch.cat([points[:, ::2], points[:, 1::2]], dim=1)


_CIRCLE, _CLUSTERS, _NORMAL = angles._circle, angles._clusters, Lanes.normal
_CHOSEN, _RESIDUALS, _SIGNS, _SEGMENTS = corruption.chosen, readout.residuals, readout.residual_signs, images._segments


def _half_of_the_noise(lanes: Lanes[Any], y: Tensor, classes: int, rate: Tensor) -> Tensor:
    return _CHOSEN(lanes, y, classes, rate / 2)


@contextmanager
def _lost_signs() -> Iterator[None]:
    """Residuals are absolute values."""
    with (
        mock.patch.object(readout, "residuals", lambda *given: _RESIDUALS(*given).abs()),
        mock.patch.object(readout, "residual_signs", lambda labels: _SIGNS(labels).abs()),
    ):
        yield


@contextmanager
def _advancing(advance: Callable[..., State]) -> Iterator[None]:
    """Train with this function."""
    right = images.task.advance
    object.__setattr__(images.task, "advance", advance)
    try:
        yield
    finally:
        object.__setattr__(images.task, "advance", right)


def _stand_still(lanes: Lanes[images.Params], s: State, start: int, stop: int) -> State:
    return {**s, "step": s["step"] + stop - start}


def _training_on(labels: Callable[[Lanes[Any], Segments], Tensor]) -> Callable[..., State]:
    """Train on these labels, and measure on the real ones."""

    def advance(lanes: Lanes[images.Params], s: State, start: int, stop: int) -> State:
        found = _SEGMENTS(lanes)
        with mock.patch.object(images, "_segments", return_value=replace(found, given=labels(lanes, found))):
            return images.advance(lanes, s, start, stop)

    return advance


def _true_labels(lanes: Lanes[Any], segments: Segments) -> Tensor:
    return image_training.loaded(lanes).train_y.expand(len(lanes), -1).contiguous()


def _shuffled_labels(lanes: Lanes[Any], segments: Segments) -> Tensor:
    order = torch.randperm(segments.given.shape[1], generator=torch.Generator().manual_seed(0))
    return segments.given[:, order]


@contextmanager
def _patched(module: Any, name: str, value: Any) -> Iterator[None]:
    with mock.patch.object(module, name, value):
        yield


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "doubled-angles": lambda: _patched(angles, "_circle", _doubled_circle),
    "unnormalized": lambda: _patched(angles, "_angles", _unnormalized_angles),
    "copied-neurons": lambda: _patched(Lanes, "normal", _copied_neurons),
    "mixed-clusters": lambda: _patched(angles, "_clusters", _mixed_clusters),
    "lost-signs": _lost_signs,
    "swapped-signs": lambda: _patched(readout, "residual_signs", lambda labels: -_SIGNS(labels)),
    "half-of-the-noise": lambda: _patched(corruption, "chosen", _half_of_the_noise),
    "frozen": lambda: _advancing(_stand_still),
    "trained-on-true-labels": lambda: _advancing(_training_on(_true_labels)),
    "trained-on-shuffled-labels": lambda: _advancing(_training_on(_shuffled_labels)),
}
