"""Train networks faster on a GPU, with slightly different results: in bfloat16, or compiled.

Only bfloat16 is offered for mixed precision: it has the range of float32, so small gradients don't vanish and the loss
needs no scaling. Weights, gradients, sums of batch norm and updates stay in float32.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from mislabel.tasks.data.torchvision_import import imported_silently
from mislabel.tasks.images.network import Network, Result

AUTOCASTS = ("none", "bfloat16")


@lru_cache(maxsize=32)
def accelerated(network: Network, autocast: str, compiled: bool) -> Network:
    """The network with mixed precision or compilation; it has the same state."""
    return Accelerated(network, autocast, compiled) if autocast != "none" or compiled else network


class Accelerated(Network):
    def __init__(self, network: Network, autocast: str, compiled: bool) -> None:
        super().__init__({**network.weights, **network.buffers})
        self._half = autocast == "bfloat16"
        self._forward: Callable[..., Result] = network.forward
        if compiled:
            refuse_without_compiler()
            imported_silently("torch._inductor.compile_fx")
            self._forward = torch.compile(network.forward)

    def forward(self, state: Mapping[str, Tensor], x: Tensor, *, training: bool = False, watch: bool = False) -> Result:
        own = {name: state[name] for name in (*self.weights, *self.buffers)}
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self._half):
            seen = self._forward(own, x, training=training, watch=watch)
        return Result(seen.outputs.to(x.dtype), seen.hidden, seen.buffers)


def refuse_without_compiler() -> None:
    """Raise RuntimeError if torch.compile can't work; its own error is hard to understand."""
    if not any(map(shutil.which, (os.environ.get("CXX") or "g++", "clang++"))):
        raise RuntimeError(
            "compiled: torch.compile needs a C++ compiler, but this machine has neither g++ nor clang++; "
            "install one, or leave compiled at false"
        )
