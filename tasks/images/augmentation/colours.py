"""Random changes of colour, as in torchvision: brightness, contrast, saturation and hue in random order; gray.

All images are processed at once, with values in [0, 1]. Brightness, contrast and saturation are one operation: an image
is mixed with black, with its mean gray, or with its gray version. Hue is rotated in the HSV colour space, without
leaving RGB: a pixel's largest and smallest channel values stay the same. With hue h from 0 to 6, the channels lie
between these values at the fractions |h - 3| - 1 (red), 2 - |h - 2| (green) and 2 - |h - 4| (blue), clamped to [0, 1].

Images with one channel have neither saturation nor hue, and are gray already.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes

GRAY = (0.2989, 0.587, 0.114)
"""Weights of red, green and blue, as in torchvision."""
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
_ORDERS = list(itertools.permutations(range(4)))


@dataclass(frozen=True)
class Jitter:
    """How far colours may change: factors are drawn from 1 - brightness to 1 + brightness, hue from -hue to hue."""

    brightness: float = 0.4
    contrast: float = 0.4
    saturation: float = 0.4
    hue: float = 0.1
    chance: float = 0.8


@dataclass(frozen=True)
class Change:
    """The changes of colour of n images."""

    order: Tensor  # n 4: the operations in order
    amount: Tensor  # n 4: factors of brightness, contrast, saturation; rotation of hue, 1 is the whole circle
    changed: Tensor  # n


def drawn_change(lanes: Lanes[Any], name: str, step: int, images: int, jitter: Jitter) -> Change:
    """Draw the changes for `images` images per lane; n = l·images."""
    u = lanes.uniform(f"{name}.jitter", 6, images, steps=range(step, step + 1))[:, 0]  # l 6 b
    reach = (jitter.brightness, jitter.contrast, jitter.saturation)
    factors = [
        max(0.0, 1 - r) + (1 + r - max(0.0, 1 - r)) * u[:, i] if r else torch.ones_like(u[:, i])
        for i, r in enumerate(reach)
    ]
    amount = torch.stack([*factors, jitter.hue * (2 * u[:, HUE] - 1)], dim=-1)  # l b 4
    orders = torch.tensor(_ORDERS, device=lanes.device)
    order = orders[(u[:, 4] * len(_ORDERS)).long()]
    return Change(order.flatten(0, 1), amount.flatten(0, 1), (u[:, 5] < jitter.chance).flatten())


def jittered(x: Tensor, change: Change) -> Tensor:
    """Images x (n c h w) in [0, 1] with changed colours; overwrites x."""
    colour = x.shape[1] == 3
    hues = change.changed[:, None] & (change.order == HUE) & (change.amount[:, HUE] != 0)[:, None]  # n 4
    # This waits for the device: the number of images whose hue is rotated at each position is needed here.
    turned = torch.split(hues.T.nonzero()[:, 1], hues.sum(dim=0).tolist()) if colour else None
    for when in range(4):
        which = change.order[:, when]
        amount = change.amount.gather(1, which[:, None])[:, 0]
        mixes = change.changed & (which != HUE)
        if not colour:
            mixes = mixes & (which != SATURATION)
        x = _mixed(x, which, torch.where(mixes, amount, 1.0))
        if turned is not None and len(turned[when]):
            x[turned[when]] = with_turned_hue(x.index_select(0, turned[when]), amount[turned[when]])
    return x


def _mixed(x: Tensor, which: Tensor, factor: Tensor) -> Tensor:
    """Mix x (n c h w), with weight factor, with black, its mean gray or its gray version; exactly x at factor 1."""
    rest = 1 - factor
    gray = gray_of(x)  # n 1 h w
    to_mean = (rest * (which == CONTRAST))[:, None, None, None] * gray.mean(dim=(2, 3), keepdim=True)
    other = gray.mul_((rest * (which == SATURATION))[:, None, None, None]).add_(to_mean)
    return x.mul_(factor[:, None, None, None]).add_(other).clamp_(0, 1)


def gray_of(x: Tensor) -> Tensor:
    """The gray version of images (n c h w), as a new tensor; (n 1 h w)."""
    if x.shape[1] == 1:
        return x.clone()
    red, green, blue = x[:, :1], x[:, 1:2], x[:, 2:]
    return red.mul(GRAY[0]).add_(green, alpha=GRAY[1]).add_(blue, alpha=GRAY[2])


def with_turned_hue(x: Tensor, turn: Tensor) -> Tensor:
    """Images (n 3 h w) with their hue rotated by these fractions of a circle (n)."""
    red, green, blue = x.unbind(dim=1)
    most = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    spread = most - least
    hue = torch.where(
        most == red,
        green - blue,
        torch.where(most == green, (blue - red).add_(spread, alpha=2), (red - green).add_(spread, alpha=4)),
    )
    # The smallest positive number avoids 0 / 0 for gray pixels, whose hue does not matter.
    hue = hue.div_(spread.clamp(min=torch.finfo(x.dtype).tiny)).add_(6 * turn[:, None, None])
    hue.sub_((hue / 6).floor_(), alpha=6)
    out = torch.empty_like(x)
    torch.abs(hue - 3, out=out[:, 0]).sub_(1)
    torch.abs(hue - 2, out=out[:, 1]).neg_().add_(2)
    torch.abs(hue - 4, out=out[:, 2]).neg_().add_(2)
    return out.clamp_(0, 1).mul_(spread[:, None]).add_(least[:, None])


def grayed(lanes: Lanes[Any], name: str, step: int, x: Tensor, chance: float) -> Tensor:
    """Images x (n c h w), some of them made gray at random; overwrites x."""
    drawn = lanes.uniform(f"{name}.gray", len(x) // len(lanes), steps=range(step, step + 1)).flatten() < chance
    if x.shape[1] == 1:
        return x
    return torch.where(drawn[:, None, None, None], gray_of(x), x)
