"""What a step sees: each lane's own batch of training images, and views of it.

Each lane goes through the training images in an order of its own, anew in every epoch; those that don't fill a batch
are left out, as in MoCo.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tasks.data.images import Images, part
from tasks.images import pictures
from tasks.images.augmentation import views
from tasks.images.augmentation.views import Views
from tasks.lanes import Lanes

AUGMENTATIONS = {"cifar10": views.cifar10, "imagenet": views.imagenet}


class Batches:
    """The training images of a pack, step by step."""

    def __init__(self, lanes: Lanes[Any]) -> None:
        self._lanes = lanes
        self._epoch = -1
        self._order = torch.empty(0)
        self.data: Images = pictures.loaded(lanes)
        self.size: int = lanes.shape.batch or len(self.data.train_y)
        self.per_epoch = len(self.data.train_y) // self.size
        self.views = _views(lanes)
        self.crops = self.views.crops(crop_sizes(lanes.shape.crops) or [self.views.size])

    def at(self, step: int) -> Tensor:
        """Which images this step takes; (l s)."""
        count = len(self.data.train_y)
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            drawn = self._lanes.uniform("order", count, steps=range(epoch, epoch + 1)).squeeze(1)
            self._epoch, self._order = epoch, drawn.argsort(dim=1, stable=True)
        return self._order[:, place * self.size : (place + 1) * self.size]

    def images(self, index: Tensor) -> Tensor:
        """The images themselves, as bytes; (l s c h w)."""
        return pictures.taken(self.data.train_x, index)


def scaled(x: Tensor, size: int) -> Tensor:
    """Views (l s c h w) at another size, smoothed where it is smaller."""
    if x.shape[-1] == size:
        return x
    smaller = functional.interpolate(x.flatten(0, 1), (size, size), mode="bilinear", antialias=True)
    return smaller.reshape(*x.shape[:3], size, size)


def crop_sizes(words: str) -> list[int]:
    """The sizes in a text such as "32, 27"; ValueError where it is none."""
    sizes = [int(word) for word in words.split(",") if word.strip()]
    if any(size < 1 for size in sizes):
        raise ValueError(words)
    return sizes


def _views(lanes: Lanes[Any]) -> Views:
    p = lanes.shape
    data = pictures.loaded(lanes)
    channels, height, width = data.size
    mean, std = ((0.0,) * channels, (1.0,) * channels) if p.pixels == "unit" else _statistics(lanes)
    made = AUGMENTATIONS[p.augmentation](p.view_size or min(height, width), mean, std)
    return replace(made, scale=(p.smallest_crop, 1.0)) if p.smallest_crop else made


def _statistics(lanes: Lanes[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    p = lanes.shape
    return _statistics_of(p.data, p.classes, p.samples, p.subset)


@lru_cache(maxsize=16)
def _statistics_of(data: str, classes: str, samples: int, subset: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return views.statistics(part(data, classes, samples, 0, subset).train_x)
