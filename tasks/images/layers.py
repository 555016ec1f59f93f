"""Layers of many networks at once, for writing architectures as plain functions.

The networks of a pack are computed as one network. The lanes of images are folded into channels, so that a convolution
with one group per lane, a batch norm over all channels and a pooling process all lanes at once. Dense layers are
batched matrix products. Axes: images are (b, l·c, h, w), vectors are (l, b, d).

An architecture is a function of `Layers` and images. Called with a `Declaration`, which has only sizes, it declares its
weights; called with a pack's state, it computes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.network import Weight

STARTS = ("he", "lecun", "torch")


@dataclass(eq=False)
class Layers:
    """The layers of one forward pass of a pack's networks, which record hidden activations."""

    state: Mapping[str, Tensor]
    lanes: int
    training: bool = False
    watch: bool = False
    start: str = "he"
    ntk: bool = False
    memory_format: torch.memory_format = torch.contiguous_format
    hidden: dict[str, Tensor] = field(default_factory=dict)
    """Activations of hidden layers, lane first; empty without `watch`."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    """Running statistics after this pass, in training mode."""

    def folded(self, x: Tensor) -> Tensor:
        """Images (l b c h w), or (b c h w) for all lanes, as (b, l·c, h, w)."""
        if x.dim() == 4:
            return x.repeat(1, self.lanes, 1, 1).contiguous(memory_format=self.memory_format)
        if self.lanes == 1:
            return x.squeeze(0).contiguous(memory_format=self.memory_format)
        return x.transpose(0, 1).flatten(1, 2)

    def unfolded(self, x: Tensor) -> Tensor:
        """Images (b, l·c, h, w) as (l b c h w)."""
        return x.reshape(len(x), self.lanes, -1, *x.shape[2:]).transpose(0, 1)

    def vectors(self, x: Tensor) -> Tensor:
        """Images (b, l·c, h, w) as vectors (l, b, c·h·w)."""
        return self.unfolded(x).flatten(2)

    def dense(self, name: str, x: Tensor, outputs: int, gain: float = 0) -> Tensor:
        """Vectors (l b d), or (b d) for all lanes, times weights (l d m), plus biases; (l b m).

        Weights start with the standard deviation gain/√d; gain 0 is that of `start`. Their input axis comes first:
        gradients then have the layout of the weights, which makes a step a tenth faster.
        """
        w, factor = self._kernel(name, (x.shape[-1], outputs), x.shape[-1], gain)
        bias = self._bias(name, outputs, x.shape[-1])[:, None]
        w = w if factor == 1 else w * factor
        if x.dim() == 2:
            return torch.matmul(x, w) + bias
        return torch.baddbmm(bias, x, w)

    def conv(
        self, name: str, x: Tensor, outputs: int, stride: int = 1, padding: int = 1, bias: bool = False, gain: float = 0
    ) -> Tensor:
        """A convolution with kernels of 3×3 pixels; for `gain` see `dense`."""
        inputs = x.shape[1] // self.lanes
        w, factor = self._kernel(name, (outputs, inputs, 3, 3), inputs * 9, gain)
        b = self._bias(name, outputs, inputs * 9).flatten() if bias else None
        w = (w if factor == 1 else w * factor).flatten(0, 1)
        return self._seen(functional.conv2d(x, w, b, stride, padding, groups=self.lanes))

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Batch norm, with the batch's statistics in training, which update the running ones; else with those."""
        channels = (x.shape[1] // self.lanes,)
        scale = self._weight(f"{name}.weight", Weight(channels, constant=1.0))
        bias = self._weight(f"{name}.bias", Weight(channels))
        mean = self._weight(f"{name}.running_mean", Weight(channels, trained=False)).flatten()
        variance = self._weight(f"{name}.running_var", Weight(channels, constant=1.0, trained=False)).flatten()
        if self.training:
            mean, variance = mean.clone(), variance.clone()  # torch updates them in place
            self.buffers[f"{name}.running_mean"] = mean.view(self.lanes, -1)
            self.buffers[f"{name}.running_var"] = variance.view(self.lanes, -1)
        return functional.batch_norm(x, mean, variance, scale.flatten(), bias.flatten(), self.training)

    def active(self, name: str, x: Tensor, reused: bool = False, pool: int = 1) -> Tensor:
        """ReLU, whose output is recorded as a hidden activation, then a max pool over squares of `pool` pixels.

        It overwrites x, unless x is `reused`.
        """
        if pool > 1:
            if self.watch:
                self.hidden[name] = self.unfolded(x.relu())
            return functional.max_pool2d(x, pool).relu_()  # the same in this order, with less work
        x = x.relu() if reused else x.relu_()
        if self.watch:
            self.hidden[name] = x if x.dim() == 3 else self.unfolded(x)
        return x

    def mish(self, name: str, x: Tensor) -> Tensor:
        """Mish, x·tanh(log(1 + exp x)), of images; its output is recorded as a hidden activation."""
        x = functional.mish(x)
        if self.watch:
            self.hidden[name] = self.unfolded(x)
        return x

    def _kernel(self, name: str, size: tuple[int, ...], fan_in: int, gain: float) -> tuple[Tensor, float]:
        """The weights and the factor to multiply them with; in NTK parametrization, weights start with variance 1."""
        gain = gain or (math.sqrt(2) if self.start == "he" else 1.0)
        if self.start == "torch":
            gain = 1 / math.sqrt(3)
        width = gain / math.sqrt(fan_in)
        made = Weight(size, deviation=1.0 if self.ntk else width, uniform=self.start == "torch")
        return self._weight(f"{name}.weight", made), width if self.ntk else 1.0

    def _bias(self, name: str, outputs: int, fan_in: int) -> Tensor:
        if self.start != "torch":
            return self._weight(f"{name}.bias", Weight((outputs,)))
        return self._weight(f"{name}.bias", Weight((outputs,), deviation=1 / math.sqrt(3 * fan_in), uniform=True))

    def _weight(self, name: str, declared: Weight) -> Tensor:
        return self.state[name]

    def _seen(self, x: Tensor) -> Tensor:
        return x


class Declaration(Layers):
    """Records the weights that an architecture uses, with meta tensors that only have sizes."""

    def __init__(self, start: str, ntk: bool) -> None:
        super().__init__({}, 1, start=start, ntk=ntk)
        self.weights: dict[str, Weight] = {}
        self.largest = 0
        """The size of the largest activation of a convolution, per sample."""
        self.factors: dict[str, float] = {}
        """The factor on the weights of each layer."""

    def _kernel(self, name: str, size: tuple[int, ...], fan_in: int, gain: float) -> tuple[Tensor, float]:
        w, self.factors[name] = super()._kernel(name, size, fan_in, gain)
        return w, self.factors[name]

    def _weight(self, name: str, declared: Weight) -> Tensor:
        assert name not in self.weights, f"two weights have the name {name}"
        self.weights[name] = declared
        return torch.empty(1, *declared.size, device="meta")

    def _seen(self, x: Tensor) -> Tensor:
        self.largest = max(self.largest, x[0].numel())
        return x
