"""Random shifts and flips: the standard augmentation of supervised training on CIFAR-10.

Each image is padded by four pixels on each side, cropped to its size at a random position, and mirrored half of the
time (He et al. 2016, Section 4.2). The shift of an image depends only on its run's seed, the name, the step and its
position in the batch.
"""

from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes


@torch.no_grad()
def padded_crop_and_flip(
    lanes: Lanes[Any], name: str, x: Tensor, step: int, *, padding: int = 4, flip_chance: float = 0.5, whole: int = 0
) -> Tensor:
    """The images x (l b c h w) of this step, randomly shifted by up to `padding` pixels and mirrored.

    The last batch of an epoch may be smaller than a `whole` batch. It must draw as many random numbers as the others,
    or its numbers would be those of other steps. Pixels from outside are 0, so subtract means after padding.
    """
    b, c, h, w = x.shape[1:]
    steps, drawn = range(step, step + 1), max(b, whole)
    places = lanes.integers(f"{name}.shift", 2 * padding + 1, 2, drawn, steps=steps)[:, 0, :, :b] - padding  # l 2 b
    flipped = lanes.uniform(f"{name}.flip", drawn, steps=steps)[:, 0, :b] < flip_chance  # l b
    down, right = places[:, 0].flatten(), places[:, 1].flatten()
    return shifted(x.reshape(-1, c, h, w), down, right, flipped.flatten()).reshape(x.shape)


def shifted(x: Tensor, down: Tensor, right: Tensor, flipped: Tensor, fill: float = 0.0) -> Tensor:
    """Images x (n c h w) seen through a window moved by these numbers of pixels (n), mirrored where flipped (n)."""
    n, c, h, w = x.shape
    rows = down[:, None] + torch.arange(h, device=x.device)  # n h
    columns = torch.arange(w, device=x.device)
    columns = right[:, None] + torch.where(flipped[:, None], columns.flip(0), columns)  # n w
    # Rows first, then columns: an index per pixel would be eight times as large as an image of bytes.
    planes = torch.arange(n * c, device=x.device).reshape(n, c, 1) * h
    seen = x.reshape(-1, w).index_select(0, (planes + rows.clamp(0, h - 1)[:, None]).flatten()).reshape(x.shape)
    seen = seen.gather(3, columns.clamp(0, w - 1)[:, None, None, :].expand(n, c, h, w))
    inside = ((rows >= 0) & (rows < h))[:, :, None] & ((columns >= 0) & (columns < w))[:, None, :]  # n h w
    return seen.masked_fill_(~inside[:, None], fill)
