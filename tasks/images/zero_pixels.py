"""Train fully connected networks without the pixels that are 0 in all training images.

The derivatives with respect to the weights of these pixels are 0, so only weight decay changes these weights.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mislabel.tasks.images.derivatives import descend

_FIRST = "layer1.weight"


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
        self._pixels, self._whole = pixels, state
        self._names = [name for name in state if name.endswith(_FIRST)] if len(pixels.zero_index) else []
        self.state = {**state, **{name: state[name].index_select(1, pixels.index) for name in self._names}}
        self._zero: dict[str, Tensor] = {}

    def decay_zero_pixels(self, rate: Tensor, decay: Tensor, momentum: Tensor) -> None:
        """Take one step of weight decay on the weights of pixels that are always 0."""
        if not self._names:
            return
        if not self._zero:
            self._zero = {name: self._whole[name].index_select(1, self._pixels.zero_index) for name in self._names}
        w = self._zero[_FIRST]
        velocities = [self._zero[name] for name in self._names if name != _FIRST]
        velocity = {_FIRST: velocities[0]} if velocities else None
        descend({_FIRST: w}, {_FIRST: torch.zeros_like(w)}, rate, decay, momentum, velocity)

    def write_back(self) -> None:
        """Copy the trained weights into the whole state."""
        for name in self._names:
            self._whole[name].index_copy_(1, self._pixels.index, self.state[name])
            if self._zero:
                self._whole[name].index_copy_(1, self._pixels.zero_index, self._zero[name])
