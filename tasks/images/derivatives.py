"""Derivatives of a pack's networks: of each lane's loss, of each sample's output, and along a direction."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from mislabel.tasks.data.torchvision_import import imported_silently
from mislabel.tasks.images.dense import DenseNetwork
from mislabel.tasks.images.network import Descent, Network, Result

Loss = Callable[[Tensor], Tensor]
"""From outputs (l b k) to a loss per lane (l)."""


def gradients(
    network: Network, state: Mapping[str, Tensor], x: Tensor, loss: Loss, *, training: bool = True
) -> tuple[dict[str, Tensor], Result]:
    """The gradient of each lane's loss with respect to its weights, by name, and the forward pass."""
    weights = {name: tensor.detach().requires_grad_() for name, tensor in network.trained(state).items()}
    with torch.enable_grad():
        seen = network.forward({**state, **weights}, x, training=training)
        # Lanes are independent, so the derivative of the sum is that of each lane.
        found = torch.autograd.grad(loss(seen.outputs).sum(), list(weights.values()))
    buffers = {name: tensor.detach() for name, tensor in seen.buffers.items()}
    return dict(zip(weights, found, strict=True)), Result(seen.outputs.detach(), buffers=buffers)


def step(
    network: Network, state: Mapping[str, Tensor], x: Tensor, loss: Loss, descent: Descent
) -> Mapping[str, Tensor]:
    """Take a step on each lane's loss, in place; returns the new buffers, for the state."""
    if isinstance(network, DenseNetwork) and x.dim() == 5:
        network.step(state, x.flatten(2), loss, descent)
        return {}
    grads, seen = gradients(network, state, x, loss)
    descent.update(network.trained(state), grads)
    return seen.buffers


def sample_gradients(
    network: Network, state: Mapping[str, Tensor], x: Tensor, of: Callable[[Tensor], Tensor] | None = None
) -> dict[str, Tensor]:
    """The gradient of each sample's output, or of the function `of` of its outputs (k), by name; (l, b, *size).

    Images are (l b c h w), or (b c h w) for all lanes. Batch norm is in evaluation mode, as it would mix samples.
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
    """Outputs and their derivative along this direction of the weights (by name, lane first); (l b k) each."""

    def outputs(weights: dict[str, Tensor]) -> Tensor:
        return network.forward({**state, **weights}, x).outputs

    imported_silently("torch._decomp.decompositions_for_jvp")  # the rules for forward mode
    weights = network.trained(state)
    outputs_at, change = torch.func.jvp(outputs, (weights,), ({name: direction[name] for name in weights},))[:2]
    return outputs_at, change


def linearized(network: Network, start: Mapping[str, Tensor], weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Outputs of the network linearized in its weights around `start`; (l b k).

    Differentiable with respect to `weights`; the gradient is that of the linearized network.
    """
    outputs_at, change = along(network, start, {name: weights[name] - start[name] for name in network.weights}, x)
    return outputs_at + change
