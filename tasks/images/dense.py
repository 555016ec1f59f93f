"""Fully connected networks with hand-written steps of gradient descent, which may leave out pixels that are always 0.

A step is a few matrix products, so all other work costs as much: recording operations, writing and reading gradients.
Here each product adds its gradient directly to the weights. The derivatives with respect to the weights of pixels that
are 0 in all training images are 0, so only weight decay changes these weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from mislabel.tasks.images.layered import LayeredNetwork
from mislabel.tasks.images.network import Descent, column

_FIRST = "layer1.weight"


class DenseNetwork(LayeredNetwork):
    @torch.no_grad()
    def step(self, state: Mapping[str, Tensor], x: Tensor, loss: Callable[[Tensor], Tensor], descent: Descent) -> None:
        """Update the weights in place, like `gradients` and `Descent.update` together; inputs are (l b d).

        Inputs may have fewer features than the network if the first layer's weights in this state have fewer, too.
        """
        layers = [name.removesuffix(".weight") for name in self.weights if name.endswith(".weight")]
        inputs = [x]
        for name in layers:
            bias, w = state[f"{name}.bias"][:, None], state[f"{name}.weight"]
            h = torch.baddbmm(bias, inputs[-1], w, alpha=self._factors[name])
            inputs.append(h if name == layers[-1] else h.relu_())
        outputs = inputs.pop().requires_grad_()
        with torch.enable_grad():
            (g,) = torch.autograd.grad(loss(outputs).sum(), outputs)  # l b k
        if descent.velocity is None:
            g = g * -descent.rate[:, None, None]
        for name, h in zip(reversed(layers), reversed(inputs), strict=True):
            factor, after = self._factors[name], g
            if h is not x:  # uses the weights before the step
                g = torch.bmm(g, state[f"{name}.weight"].mT)
                g = torch.ops.aten.threshold_backward(g if factor == 1 else g.mul_(factor), h, 0)
            _decayed(descent, state, f"{name}.weight").baddbmm_(h.mT, after, alpha=factor)
            _decayed(descent, state, f"{name}.bias").add_(after.sum(dim=1))
            if descent.velocity is not None:
                for own in (f"{name}.weight", f"{name}.bias"):
                    state[own].addcmul_(descent.velocity[own], column(descent.rate, state[own]), value=-1)


def _decayed(descent: Descent, state: Mapping[str, Tensor], name: str) -> Tensor:
    """The tensor to which a step adds its gradient: the velocity, or the weights, with gradients times -rate."""
    w, decay = state[name], descent.decay
    if descent.velocity is None:
        return w if decay is None else w.mul_(1 - column(descent.rate * decay, w))
    assert descent.momentum is not None, "a velocity needs a momentum"
    v = descent.velocity[name].mul_(column(descent.momentum, w))
    return v if decay is None else v.addcmul_(w, column(decay, w))


class NonzeroPixels:
    """Images as vectors of the pixels that are not 0 in some image."""

    def __init__(self, x: Tensor) -> None:  # n c h w
        flat = x.flatten(1)
        nonzero = flat.amax(dim=0) > 0
        self.index, self.zero_index = nonzero.nonzero()[:, 0], (~nonzero).nonzero()[:, 0]
        self.x = flat[:, self.index][:, None, None] if len(self.zero_index) else flat[:, None, None]  # n 1 1 d


class NonzeroTraining:
    """A state in which the first layer and its velocity have only the weights of nonzero pixels, during training."""

    def __init__(self, pixels: NonzeroPixels, state: Mapping[str, Tensor]) -> None:
        self.pixels, self._whole = pixels, state
        self._names = [name for name in state if name.endswith(_FIRST)] if len(pixels.zero_index) else []
        self.state = {**state, **{name: state[name].index_select(1, pixels.index) for name in self._names}}
        self._zero: dict[str, Tensor] = {}

    def decay_zero_pixels(self, descent: Descent) -> None:
        """Take one step of weight decay on the weights of pixels that are always 0."""
        if not self._names:
            return
        if not self._zero:
            self._zero = {name: self._whole[name].index_select(1, self.pixels.zero_index) for name in self._names}
        w = self._zero[_FIRST]
        velocities = [self._zero[name] for name in self._names if name != _FIRST]
        velocity = {_FIRST: velocities[0]} if velocities else None
        replace(descent, velocity=velocity).update({_FIRST: w}, {_FIRST: torch.zeros_like(w)})

    def write_back(self) -> None:
        """Copy the trained weights into the whole state."""
        for name in self._names:
            self._whole[name].index_copy_(1, self.pixels.index, self.state[name])
            if self._zero:
                self._whole[name].index_copy_(1, self.pixels.zero_index, self._zero[name])
