"""Augmented views of images for contrastive learning: the weak views of MoCo and the strong views of CLSA, of any size.

    views = Views(size=32, mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26))
    query = views.weak(lanes, "query", x, step)        # l b c 32 32, in the lanes' precision
    key = views.weak(lanes, "key", x, step)            # another name, another view
    mixed = views.strong(lanes, "mixed", x, step)
    small = [crop.strong(lanes, f"crop{crop.size}", x, step) for crop in views.crops((32, 27, 23, 18, 14))]
    plain = views.plain(test_x)                        # n c 32 32: for measuring

x holds each lane's batch (l b c h w), as bytes or as numbers in [0, 1], on the lanes' device. All images of all lanes
are processed at once. The view of an image depends on its run's seed, the view's name, the step and its position in the
batch: a run sees the same views alone, in any pack, and after a resume.

A weak view is a random resized crop, mirrored half of the time, with random changes of colour, gray and blur, and
normalized (He et al. 2020; Chen et al. 2020, MoCo v2). `cifar10` has the settings of MoCo's example for CIFAR-10, which
does not blur; `imagenet` has those of MoCo v2. A strong view is a weak view, as bytes, with five rounds of random
operations before it is normalized (see the module `strong`). Unlike PIL's images, a weak view is not rounded to bytes
after each operation. Mirroring is part of the crop, which is the same as mirroring later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from mislabel.tasks.images.augmentation import blur, colours, crops
from mislabel.tasks.images.augmentation.colours import Jitter
from mislabel.tasks.images.augmentation.strong import drawn_rounds, with_rounds
from mislabel.tasks.lanes import Lanes

# The number of images whose pixels are counted at once.
_COUNTED_AT_ONCE = 256


@dataclass(frozen=True)
class Views:
    """The settings of views. With probabilities of 0 and a scale of (1, 1), images are only resized and normalized."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: tuple[float, float] = (0.2, 1.0)
    """Smallest and largest area of a crop, as a share of the image's area."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Smallest and largest width of a crop divided by its height."""
    flip_chance: float = 0.5
    jitter: Jitter = field(default_factory=Jitter)
    gray_chance: float = 0.2
    blur_chance: float = 0.0
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    """In pixels."""
    strong_times: int = 5
    strong_chance: float = 0.5

    @torch.no_grad()
    def weak(self, lanes: Lanes[Any], name: str, x: Tensor, step: int) -> Tensor:
        """A weak view of this step's images x (l b c h w); (l b c size size)."""
        return self._normalized(self._changed(lanes, name, x, step)).reshape(*x.shape[:3], self.size, self.size)

    @torch.no_grad()
    def strong(self, lanes: Lanes[Any], name: str, x: Tensor, step: int) -> Tensor:
        """A strong view of this step's images x (l b c h w); (l b c size size)."""
        # Halves are common, because crops are resized by small fractions. Adding a little more than half rounds them up
        # on every device and in every pack, however the last bit was rounded.
        changed = self._changed(lanes, name, x, step).mul_(255).add_(0.501).to(torch.uint8)
        rounds = drawn_rounds(lanes, name, step, x.shape[1], self.strong_times, self.strong_chance)
        out = self._normalized(_numbers(with_rounds(changed, rounds), lanes.dtype))
        return out.reshape(*x.shape[:3], self.size, self.size)

    @torch.no_grad()
    def plain(self, x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The largest central square of images x (... c h w), resized and normalized; (... c size size)."""
        flat = _numbers(x, dtype).flatten(0, -4)
        h, w = x.shape[-2:]
        if (h, w) != (self.size, self.size):
            flat = crops.resized(flat, crops.middle_boxes(len(flat), (h, w), x.device), self.size)
        return self._normalized(flat).reshape(*x.shape[:-2], self.size, self.size)

    def crops(self, sizes: Sequence[int]) -> list[Self]:
        """Views of these sizes; the crops of smaller views are proportionally smaller, as in CLSA."""
        low, high = self.scale
        shares = {size: size / self.size for size in sizes}
        return [replace(self, size=size, scale=(low * shares[size], high * shares[size])) for size in sizes]

    def _changed(self, lanes: Lanes[Any], name: str, x: Tensor, step: int) -> Tensor:
        """A weak view before normalization, in [0, 1]; (l·b c size size)."""
        images, size = x.shape[1], (x.shape[-2], x.shape[-1])
        boxes = crops.drawn_boxes(lanes, name, step, images, size, self.scale, self.ratio)
        flipped = lanes.uniform(f"{name}.flip", images, steps=range(step, step + 1)).flatten() < self.flip_chance
        out = crops.resized(_numbers(x, lanes.dtype).flatten(0, 1), boxes, self.size, flipped)
        if self.jitter.chance:
            out = colours.jittered(out, colours.drawn_change(lanes, name, step, images, self.jitter))
        if self.gray_chance:
            out = colours.grayed(lanes, name, step, out, self.gray_chance)
        if self.blur_chance:
            sigma = blur.drawn_widths(lanes, name, step, images, self.blur_chance, self.blur_sigma)
            out = blur.blurred(out, sigma, blur.kernel_size(self.size))
        return out

    def _normalized(self, x: Tensor) -> Tensor:
        """Images x (n c s s) normalized; overwrites x."""
        mean, std = (torch.tensor(v, dtype=x.dtype, device=x.device)[:, None, None] for v in (self.mean, self.std))
        return x.sub_(mean).div_(std)


def cifar10(size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Views:
    """As in MoCo's example for CIFAR-10: crops of at least 8 % of the image, no blur."""
    return Views(size=size, mean=mean, std=std, scale=(0.08, 1.0))


def imagenet(size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> Views:
    """As in MoCo v2: crops of at least 20 % of the image, half of them blurred."""
    return Views(size=size, mean=mean, std=std, blur_chance=0.5)


def statistics(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of images x (n c h w), where white is 1."""
    counts = [_histogram(channel).double() for channel in x.unbind(dim=1)]
    levels = torch.arange(256, dtype=torch.float64, device=x.device) / 255
    means = [count @ levels / count.sum() for count in counts]
    variances = [count @ (levels - mean) ** 2 / count.sum() for count, mean in zip(counts, means, strict=True)]
    return tuple(map(float, means)), tuple(float(variance) ** 0.5 for variance in variances)


def _histogram(x: Tensor) -> Tensor:
    """The number of pixels of x (n h w) with each of the 256 values; (256).

    Images are counted in parts, because counting converts bytes to wider numbers, which may not fit for a whole data
    set.
    """
    counts = [torch.bincount(some.flatten().int(), minlength=256) for some in torch.split(x, _COUNTED_AT_ONCE)]
    return torch.stack(counts).sum(dim=0)


def _numbers(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Images in [0, 1], as a new tensor."""
    return x.to(dtype).div_(255) if x.dtype == torch.uint8 else x.to(dtype, copy=True)
