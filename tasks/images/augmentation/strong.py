"""Strong views: several random operations on images of bytes, exactly as in PIL, for many images at a time.

For each image, one of fourteen operations is drawn and applied with probability one half. This is done five times
(CLSA). The level of an operation is drawn from 1 to 9, and moves go in either direction.

There are three kinds of operations. Five move pixels: each new pixel is the nearest old pixel under an affine map, or
black beyond the edge. Seven look up each byte in a table of 256, which may depend on the image. Two mix an image with
its gray or smoothed version. PIL computes in integers, in fixed point, or in single precision with truncation. These
operations do the same, and agree with PIL in every bit on every device.

Levels, of 10, have the meaning of CLSA's code (data_processing/RandAugment.py of github.com/maple-research-lab/CLSA,
its pool of FixMatch). That code does nothing instead of `invert`, which is one of the fourteen operations in its paper
(Wang and Qi 2021) and here.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes

MOVES = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")
TABLES = ("autocontrast", "invert", "equalize", "solarize", "posterize", "contrast", "brightness")
MIXTURES = ("color", "sharpness")
OPERATIONS = (*MOVES, *TABLES, *MIXTURES)
LEVELS = range(1, 10)
_FIXED_POINT = 16
_RED, _GREEN, _BLUE, _HALF = 19595, 38470, 7471, 1 << 15


@dataclass(frozen=True)
class Rounds:
    """The operations on n images in t rounds; (t n) each."""

    operation: Tensor  # an index of OPERATIONS, or its length for no operation
    level: Tensor
    negative: Tensor


def drawn_rounds(lanes: Lanes[Any], name: str, step: int, images: int, times: int, chance: float) -> Rounds:
    """Draw the operations for `images` images per lane; n = l·images."""
    u = lanes.uniform(f"{name}.strong", times, 4, images, steps=range(step, step + 1))[:, 0]  # l t 4 b
    operation, level, sign, applied = u.permute(2, 1, 0, 3).flatten(2)
    return Rounds(
        operation=torch.where(applied < chance, (operation * len(OPERATIONS)).long(), len(OPERATIONS)),
        level=LEVELS.start + (level * len(LEVELS)).long(),
        negative=sign < 0.5,
    )


def with_rounds(x: Tensor, rounds: Rounds) -> Tensor:
    """Images of bytes x (n c h w) after these rounds."""
    kinds = torch.arange(len(OPERATIONS) + 1, device=x.device)
    # This waits for the device: the number of images of each operation is needed here.
    counts = (rounds.operation[:, :, None] == kinds).sum(dim=1).tolist()  # t 15
    orders = rounds.operation.argsort(dim=1, stable=True)  # t n
    at = torch.arange(len(x), device=x.device)  # the current position of each image
    for turn, order in enumerate(orders):
        x = x.index_select(0, at.index_select(0, order))
        at = order.argsort()
        apply_each(x, rounds.level[turn][order], rounds.negative[turn][order], counts[turn])
    return x.index_select(0, at)


def apply_each(x: Tensor, level: Tensor, negative: Tensor, counts: Sequence[int]) -> None:
    """Apply the operations to images of bytes x (n c h w), in place.

    The images are sorted by operation: first counts[0] images for the first of OPERATIONS, then counts[1] for the
    second, and so on, then those that stay unchanged. Each has a level (n); `negative` (n) reverses the direction of
    moves.
    """
    ends = list(itertools.accumulate(counts[: len(OPERATIONS)]))
    parts = [slice(end - count, end) for end, count in zip(ends, counts, strict=False)]
    moved = slice(0, ends[len(MOVES) - 1])
    if moved.stop:
        which = torch.repeat_interleave(torch.tensor(counts[: len(MOVES)])).to(x.device)
        x[moved] = _moved(x[moved], which, level[moved], negative[moved])
    looked_up = slice(moved.stop, ends[len(MOVES) + len(TABLES) - 1])
    if looked_up.stop > looked_up.start:
        makers = (_autocontrast, _invert, _equalize, _solarize, _posterize, _contrast, _brightness)
        each = zip(makers, parts[len(MOVES) : -len(MIXTURES)], strict=True)
        table = torch.cat([make(x[part], level[part]) for make, part in each if part.stop > part.start])
        x[looked_up] = table.gather(2, x[looked_up].flatten(2).long()).reshape(-1, *x.shape[1:])  # table: m c 256
    for mix, part in zip((_gray, _smooth), parts[-len(MIXTURES) :], strict=True):
        if part.stop > part.start:
            x[part] = _mixture(mix(x[part]), x[part], _weight(level[part])[:, None, None, None])


def _moved(x: Tensor, which: Tensor, level: Tensor, negative: Tensor) -> Tensor:
    """Images (m c h w), each moved by one of MOVES (m)."""
    m, c, h, w = x.shape
    maps = _maps(h, w, x.device)[which, level - 1, negative.long()]  # m 6
    a, b, across, d, e, down = (part[:, None, None] for part in maps.unbind(dim=1))
    row, column = torch.arange(h, device=x.device)[:, None], torch.arange(w, device=x.device)
    from_column = (across + a * column + b * row) >> _FIXED_POINT  # m h w
    from_row = (down + d * column + e * row) >> _FIXED_POINT
    outside = (from_column < 0) | (from_column >= w) | (from_row < 0) | (from_row >= h)
    source = torch.where(outside, 0, from_row * w + from_column).reshape(m, 1, h * w)
    seen = x.flatten(2).gather(2, source.expand(m, c, h * w)).reshape(x.shape)
    return seen.masked_fill_(outside[:, None], 0)


@lru_cache(maxsize=64)
def _maps(h: int, w: int, device: torch.device) -> Tensor:
    """Each move's affine map from new to old pixels, by level and sign, in PIL's fixed point; (5 9 2 6)."""
    each = [[[_fixed(_map(move, sign, level, h, w)) for sign in (1, -1)] for level in LEVELS] for move in MOVES]
    return torch.tensor(each, device=device)


def _map(move: str, sign: int, level: int, h: int, w: int) -> tuple[float, ...]:
    share = sign * (level * 0.3 / 10)  # of a pixel per pixel, or of the image
    match move:
        case "shear_x":
            return 1, share, 0, 0, 1, 0
        case "shear_y":
            return 1, 0, 0, share, 1, 0
        case "translate_x":
            return 1, 0, int(share * w), 0, 1, 0
        case "translate_y":
            return 1, 0, 0, 0, 1, int(share * h)
        case _:
            angle = -math.radians(sign * int(level * 30 / 10) % 360)
            cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
            x, y = w / 2, h / 2
            return cos, sin, -cos * x - sin * y + x, -sin, cos, sin * x - cos * y + y


def _fixed(affine: tuple[float, ...]) -> list[int]:
    """The map from the centre of a new pixel, in fixed point."""
    a, b, c, d, e, f = affine
    numbers = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return [math.floor(number * (1 << _FIXED_POINT) + 0.5) for number in numbers]


def _autocontrast(x: Tensor, level: Tensor) -> Tensor:
    """Each channel stretched to all bytes, in double precision as in Python; a constant channel stays unchanged."""
    low, high = (edge.double()[:, :, None] for edge in torch.aminmax(x.flatten(2), dim=2))
    # torch computes number / tensor as number times reciprocal, which rounds twice.
    scale = torch.full_like(low, 255) / torch.where(high > low, high - low, 1)
    byte = torch.arange(256, dtype=torch.float64, device=x.device)
    spread = (byte * scale + -low * scale).trunc().clamp(0, 255)  # m c 256
    return torch.where(high > low, spread, byte).to(torch.uint8)


def _invert(x: Tensor, level: Tensor) -> Tensor:
    return _for_all_channels(x, (255 - _bytes(x)).expand(len(x), 256))


def _equalize(x: Tensor, level: Tensor) -> Tensor:
    """Histogram equalization of each channel."""
    pixels = x.flatten(2).long()
    counts = torch.zeros(*x.shape[:2], 256, dtype=torch.int64, device=x.device)
    counts.scatter_add_(2, pixels, torch.ones_like(pixels))
    last = counts.gather(2, pixels.amax(dim=2, keepdim=True))  # m c 1
    step = (pixels.shape[2] - last) // 255
    before = counts.cumsum(dim=2) - counts
    even = (before + step // 2) // step.clamp(min=1)
    return torch.where(step > 0, even.clamp(max=255), _bytes(x)).to(torch.uint8)


def _solarize(x: Tensor, level: Tensor) -> Tensor:
    """Bytes from a threshold on are inverted."""
    byte, threshold = _bytes(x), _of_level(lambda each: 256 - int(each * 256 / 10), level)[:, None]
    return _for_all_channels(x, torch.where(byte < threshold, byte, 255 - byte))


def _posterize(x: Tensor, level: Tensor) -> Tensor:
    dropped = _of_level(lambda each: 4 - int(each * 4 / 10), level)[:, None]  # bits
    return _for_all_channels(x, (_bytes(x) >> dropped) << dropped)


def _contrast(x: Tensor, level: Tensor) -> Tensor:
    gray = _gray(x)
    pixels = gray[0].numel()
    mean = (2 * gray.sum(dim=(1, 2, 3)) + pixels) // (2 * pixels)  # m: rounded to the nearest, halves up
    return _for_all_channels(x, _mixture(mean[:, None], _bytes(x), _weight(level)[:, None]))


def _brightness(x: Tensor, level: Tensor) -> Tensor:
    byte = _bytes(x)
    return _for_all_channels(x, _mixture(0 * byte, byte, _weight(level)[:, None]))


def _gray(x: Tensor) -> Tensor:
    """The gray version, as integers; (m 1 h w)."""
    if x.shape[1] == 1:
        return x.int()
    red, green, blue = x.int().unbind(dim=1)
    return ((red * _RED + green * _GREEN + blue * _BLUE + _HALF) >> 16)[:, None]


def _smooth(x: Tensor) -> Tensor:
    """Each pixel replaced by the rounded mean of itself (weight 5) and its eight neighbours; the border stays."""
    whole = x.int()
    out = whole.clone()
    rows = whole[..., :-2, :] + whole[..., 1:-1, :] + whole[..., 2:, :]
    around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    inner = out[..., 1:-1, 1:-1]
    # An integer divided by 13 never ends in .5, so single precision rounds it correctly.
    inner.copy_((around + 4 * inner).float().div_(13).round_())
    return out


def _mixture(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """Integers between first and second at this share, truncated to bytes."""
    return (first + share * (second.int() - first)).to(torch.uint8)


def _for_all_channels(x: Tensor, table: Tensor) -> Tensor:
    """A table per image (m 256) as one per channel; (m c 256)."""
    return table.to(torch.uint8)[:, None].expand(len(x), x.shape[1], 256)


def _bytes(x: Tensor) -> Tensor:
    return torch.arange(256, dtype=torch.int32, device=x.device)


def _of_level(strength: Callable[[int], float], level: Tensor) -> Tensor:
    """The strength at each image's level (m), in single precision if it is not an integer."""
    return torch.tensor([strength(each) for each in LEVELS], device=level.device)[level - 1]


def _weight(level: Tensor) -> Tensor:
    """The image's weight in a mixture with black, its mean, its gray or its smoothed version."""
    return _of_level(lambda each: each * 0.9 / 10 + 0.05, level)
