"""Small networks of every kind, with states, images and losses for tests."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.build_network import NetworkParams, build
from mislabel.tasks.images.derivatives import gradients
from mislabel.tasks.images.network import Descent, Network
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.training import Training

SMALL: dict[str, tuple[tuple[int, int, int], dict[str, int]]] = {
    "fc": ((1, 4, 4), {"depth": 3, "width": 7}),
    "cnn": ((1, 8, 8), {"width": 3}),
    "resnet9": ((3, 8, 8), {"width": 2}),
    "resnet20": ((3, 8, 8), {"depth": 1, "width": 4}),
    "wide_resnet": ((3, 8, 8), {}),
    "resnet18": ((1, 4, 4), {}),
}
WITHOUT_BATCH_NORM = ("fc", "cnn", "wide_resnet")


@dataclass(frozen=True, kw_only=True)
class Params(Training, NetworkParams):
    pass


def lanes_of(kind: str) -> int:
    """Only some of torchvision's ResNets, which can't be made small."""
    return 2 if kind == "resnet18" else 3


def small(kind: str, count: int | None = None, **more: str) -> tuple[Network, Lanes[Params], dict[str, Tensor]]:
    """A small network of this kind, lanes with different scales, and their state."""
    size, sizes = SMALL[kind]
    count = count or lanes_of(kind)
    scales = [1.0 + lane / 4 for lane in range(count)]
    params = [Params(network=kind, precision="float64", init_scale=scale, **sizes, **more) for scale in scales]  # type: ignore[arg-type]
    lanes = Lanes(params, range(count))
    network = build(lanes.shape, size, outputs=4)
    return network, lanes, network.init(lanes)


def batch(kind: str, *counts: int) -> Tensor:
    return torch.randn(*counts, *SMALL[kind][0], dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def some_direction(network: Network, state: dict[str, Tensor]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        name: torch.randn(w.shape, dtype=w.dtype, generator=generator) for name, w in network.trained(state).items()
    }


def loss(outputs: Tensor) -> Tensor:
    """Cross entropy; the labels of a batch are 0, 1, 2, 3, 0, …"""
    y = (torch.arange(outputs.shape[1]) % 4).expand(outputs.shape[:2])
    return functional.cross_entropy(outputs.mT, y, reduction="none").mean(dim=1)


def trained(network: Network, state: dict[str, Tensor], x: Tensor, rate: Tensor, steps: int = 2) -> dict[str, Tensor]:
    state = {name: tensor.clone() for name, tensor in state.items()}
    for _ in range(steps):
        grads, seen = gradients(network, state, x, loss)
        Descent(rate).update(network.trained(state), grads)
        state |= seen.buffers
    return state
