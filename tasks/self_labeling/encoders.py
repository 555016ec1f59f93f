"""Encoders: a backbone, whose features are the result, and a projection head, whose output is contrasted.

The head is that of MoCo v2 with one more layer, as the paper has three: dense layers as wide as the features, with ReLU
between them and without batch norm; the last has 128 outputs. Projections are not normalized here. The names of a
ResNet's weights are torchvision's, so that its backbone can be loaded there: see `loadable`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.accelerated import accelerated
from mislabel.tasks.images.architectures import KINDS, Kind
from mislabel.tasks.images.layered import LayeredNetwork
from mislabel.tasks.images.layers import Declaration, Layers
from mislabel.tasks.images.network import Network, Result
from mislabel.tasks.images.torchvision_resnets import RESNETS, ModularNetwork

FEATURES = "features"
"""The name of the features among the hidden activations of a pass."""
HEAD = "head."
_MEAN = "running_mean"


def convolutional(net: Layers, x: Tensor, depth: int, width: int, outputs: int) -> Tensor:
    """A small network for tests and laptops: 3×3 convolutions with batch norm, then the mean over the image.

    Each convolution halves the image; each but the first doubles the channels.
    """
    h = net.folded(x)
    for i in range(depth):
        h = net.conv(f"conv{i + 1}", h, width * 2**i, stride=2)
        h = net.active(f"hidden{i + 1}", net.norm(f"norm{i + 1}", h))
    return net.vectors(functional.adaptive_avg_pool2d(h, 1))


LAYERED: Mapping[str, Kind] = {
    "convnet": Kind(convolutional, 3, 32, "`depth` convolutions, the first with `width` channels"),
    "resnet9": KINDS["resnet9"],
    "resnet20": KINDS["resnet20"],
}
ENCODERS = (*LAYERED, *RESNETS)
RESNET_FEATURES = {"resnet18": 512, "resnet34": 512, "resnet50": 2048}


class Encoder(Network):
    """A network whose outputs are the projection (l b d); the features (l b m) are among its hidden activations."""

    def __init__(self, backbone: Network, trained: Network, features: int, layers: int, width: int, dim: int) -> None:
        """`trained` is the backbone used in training, possibly with mixed precision."""
        self.backbone, self.dim = backbone, dim
        self._trained = trained
        self._sizes = (*[width or features] * (layers - 1), dim)
        declaration = Declaration("torch", ntk=False)
        self._projected(declaration, torch.empty(1, 2, features, device="meta"))
        super().__init__({**backbone.weights, **backbone.buffers, **declaration.weights})

    def forward(self, state: Mapping[str, Tensor], x: Tensor, *, training: bool = False, watch: bool = False) -> Result:
        seen = (self._trained if training else self.backbone).forward(state, x, training=training, watch=watch)
        net = Layers(state, len(seen.outputs), training=training, start="torch")
        return Result(self._projected(net, seen.outputs), {**seen.hidden, FEATURES: seen.outputs}, seen.buffers)

    def features(self, state: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Features of images (b c h w), or of each lane's images (l b c h w), in evaluation mode; (l b m)."""
        return self.backbone.forward(state, x).outputs

    def _projected(self, net: Layers, h: Tensor) -> Tensor:
        for i, size in enumerate(self._sizes):
            h = net.dense(f"{HEAD}{i + 1}", h.relu() if i else h, size)
        return h


def encoder(shape: Any, size: tuple[int, int, int]) -> Encoder:
    """The encoder that a pack's shape names, for images of size (c h w); it accepts other heights and widths too."""
    p = shape
    backbone = p.network, p.depth, p.width, p.stem == "small", size, p.autocast, p.compiled
    return _built(*backbone, p.head_layers, p.head_width, p.embedding)


@lru_cache(maxsize=32)
def _built(
    kind: str, depth: int, width: int, small: bool, size: tuple[int, int, int], autocast: str, compiled: bool,
    layers: int, head_width: int, dim: int,
) -> Encoder:  # fmt: skip
    backbone: Network
    if kind in RESNETS:
        backbone, features = ModularNetwork(kind, size[0], outputs=0, small=small), RESNET_FEATURES[kind]
    else:
        built = LAYERED[kind]
        backbone = LayeredNetwork(built, depth, width, "he", False, size, outputs=0)
        seen = torch.empty(1, 2, *size, device="meta")
        features_of = built.build(Declaration("he", ntk=False), seen, depth or built.depth, width or built.width, 0)
        features = features_of.shape[-1]
    return Encoder(backbone, accelerated(backbone, autocast, compiled), features, layers, head_width, dim)


def loadable(backbone: Network, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The backbones of all lanes, with the names and layout that torchvision's network of this kind loads.

    The last layer `fc` is missing, because it is not trained here. A ResNet with ImageNet's stem loads into
    torchvision's own.
    """
    tensors = {name: state[name].detach() for name in (*backbone.weights, *backbone.buffers)}
    counters = {
        name.replace(_MEAN, "num_batches_tracked"): torch.zeros(len(mean), dtype=torch.int64, device=mean.device)
        for name, mean in tensors.items()
        if name.endswith(_MEAN)
    }
    return tensors | counters
