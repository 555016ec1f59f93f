"""Steps of SGD with batch size 1: stretches draw their random numbers at once, blocks are trained at once."""

from collections.abc import Iterator

import torch
from torch import Tensor

BLOCK = 16
# How many 64-bit numbers are drawn at once: few enough that intermediate results stay in cache.
_DRAWN = 1 << 15


def stretches(start: int, stop: int, numbers: int, length: int = BLOCK) -> Iterator[range]:
    """Split the steps into stretches of whole blocks. Each step draws `numbers` numbers for all lanes together."""
    return cut(start, stop, max(1, _DRAWN // (numbers * length)) * length)


def blocks(stretch: range, length: int = BLOCK) -> Iterator[tuple[range, slice]]:
    """The blocks of a stretch, each with its slice of the stretch."""
    for block in cut(stretch.start, stretch.stop, length):
        yield block, slice(block.start - stretch.start, block.stop - stretch.start)


def cut(start: int, stop: int, length: int) -> Iterator[range]:
    """Split steps at the multiples of `length`, so that a resumed run is split like an uninterrupted one."""
    while start < stop:
        end = min(stop, (start // length + 1) * length)
        yield range(start, end)
        start = end


def lane_rows(x: Tensor, index: Tensor) -> Tensor:
    """Each lane's rows of x (l n d) at the lane's indices (l t); (l t d)."""
    first = torch.arange(len(x), device=x.device)[:, None] * x.shape[1]
    # index_select copies whole rows; gather and fancy indexing take three times as long.
    return x.flatten(0, 1).index_select(0, (index + first).flatten()).view(*index.shape, -1)
