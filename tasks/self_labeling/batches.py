"""Each lane's batches of training images, and views of them.

Each lane shuffles the training images in every epoch, by its own seed. Incomplete batches are left out, as in MoCo.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.data.images import Images, part
from mislabel.tasks.images import image_training
from mislabel.tasks.images.augmentation import views
from mislabel.tasks.images.augmentation.views import Views
from mislabel.tasks.lanes import Lanes

# Data sets up to this many bytes live on the device; larger ones, such as ImageNet, are copied batch by batch.
_ON_DEVICE = 1 << 33
# Means and standard deviations are computed from evenly chosen images with up to this many numbers.
_STATISTICS_NUMBERS = 1 << 28

AUGMENTATIONS = {"cifar10": views.cifar10, "imagenet": views.imagenet}


class Batches:
    """The training images of a pack, step by step."""

    def __init__(self, lanes: Lanes[Any]) -> None:
        self._lanes = lanes
        self._epoch = -1
        self._order = torch.empty(0)
        self.data = loaded(lanes)
        self.size: int = lanes.shape.batch or len(self.data.train_y)
        self.per_epoch = len(self.data.train_y) // self.size
        self.views = _views(lanes)
        self.crops = self.views.crops(crop_sizes(lanes.shape.crops) or [self.views.size])

    def at(self, step: int) -> Tensor:
        """The indices of this step's images; (l s)."""
        count = len(self.data.train_y)
        epoch, place = divmod(step, self.per_epoch)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, image_training.epoch_order(self._lanes, "order", count, epoch)
        return self._order[:, place * self.size : (place + 1) * self.size]

    def images(self, index: Tensor) -> Tensor:
        """The images at these indices, as bytes on the lanes' device; (l s c h w)."""
        x, device = self.data.train_x, self._lanes.device
        batch = image_training.shared_rows(x, index.to(x.device))
        if device.type == "cuda" and not x.is_cuda:
            batch = batch.pin_memory()  # copies at twice the speed, while the GPU computes
        return batch.to(device, non_blocking=True)


def loaded(lanes: Lanes[Any]) -> Images:
    """The run's images: labels on the lanes' device, pixels too unless the data set is too large."""
    held = _held(lanes)
    if held.train_x.nbytes + held.test_x.nbytes <= _ON_DEVICE:
        return image_training.loaded(lanes)
    return replace(held, train_y=held.train_y.to(lanes.device), test_y=held.test_y.to(lanes.device))


def _held(lanes: Lanes[Any]) -> Images:
    """The run's images in memory, not on the device."""
    p = lanes.shape
    return part(p.data, p.classes, p.samples, p.test_samples, p.subset)


def scaled(x: Tensor, size: int) -> Tensor:
    """Views (l s c h w) resized to another size, with antialiasing."""
    if x.shape[-1] == size:
        return x
    smaller = functional.interpolate(x.flatten(0, 1), (size, size), mode="bilinear", antialias=True)
    return smaller.reshape(*x.shape[:3], size, size)


def crop_sizes(words: str) -> list[int]:
    """The sizes in a text such as "32, 27"; ValueError if it is not a list of sizes."""
    sizes = [int(word) for word in words.split(",") if word.strip()]
    if any(size < 1 for size in sizes):
        raise ValueError(words)
    return sizes


def _views(lanes: Lanes[Any]) -> Views:
    p = lanes.shape
    channels, height, width = loaded(lanes).size
    mean, std = ((0.0,) * channels, (1.0,) * channels) if p.pixels == "unit" else _statistics(_held(lanes).train_x)
    made = AUGMENTATIONS[p.augmentation](p.view_size or min(height, width), mean, std)
    return replace(made, scale=(p.smallest_crop, 1.0)) if p.smallest_crop else made


@lru_cache(maxsize=16)
def _statistics(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return views.statistics(x[:: math.ceil(x.numel() / _STATISTICS_NUMBERS)])
