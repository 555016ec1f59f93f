"""Training without pixels that are dark in all training images, for fully connected networks.

Derivatives with respect to these pixels' weights are 0, so that the weights stay as they are, but for weight decay.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from mislabel.tasks.images.derivatives import descend

_FIRST = "layer1.weight"


class LitPixels:
    """Images, as a vector of the pixels that are lit in some image."""

    def __init__(self, x: Tensor) -> None:  # n c h w
        flat = x.flatten(1)
        lit = flat.amax(dim=0) > 0
        self.places, self.dark = lit.nonzero()[:, 0], (~lit).nonzero()[:, 0]
        self.x = flat[:, self.places][:, None, None] if len(self.dark) else flat[:, None, None]  # n 1 1 d


class LitTraining:
    """A state whose first layer, and its velocity, have the weights of lit pixels alone, as long as it trains."""

    def __init__(self, pixels: LitPixels, state: Mapping[str, Tensor]) -> None:
        self._pixels, self._whole = pixels, state
        self._names = [name for name in state if name.endswith(_FIRST)] if len(pixels.dark) else []
        self.state = {**state, **{name: state[name].index_select(1, pixels.places) for name in self._names}}
        self._dark: dict[str, Tensor] = {}

    def decay_dark(self, rate: Tensor, decay: Tensor, momentum: Tensor) -> None:
        """A step of the dark pixels' weights, which do nothing but decay."""
        if not self._names:
            return
        if not self._dark:
            self._dark = {name: self._whole[name].index_select(1, self._pixels.dark) for name in self._names}
        w = self._dark[_FIRST]
        velocities = [self._dark[name] for name in self._names if name != _FIRST]
        velocity = {_FIRST: velocities[0]} if velocities else None
        descend({_FIRST: w}, {_FIRST: torch.zeros_like(w)}, rate, decay, momentum, velocity)

    def end(self) -> None:
        """Bring the whole state to where training has come."""
        for name in self._names:
            self._whole[name].index_copy_(1, self._pixels.places, self.state[name])
            if self._dark:
                self._whole[name].index_copy_(1, self._pixels.dark, self._dark[name])
