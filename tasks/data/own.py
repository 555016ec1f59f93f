"""Images of the user's own, from a folder with a folder per class."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tasks.data.download import Show
from tasks.data.images import DataError, Images, held_out, images, is_own, keep
from tasks.vision import vision

_TEST_FOLDERS = ("test", "val", "valid", "validation")


def convert_folder(name: str, source: Path, size: int, root: Path, show: Show) -> Images:
    """Make a data set of the images in `source`, of any sizes: cut to the middle square and scaled to `size`.

    Folders `train` and `test` (or `val`) are its two parts, with the same classes; without them, every fifth image of
    each class is for testing. Images that are all grey get a single channel.
    """
    if not is_own(name):
        raise DataError(f"{name!r} is not a name for images of one's own; use images, or images/WORD")
    if not source.is_dir():
        raise DataError(f"{source} is not a folder; give one with a folder of images per class")
    tests = [source / each for each in _TEST_FOLDERS if (source / each).is_dir()]
    if (source / "train").is_dir() and tests:
        train, test = _found(source / "train"), _found(tests[0])
        if train.classes != test.classes:
            text = f"{source}/train has the classes {', '.join(train.classes)}"
            raise DataError(f"{text}, {tests[0]} has {', '.join(test.classes)}; they should be the same")
        parts = _read(train.samples, size, show), _read(test.samples, size, show)
    else:
        train = _found(source)
        x, y = _read(train.samples, size, show)
        held = held_out(y)
        parts = (x[~held], y[~held]), (x[held], y[held])
    (train_x, train_y), (test_x, test_y) = parts
    if all(bool((x[:, :1] == x).all()) for x in (train_x, test_x)):
        train_x, test_x = train_x[:, :1].contiguous(), test_x[:, :1].contiguous()
    keep(name, train_x, train_y, test_x, test_y, train.classes, root)
    return images(name, root)


def _found(folder: Path) -> Any:
    try:
        return vision("datasets").ImageFolder(folder)
    except FileNotFoundError as error:
        raise DataError(
            f"{folder}: {str(error).splitlines()[0]}; give a folder with a folder of images per class"
        ) from None


def _read(samples: list[tuple[str, int]], size: int, show: Show) -> tuple[Tensor, Tensor]:
    from PIL import Image, ImageOps, UnidentifiedImageError

    x = np.empty((len(samples), 3, size, size), dtype=np.uint8)
    for i, (path, _) in enumerate(samples):
        try:
            with Image.open(path) as image:
                upright = ImageOps.exif_transpose(image).convert("RGB")
        except (OSError, UnidentifiedImageError) as error:
            raise DataError(f"{path} is not an image that can be read: {error}") from None
        x[i] = np.asarray(ImageOps.fit(upright, (size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)
        show("images", i + 1, len(samples))
    return torch.from_numpy(x), torch.tensor([label for _, label in samples])
