"""Networks written with `Layers`, which process all lanes at once."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mislabel.tasks.images.architectures import KINDS, Kind
from mislabel.tasks.images.layers import Declaration, Layers
from mislabel.tasks.images.network import Network, Result

# On a CPU, activations should fit into the cache. Lanes share an operation while their activations have at most
# _SHARED_NUMBERS numbers; a lane's batch is processed in parts with at most _PART_NUMBERS.
_SHARED_NUMBERS = 1 << 19
_PART_NUMBERS = 1 << 21


class LayeredNetwork(Network):
    def __init__(
        self, kind: str | Kind, depth: int, width: int, start: str, ntk: bool, size: tuple[int, int, int], outputs: int
    ) -> None:
        self._kind = KINDS[kind] if isinstance(kind, str) else kind
        self._sizes = depth or self._kind.depth, width or self._kind.width, outputs
        self._start, self._ntk = start, ntk
        declaration = Declaration(start, ntk)
        self._kind.build(declaration, torch.empty(1, 2, *size, device="meta"), *self._sizes)
        self._largest = declaration.largest
        self._factors = declaration.factors
        super().__init__(declaration.weights)

    def forward(self, state: Mapping[str, Tensor], x: Tensor, *, training: bool = False, watch: bool = False) -> Result:
        own = {name: state[name] for name in (*self.weights, *self.buffers)}
        lanes = len(next(iter(own.values())))
        together = self._together(x)
        if together >= lanes:
            return self._in_parts(own, x, lanes, training, watch)
        parts = []
        for first in range(0, lanes, together):
            cut = slice(first, min(first + together, lanes))
            some = {name: tensor[cut] for name, tensor in own.items()}
            parts.append(self._in_parts(some, x if x.dim() == 4 else x[cut], cut.stop - first, training, watch))
        return Result.joined(parts, dim=0)

    def _together(self, x: Tensor) -> int:
        """The number of lanes that are processed at once."""
        if x.device.type != "cpu" or not self._largest:
            return 1 << 30
        return max(1, _SHARED_NUMBERS // (self._largest * max(1, x.shape[-4])))

    def _in_parts(self, state: Mapping[str, Tensor], x: Tensor, lanes: int, training: bool, watch: bool) -> Result:
        """A pass that processes the images in parts, forward and backward, unless batch norm mixes them."""
        most = max(1, _PART_NUMBERS // self._largest) if x.device.type == "cpu" and self._largest else 1 << 30
        count = x.shape[-4]
        if count <= most or (training and self.buffers):
            return self._pass(state, x, lanes, training, watch)
        pieces = x.chunk(math.ceil(count / most), dim=-4)
        return Result.joined([self._pass(state, piece, lanes, training, watch) for piece in pieces], dim=1)

    def _pass(self, state: Mapping[str, Tensor], x: Tensor, lanes: int, training: bool, watch: bool) -> Result:
        # For a single lane, with channels last, convolutions need not reorder the images.
        last = lanes == 1 and (self._together(x) == 1 or torch.is_autocast_enabled(x.device.type))
        order = torch.channels_last if last else torch.contiguous_format
        net = Layers(state, lanes, training, watch, self._start, self._ntk, order)
        outputs = self._kind.build(net, x, *self._sizes)
        return Result(outputs, net.hidden, net.buffers)
