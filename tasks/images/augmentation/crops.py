"""Random resized crops: a part of each image with random area, aspect ratio and position, resized to one size.

Crops are drawn as in torchvision's RandomResizedCrop and resized with the triangle filter that PIL and torchvision call
bilinear. It is wider than a pixel if a crop is reduced, so that no pixel is skipped. The filter is separable, so a
resized crop is two products with banded matrices, one pair per image. For a mirrored image, one of them is reversed.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes

_TRIES = 10
Interval = tuple[float, float]


@dataclass(frozen=True)
class Boxes:
    """Crops of n images, in whole pixels; (n) each."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor


def drawn_boxes(
    lanes: Lanes[Any], name: str, step: int, images: int, size: tuple[int, int], scale: Interval, ratio: Interval
) -> Boxes:
    """Draw a crop for each of `images` images per lane, all of height and width `size`; n = l·images.

    Its area is a share of the image's area in `scale`. Its width divided by its height is in `ratio`, log-uniform. The
    first of ten draws that fits is used; if none fits, the largest central crop with a permitted ratio.
    """
    h, w = size
    u = lanes.uniform(f"{name}.crop", 2 * _TRIES + 2, images, steps=range(step, step + 1))[:, 0].double()  # l 22 b
    area = h * w * _between(u[:, :_TRIES], *scale)
    shape = _between(u[:, _TRIES:-2], math.log(ratio[0]), math.log(ratio[1])).exp()
    heights, widths = (area / shape).sqrt().round(), (area * shape).sqrt().round()  # l 10 b
    fits = (heights > 0) & (heights <= h) & (widths > 0) & (widths <= w)
    first = fits.int().argmax(dim=1, keepdim=True)  # l 1 b
    whole = _middle(h, w, ratio)
    any_fits = fits.any(dim=1)  # l b
    height = torch.where(any_fits, heights.gather(1, first)[:, 0], whole[0])
    width = torch.where(any_fits, widths.gather(1, first)[:, 0], whole[1])
    top = torch.where(any_fits, (u[:, -2] * (h - height + 1)).floor(), (h - whole[0]) // 2)
    left = torch.where(any_fits, (u[:, -1] * (w - width + 1)).floor(), (w - whole[1]) // 2)
    return Boxes(*(part.flatten().long() for part in (top, left, height, width)))


def middle_boxes(images: int, size: tuple[int, int], device: torch.device) -> Boxes:
    """The largest central square of each of `images` images."""
    h, w = size
    side = min(size)
    return Boxes(*(torch.full((images,), at, device=device) for at in ((h - side) // 2, (w - side) // 2, side, side)))


def resized(x: Tensor, boxes: Boxes, size: int, flipped: Tensor | None = None) -> Tensor:
    """The crops of x (n c h w) resized to size × size, mirrored where flipped (n); (n c size size)."""
    n, c, h, w = x.shape
    rows = _filters(boxes.top, boxes.height, h, size, x.dtype)  # n s h
    columns = _filters(boxes.left, boxes.width, w, size, x.dtype, flipped)  # n s w
    # Images stay in full precision even if the network trains in half precision.
    with torch.autocast(x.device.type, enabled=False):
        wide = torch.bmm(x.reshape(n, c * h, w), columns.mT).reshape(n, c, h, size)
        return torch.matmul(rows[:, None], wide)


def _filters(
    first: Tensor, length: Tensor, pixels: int, size: int, dtype: torch.dtype, turned: Tensor | None = None
) -> Tensor:
    """The weight of each pixel in each of `size` new pixels, for `length` (n) pixels from `first` (n); (n s p)."""
    device = first.device
    at = torch.arange(pixels, device=device)
    within = (at >= first[:, None]) & (at < (first + length)[:, None])  # n pixels
    new = torch.arange(size, dtype=dtype, device=device) + 0.5
    new = new.expand(len(first), size) if turned is None else torch.where(turned[:, None], size - new, new)
    step = (length.to(dtype) / size)[:, None]  # n 1
    centre = first.to(dtype)[:, None] + new * step  # n size
    away = (at.to(dtype) + 0.5) - centre[:, :, None]  # n size pixels
    weight = away.abs_().div_(-step.clamp(min=1)[:, :, None]).add_(1).clamp_(min=0).mul_(within[:, None, :])
    return weight.div_(weight.sum(dim=2, keepdim=True))


def _between(u: Tensor, low: float, high: float) -> Tensor:
    return low + (high - low) * u


def _middle(h: int, w: int, ratio: Interval) -> tuple[int, int]:
    """Height and width of the largest crop with a permitted ratio."""
    if w / h < ratio[0]:
        return round(w / ratio[0]), w
    if w / h > ratio[1]:
        return h, round(h * ratio[1])
    return h, w
