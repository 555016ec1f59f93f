"""Derivatives of a pack's networks: of each lane's loss, of each sample, and along a direction."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import Tensor

from mislabel.tasks.images.dense import DenseNetwork
from mislabel.tasks.images.network import Network, Seen

Loss = Callable[[Tensor], Tensor]
"""From outputs (l b k) to a loss per lane (l)."""


def gradients(
    network: Network, state: Mapping[str, Tensor], x: Tensor, loss: Loss, *, training: bool = True
) -> tuple[dict[str, Tensor], Seen]:
    """The gradient of each lane's own loss with respect to its own weights, by name, and the pass it is of."""
    weights = {name: tensor.detach().requires_grad_() for name, tensor in network.trained(state).items()}
    with torch.enable_grad():
        seen = network.forward({**state, **weights}, x, training=training)
        # Lanes don't touch each other, so the derivative of the sum is that of each.
        found = torch.autograd.grad(loss(seen.outputs).sum(), list(weights.values()))
    buffers = {name: tensor.detach() for name, tensor in seen.buffers.items()}
    return dict(zip(weights, found, strict=True)), Seen(seen.outputs.detach(), buffers=buffers)


@torch.no_grad()
def descend(
    weights: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    rate: Tensor,
    decay: Tensor | None = None,
    momentum: Tensor | None = None,
    velocity: Mapping[str, Tensor] | None = None,
) -> None:
    """Move the weights, in place, by a step of gradient descent, as torch's SGD does.

    Rate, weight decay and momentum are each lane's own (l). Momentum needs a velocity, by the names of the weights,
    which starts at 0, is moved too, and is part of a task's state.
    """
    for name, w in weights.items():
        column, step = [-1, *[1] * (w.dim() - 1)], grads[name]
        if decay is not None:
            step = torch.addcmul(step, w, decay.reshape(column))
        if velocity is not None and momentum is not None:
            step = velocity[name].mul_(momentum.reshape(column)).add_(step)
        w.addcmul_(step, rate.reshape(column), value=-1)


def step(
    network: Network,
    state: Mapping[str, Tensor],
    x: Tensor,
    loss: Loss,
    rate: Tensor,
    decay: Tensor | None = None,
    momentum: Tensor | None = None,
    velocity: Mapping[str, Tensor] | None = None,
) -> Mapping[str, Tensor]:
    """A step on each lane's own loss, in place, see `descend`; gives buffers, which are to be put into the state."""
    if isinstance(network, DenseNetwork) and x.dim() == 5:
        network.step(state, x.flatten(2), loss, rate, decay, momentum, velocity)
        return {}
    grads, seen = gradients(network, state, x, loss)
    descend(network.trained(state), grads, rate, decay, momentum, velocity)
    return seen.buffers


def sample_gradients(
    network: Network, state: Mapping[str, Tensor], x: Tensor, of: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Tensor]:
    """The gradient of each sample's output, or of what `of` makes of its outputs (k), by name; (l, b, *size).

    Images are (l b c h w), or (b c h w) for all lanes alike. Batch norm, which would mix samples, is as in evaluation.
    """
    value = of or (lambda outputs: outputs.squeeze(0))
    buffers = {name: state[name] for name in network.buffers}

    def one(weights: dict[str, Tensor], own: dict[str, Tensor], image: Tensor) -> Tensor:
        single = {name: tensor[None] for name, tensor in {**weights, **own}.items()}
        return value(network.forward(single, image[None, None]).outputs[0, 0])

    each_sample = torch.func.vmap(torch.func.grad(one), in_dims=(None, None, 0))
    each_lane = torch.func.vmap(each_sample, in_dims=(0, 0, None if x.dim() == 4 else 0))
    with torch.enable_grad():
        found: dict[str, Tensor] = each_lane(network.trained(state), buffers, x)
    return found


def along(
    network: Network, state: Mapping[str, Tensor], direction: Mapping[str, Tensor], x: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs, and their derivative when the weights move in this direction (by name, lane first); (l b k) each."""

    def outputs(weights: dict[str, Tensor]) -> Tensor:
        return network.forward({**state, **weights}, x).outputs

    _prepare_forward_mode()
    weights = network.trained(state)
    said, change = torch.func.jvp(outputs, (weights,), ({name: direction[name] for name in weights},))[:2]
    return said, change


@cache
def _prepare_forward_mode() -> None:
    """torch compiles some rules when they are first needed, in a way that it warns of itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("torch._decomp.decompositions_for_jvp")


def linearized(network: Network, start: Mapping[str, Tensor], weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Outputs of the network that is linear in its weights, with the tangent at `start`; (l b k).

    Differentiable with respect to `weights`: their gradient is that of the linearized network.
    """
    said, change = along(network, start, {name: weights[name] - start[name] for name in network.weights}, x)
    return said + change
