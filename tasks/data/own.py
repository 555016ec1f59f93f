"""The user's own images, from a folder with one folder per class."""

from pathlib import Path
from typing import Any

import torch

from mislabel.tasks.data.download import Show
from mislabel.tasks.data.folder import data_lock
from mislabel.tasks.data.images import DataError, Images, held_out, images, is_own, keep
from mislabel.tasks.data.pixels import pixels_of
from mislabel.tasks.data.torchvision_import import vision

_GIVE = "give a folder with one folder of images per class"
_TEST_FOLDERS = ("test", "val", "valid", "validation")
Samples = list[tuple[str, int]]
"""Files with the numbers of their classes."""


def convert_folder(name: str, source: Path, size: int, root: Path, show: Show) -> Images:
    """Make a data set of the images in `source`, of any sizes: cropped to the central square and scaled to `size`.

    The folders `train` and `test` (or `val`) are its two parts, with the same classes. Without a test folder, every
    fifth image of each class is for testing. If all images are grey, they get a single channel. An interrupted
    conversion continues where it stopped.
    """
    if not is_own(name):
        raise DataError(f"{name!r} is not a name for your own images; use images, or images/NAME")
    if not source.is_dir():
        raise DataError(f"{source} is not a folder; {_GIVE}")
    for_training, for_testing, classes = _parts(source)
    if len(classes) < 2:
        raise DataError(f"{source} has only the class {classes[0]}; {_GIVE}")
    samples, count = [*for_training, *for_testing], len(for_training)
    y = torch.tensor([label for _, label in samples])
    files, folder = [path for path, _ in samples], root / "converted" / f"{name}.part"
    with data_lock(root, name), pixels_of(files, size, folder, show) as read:
        x = torch.from_numpy(read)
        keep(name, (x[:count], y[:count]), (x[count:], y[count:]), classes, root)
    return images(name, root)


def _parts(source: Path) -> tuple[Samples, Samples, list[str]]:
    """Training images, test images, and their classes."""
    tests = [source / each for each in _TEST_FOLDERS if (source / each).is_dir()]
    if not (source / "train").is_dir() or not tests:
        return _split(source / "train" if _has_folders(source / "train") else source)
    train, test = _image_folder(source / "train"), _image_folder(tests[0])
    if train.classes != test.classes:
        text = f"{source}/train has the classes {', '.join(train.classes)}"
        raise DataError(f"{text}, but {tests[0]} has {', '.join(test.classes)}; make them equal")
    return train.samples, test.samples, train.classes


def _split(folder: Path) -> tuple[Samples, Samples, list[str]]:
    found = _image_folder(folder)
    y = torch.tensor([label for _, label in found.samples])
    held = held_out(y)
    lacking = (y[held].bincount(minlength=len(found.classes)) == 0).nonzero()[:, 0]
    if len(lacking):
        text = f"{folder}: fewer than 5 images of {', '.join(found.classes[i] for i in lacking)}"
        raise DataError(f"{text}, so none is left for testing; add images, or give folders train and test")
    train, test = ([found.samples[i] for i in part.nonzero()[:, 0]] for part in (~held, held))
    return train, test, found.classes


def _has_folders(folder: Path) -> bool:
    """Whether there are folders inside; a folder `train` without folders contains images of trains."""
    return folder.is_dir() and any(each.is_dir() for each in folder.iterdir())


def _image_folder(folder: Path) -> Any:
    try:
        return vision("datasets").ImageFolder(folder)
    except FileNotFoundError as error:
        raise DataError(f"{folder}: {str(error).splitlines()[0]}; {_GIVE}") from None
