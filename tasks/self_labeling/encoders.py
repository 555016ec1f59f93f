"""Encoders: a backbone, whose features are what is learned for, and a head, whose projection is contrasted.

The head is MoCo v2's with a layer more, as the paper has three: dense layers as wide as the features with ReLU between
them, without batch norm, the last of 128. Projections are not normalized here. The names of a ResNet's weights are
torchvision's, so that its backbone can be loaded there: see `exported`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tasks.images.layers import Declaration, Layers
from tasks.images.modular import RESNETS, ModularNetwork
from tasks.images.network import Network, Seen
from tasks.lanes import Lanes

FEATURES = "features"
"""Where a pass keeps the features, among what it saw of hidden layers."""
HEAD = "head."
CONVOLUTIONAL = "cnn"
ENCODERS = (CONVOLUTIONAL, *RESNETS)


class _Convolutional(Network):
    """Convolutions of 3×3 with batch norm, each but the first halves the image and doubles the channels; then the mean."""

    def __init__(self, depth: int, width: int, channels: int) -> None:
        self._depth, self._width = depth, width
        declaration = Declaration("he", ntk=False)
        # Weights don't depend on the image's size.
        self._features(declaration, torch.empty(1, 2, channels, 2**depth, 2**depth, device="meta"))
        super().__init__(declaration.weights)

    def forward(self, state: Mapping[str, Tensor], x: Tensor, *, training: bool = False, watch: bool = False) -> Seen:
        net = Layers(state, len(state[next(iter(self.weights))]), training=training)
        return Seen(self._features(net, x), buffers=net.buffers)

    def _features(self, net: Layers, x: Tensor) -> Tensor:
        h = net.folded(x)
        for i in range(self._depth):
            h = net.conv(f"conv{i + 1}", h, self._width * 2**i, stride=2 if i else 1)
            h = net.norm(f"norm{i + 1}", h).relu_()
        return net.vectors(functional.adaptive_avg_pool2d(h, 1))


class Encoder(Network):
    """A pass gives the projection as outputs (l b d), and the features (l b m) among what is seen on the way."""

    def __init__(self, backbone: Network, features: int, layers: int, width: int, dim: int) -> None:
        self.backbone, self.features, self.dim = backbone, features, dim
        self._sizes = (*[width or features] * (layers - 1), dim)
        declaration = Declaration("torch", ntk=False)
        self._projected(declaration, torch.empty(1, 2, features, device="meta"))
        super().__init__({**backbone.weights, **backbone.buffers, **declaration.weights})

    def forward(self, state: Mapping[str, Tensor], x: Tensor, *, training: bool = False, watch: bool = False) -> Seen:
        seen = self.backbone.forward(state, x, training=training, watch=watch)
        net = Layers(state, len(seen.outputs), training=training, start="torch")
        return Seen(self._projected(net, seen.outputs), {**seen.hidden, FEATURES: seen.outputs}, seen.buffers)

    def said(self, state: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Features of images (b c h w), or of each lane's own (l b c h w), in evaluation; (l b m)."""
        return self.backbone.forward(state, x).outputs

    def _projected(self, net: Layers, h: Tensor) -> Tensor:
        for i, size in enumerate(self._sizes):
            h = net.dense(f"{HEAD}{i + 1}", h.relu() if i else h, size)
        return h


def encoder(shape: Any, channels: int) -> Encoder:
    """The encoder that a pack's shape names, for images of so many channels."""
    p = shape
    return _built(p.network, p.depth, p.width, p.stem == "small", channels, p.head_layers, p.head_width, p.embedding)


@lru_cache(maxsize=32)
def _built(
    kind: str, depth: int, width: int, small: bool, channels: int, layers: int, head_width: int, dim: int
) -> Encoder:
    if kind == CONVOLUTIONAL:
        return Encoder(_Convolutional(depth, width, channels), width * 2 ** (depth - 1), layers, head_width, dim)
    backbone = ModularNetwork(kind, channels, outputs=0, small=small)
    return Encoder(backbone, 2048 if kind == "resnet50" else 512, layers, head_width, dim)


def exported(lanes: Lanes[Any], state: Mapping[str, Tensor], lane: int, channels: int = 3) -> dict[str, Tensor]:
    """A run's backbone, by the names and in the layout that torchvision's network of this kind loads.

    All but the last layer `fc`, which is not trained here. A ResNet with ImageNet's stem loads into torchvision's own.
    """
    backbone = encoder(lanes.shape, channels).backbone
    held = {name: state[name][lane].detach().cpu().clone() for name in (*backbone.weights, *backbone.buffers)}
    counters = {
        name.replace("running_mean", "num_batches_tracked"): torch.zeros((), dtype=torch.int64)
        for name in held
        if name.endswith("running_mean")
    }
    return held | counters
