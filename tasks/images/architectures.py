"""The papers' networks: fully connected ones, a small CNN, ResNet-9, ResNet-20, and WideResNets without batch norm.

Each is a function of `Layers` and images (l b c h w) that returns the outputs (l b k). `KINDS` says what `depth` and
`width` mean for each. With 0 outputs, ResNets return the features (l b m) before the last layer.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.layers import Layers

Architecture = Callable[[Layers, Tensor, int, int, int], Tensor]
"""From layers, images, depth, width and number of outputs to the outputs."""


@dataclass(frozen=True)
class Kind:
    build: Architecture
    depth: int
    width: int
    """Depth and width of the papers, used if a run has 0."""
    help: str
    batch_norm: bool = False


def fully_connected(net: Layers, x: Tensor, depth: int, width: int, outputs: int) -> Tensor:
    h = x.flatten(-3)  # l b d
    for i in range(1, depth + 1):
        h = net.active(f"hidden{i}", net.dense(f"layer{i}", h, width))
    return net.dense("output", h, outputs, gain=1)


def cnn(net: Layers, x: Tensor, depth: int, width: int, outputs: int) -> Tensor:
    """The CNN of clean-priority learning: two 3×3 convolutions, a max pool, two dense layers; widths 32, 64, 64, 10."""
    h = net.folded(x)
    for i in range(1, depth + 1):
        channels = width if i == 1 else 2 * width
        pool = 2 if i == depth else 1
        h = net.active(f"hidden{i}", net.conv(f"conv{i}", h, channels, padding=0, bias=True), pool=pool)
    h = net.active(f"hidden{depth + 1}", net.dense("dense", net.vectors(h), 2 * width))
    return net.dense("output", h, outputs, gain=1)


def resnet9(net: Layers, x: Tensor, depth: int, width: int, outputs: int) -> Tensor:
    """The ResNet-9 that clean-priority learning refers to: eight convolutions, batch norm and Mish, a dense layer.

    Images of 32×32 become 2×2 before the last layer, as there. Smaller images are pooled fewer times.
    """

    def block(name: str, h: Tensor, channels: int, pool: int = 1) -> Tensor:
        h = net.norm(f"{name}.norm", net.conv(f"{name}.conv", h, channels, bias=True))
        return _pooled(net.mish(name, h), pool)

    def residual(name: str, h: Tensor, channels: int) -> Tensor:
        for i in range(1, depth + 1):
            h = h + block(f"{name}.{i}.2", block(f"{name}.{i}.1", h, channels), channels)
        return h

    h = block("conv2", block("conv1", net.folded(x), width), 2 * width, pool=2)
    h = residual("res1", h, 2 * width)
    h = block("conv4", block("conv3", h, 4 * width, pool=2), 4 * width, pool=2)
    h = residual("res2", h, 4 * width)
    features = net.vectors(_pooled(h, 2))
    return net.dense("output", features, outputs, gain=1) if outputs else features


def _pooled(h: Tensor, pool: int) -> Tensor:
    return functional.max_pool2d(h, pool) if 1 < pool <= min(h.shape[2:]) else h


def resnet_cifar(net: Layers, x: Tensor, depth: int, width: int, outputs: int) -> Tensor:
    """The ResNet of He et al. for CIFAR-10, with 6·depth + 2 layers and shortcuts without weights."""

    def block(name: str, h: Tensor, channels: int, stride: int) -> Tensor:
        inner = net.norm(f"{name}.norm1", net.conv(f"{name}.conv1", h, channels, stride=stride))
        inner = net.conv(f"{name}.conv2", net.active(f"{name}.inner", inner), channels)
        return net.active(name, net.norm(f"{name}.norm2", inner) + _widened(net, h, channels, stride))

    h = net.active("stem", net.norm("stem.norm", net.conv("stem.conv", net.folded(x), width)))
    for stage in range(3):
        for i in range(1, depth + 1):
            stride = 2 if stage and i == 1 else 1
            h = block(f"stage{stage + 1}.{i}", h, width * 2**stage, stride)
    features = net.vectors(functional.adaptive_avg_pool2d(h, 1))
    return net.dense("output", features, outputs) if outputs else features


def _widened(net: Layers, h: Tensor, channels: int, stride: int) -> Tensor:
    """The shortcut of a block with more channels: every second pixel, padded with channels of zeros on both sides."""
    more = channels - h.shape[1] // net.lanes
    if not more and stride == 1:
        return h
    h = h[:, :, ::stride, ::stride]
    h = h.reshape(len(h), net.lanes, -1, *h.shape[2:])  # b l c h w
    return functional.pad(h, (0, 0, 0, 0, more // 2, more - more // 2)).flatten(1, 2)


def wide_resnet(net: Layers, x: Tensor, depth: int, width: int, outputs: int) -> Tensor:
    """As usual in work on tangent kernels: no batch norm, three groups of `depth` blocks, from 16·width channels."""
    h = net.conv("stem", net.folded(x), 16, gain=1)
    for group in range(3):
        channels = 16 * width * 2**group
        for i in range(1, depth + 1):
            name, stride = f"group{group + 1}.{i}", 2 if group and i == 1 else 1
            inner = net.active(f"{name}.first", h, reused=True)
            inner = net.conv(f"{name}.conv1", inner, channels, stride=stride, gain=1)
            inner = net.conv(f"{name}.conv2", net.active(f"{name}.second", inner), channels, gain=1)
            h = inner + (h if i > 1 else net.conv(f"{name}.shortcut", h, channels, stride=stride, gain=1))
    return net.dense("output", net.vectors(functional.adaptive_avg_pool2d(h, 1)), outputs, gain=1)


KINDS: Mapping[str, Kind] = {
    "fc": Kind(fully_connected, 2, 512, "`depth` hidden layers of `width` neurons"),
    "cnn": Kind(cnn, 2, 32, "`depth` convolutions, the first with `width` channels"),
    "resnet9": Kind(resnet9, 1, 64, "`depth` blocks in each of two parts, first convolution of `width` channels", True),
    "resnet20": Kind(resnet_cifar, 3, 16, "6·`depth` + 2 layers, first convolution with `width` channels", True),
    "wide_resnet": Kind(wide_resnet, 1, 1, "`depth` blocks in each of three groups, the first of 16·`width` channels"),
}
