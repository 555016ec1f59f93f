"""Layers of many networks at once, for writing architectures as plain functions.

The networks of a pack are computed as one network. The lanes of images are folded into channels, so that a convolution
with one group per lane, a batch norm over all channels and a pooling process all lanes at once. Dense layers are
batched matrix products. Axes: images are (b, l·c, h, w), vectors are (l, b, d).

An architecture is a function of `Layers` and images. Called with a `Declaration`, which has only sizes, it declares its
weights; called with a pack's state, it computes.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images.network import Weight

STARTS = ("he", "lecun", "torch")


class Layers:
    """The layers of one forward pass of a pack's networks, which record hidden activations."""

    def __init__(
        self,
        state: Mapping[str, Tensor],
        lanes: int,
        *,
        training: bool = False,
        watch: bool = False,
        start: str = "he",
        ntk: bool = False,
        channels_last: bool = False,
    ) -> None:
        self.lanes = lanes
        self.hidden: dict[str, Tensor] = {}
        """Activations of hidden layers, lane first; empty without `watch`."""
        self.buffers: dict[str, Tensor] = {}
        """Running statistics after this pass, in training mode."""
        self._state = state
        self._training = training
        self._watch = watch
        self._start = start
        self._ntk = ntk
        self._format = torch.channels_last if channels_last else torch.contiguous_format

    def folded(self, x: Tensor) -> Tensor:
        """Images (l b c h w), or (b c h w) for all lanes, as (b, l·c, h, w)."""
        if x.dim() == 4:
            return x.repeat(1, self.lanes, 1, 1).contiguous(memory_format=self._format)
        if self.lanes == 1:
            return x.squeeze(0).contiguous(memory_format=self._format)
        return x.transpose(0, 1).flatten(1, 2)

    def unfolded(self, x: Tensor) -> Tensor:
        """Images (b, l·c, h, w) as (l b c h w)."""
        return x.reshape(len(x), self.lanes, -1, *x.shape[2:]).transpose(0, 1)

    def vectors(self, x: Tensor) -> Tensor:
        """Images (b, l·c, h, w) as vectors (l, b, c·h·w)."""
        return self.unfolded(x).flatten(2)

    def dense(self, name: str, x: Tensor, outputs: int, gain: float | None = None) -> Tensor:
        """Vectors (l b d), or (b d) for all lanes, times weights (l d m), plus biases; (l b m).

        The input axis of the weights comes first: gradients then have the layout of the weights, which makes a step a
        tenth faster.
        """
        w, factor = self._kernel(name, (x.shape[-1], outputs), x.shape[-1], gain)
        bias = self._bias(name, outputs, x.shape[-1])[:, None]
        w = w if factor == 1 else w * factor
        if x.dim() == 2:
            return torch.matmul(x, w) + bias
        return torch.baddbmm(bias, x, w)

    def conv(
        self,
        name: str,
        x: Tensor,
        channels: int,
        stride: int = 1,
        padding: int = 1,
        bias: bool = False,
        gain: float | None = None,
    ) -> Tensor:
        """A convolution with kernels of 3×3 pixels."""
        inputs = x.shape[1] // self.lanes
        w, factor = self._kernel(name, (channels, inputs, 3, 3), inputs * 9, gain)
        b = self._bias(name, channels, inputs * 9).flatten() if bias else None
        w = (w if factor == 1 else w * factor).flatten(0, 1)
        return self._seen(functional.conv2d(x, w, b, stride, padding, groups=self.lanes))

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Batch norm, with the batch's statistics in training, which update the running ones; else with those."""
        channels = (x.shape[1] // self.lanes,)
        scale = self._weight(f"{name}.weight", Weight(channels, constant=1.0))
        bias = self._weight(f"{name}.bias", Weight(channels))
        mean = self._weight(f"{name}.running_mean", Weight(channels, trained=False)).flatten()
        variance = self._weight(f"{name}.running_var", Weight(channels, constant=1.0, trained=False)).flatten()
        if self._training:
            mean, variance = mean.clone(), variance.clone()  # torch updates them in place
            self.buffers[f"{name}.running_mean"] = mean.view(self.lanes, -1)
            self.buffers[f"{name}.running_var"] = variance.view(self.lanes, -1)
        return functional.batch_norm(x, mean, variance, scale.flatten(), bias.flatten(), self._training)

    def active(self, name: str, x: Tensor, reused: bool = False, pool: int = 1) -> Tensor:
        """ReLU, whose output is recorded as a hidden activation, then a max pool over squares of `pool` pixels.

        It overwrites x, unless x is `reused`.
        """
        if pool > 1:
            if self._watch:
                self.hidden[name] = self.unfolded(x.relu())
            return functional.max_pool2d(x, pool).relu_()  # the same in this order, with less work
        x = x.relu() if reused else x.relu_()
        if self._watch:
            self.hidden[name] = x if x.dim() == 3 else self.unfolded(x)
        return x

    def mish(self, name: str, x: Tensor) -> Tensor:
        """Mish, x·tanh(log(1 + exp x)), of images; its output is recorded as a hidden activation."""
        x = functional.mish(x)
        if self._watch:
            self.hidden[name] = self.unfolded(x)
        return x

    def _kernel(self, name: str, size: tuple[int, ...], fan_in: int, gain: float | None) -> tuple[Tensor, float]:
        """The weights and the factor to multiply them with; in NTK parametrization, weights start with variance 1."""
        gain = gain if gain is not None else math.sqrt(2) if self._start == "he" else 1.0
        if self._start == "torch":
            gain = 1 / math.sqrt(3)
        width = gain / math.sqrt(fan_in)
        made = Weight(size, deviation=1.0 if self._ntk else width, uniform=self._start == "torch")
        return self._weight(f"{name}.weight", made), width if self._ntk else 1.0

    def _bias(self, name: str, outputs: int, fan_in: int) -> Tensor:
        if self._start != "torch":
            return self._weight(f"{name}.bias", Weight((outputs,)))
        return self._weight(f"{name}.bias", Weight((outputs,), deviation=1 / math.sqrt(3 * fan_in), uniform=True))

    def _weight(self, name: str, declared: Weight) -> Tensor:
        return self._state[name]

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

    def _kernel(self, name: str, size: tuple[int, ...], fan_in: int, gain: float | None) -> tuple[Tensor, float]:
        w, self.factors[name] = super()._kernel(name, size, fan_in, gain)
        return w, self.factors[name]

    def _weight(self, name: str, declared: Weight) -> Tensor:
        assert name not in self.weights, f"two weights have the name {name}"
        self.weights[name] = declared
        return torch.empty(1, *declared.size, device="meta")

    def _seen(self, x: Tensor) -> Tensor:
        self.largest = max(self.largest, x[0].numel())
        return x
