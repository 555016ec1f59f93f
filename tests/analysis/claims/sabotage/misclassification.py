"""Bugs in the tasks of the paper on misclassification: noise that is not applied, reversed steps, frozen layers."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification import (
    basis,
    gaussian,
    homogeneous,
    hypercube,
    images,
    network,
    neuron,
    noisy_loss,
    two_layers,
)


@contextmanager
def _no_noise_hypercube() -> Iterator[None]:
    """Labels are smoothed, but never replaced."""

    def chances(lanes: Lanes[Any], y: Tensor, steps: range) -> Tensor:
        return 0.5 + (0.5 - lanes.column("smoothing", 1) / 2) * y

    with mock.patch.object(hypercube, "label_chances", chances):
        yield


def _reversed(module: Any) -> Callable[[], AbstractContextManager[None]]:
    """Steps go up the gradient."""

    def pull_of(lanes: Lanes[Any]) -> noisy_loss.Pull:
        pull = noisy_loss.pull_of(lanes)
        return lambda f, up, down: -pull(f, up, down)

    @contextmanager
    def patched() -> Iterator[None]:
        with mock.patch.object(module, "pull_of", pull_of):
            yield

    return patched


class _FrozenSgd(two_layers.Sgd):
    def train(self, x: Tensor, up: tuple[Tensor, ...], down: tuple[Tensor, ...]) -> None:
        kept = self._w.clone()
        super().train(x, up, down)
        self._w.copy_(kept)


class _FrozenDeepSgd(homogeneous.DeepSgd):
    def train(self, x: Tensor, up: tuple[Tensor, ...], down: tuple[Tensor, ...]) -> None:
        kept = self._s["w"].clone()
        super().train(x, up, down)
        self._s["w"].copy_(kept)


@contextmanager
def _frozen_network() -> Iterator[None]:
    """The first layer is not trained."""
    with mock.patch.object(network, "Sgd", _FrozenSgd), mock.patch.object(network, "DeepSgd", _FrozenDeepSgd):
        yield


@contextmanager
def _no_biases_network() -> Iterator[None]:
    """Inputs end with 0 instead of 1, so that hidden biases have no effect."""

    def inputs(lanes: Lanes[Any], name: str, steps: range, ending: bool) -> Tensor:
        x = gaussian.gaussian_inputs(lanes, name, steps, ending)
        x[:, :, lanes.shape.dim :] = 0
        return x

    with mock.patch.object(network, "gaussian_inputs", inputs):
        yield


@contextmanager
def _shifted_activation() -> Iterator[None]:
    """The activation is ReLU(z + 1), which is not homogeneous."""

    def activations(s: Any, x: Tensor) -> list[Tensor]:
        found = [x]
        for layer in homogeneous._matrices(s):
            found.append((torch.bmm(found[-1], layer) + 1).relu())
        return found

    with mock.patch.object(homogeneous, "_activations", activations):
        yield


@contextmanager
def _large_steps_basis() -> Iterator[None]:
    """Steps are 400 times as large as the learning rate says."""

    def pull_of(lanes: Lanes[Any]) -> noisy_loss.Pull:
        pull = noisy_loss.pull_of(lanes)
        return lambda f, up, down: 400 * pull(f, up, down)

    with mock.patch.object(basis, "pull_of", pull_of):
        yield


@contextmanager
def _right_labels_images() -> Iterator[None]:
    """Labels are never replaced."""

    def relabelled(lanes: Lanes[Any], y: Tensor, *given: Any) -> Tensor:
        return y

    with mock.patch.object(images, "relabelled", relabelled):
        yield


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "no-noise-hypercube": _no_noise_hypercube,
    "reversed-neuron": _reversed(neuron),
    "reversed-basis": _reversed(basis),
    "large-steps-basis": _large_steps_basis,
    "frozen-network": _frozen_network,
    "no-biases-network": _no_biases_network,
    "shifted-activation": _shifted_activation,
    "right-labels-images": _right_labels_images,
}
