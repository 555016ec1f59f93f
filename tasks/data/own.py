"""Images of the user's own, from a folder with a folder per class."""

from pathlib import Path
from typing import Any

import torch

from mislabel.tasks.data.download import Show
from mislabel.tasks.data.folder import alone
from mislabel.tasks.data.images import DataError, Images, held_out, images, is_own, keep
from mislabel.tasks.data.pixels import pixels_of
from mislabel.tasks.data.torchvision_import import vision

_TEST_FOLDERS = ("test", "val", "valid", "validation")
Samples = list[tuple[str, int]]
"""Files, each with the number of its class."""


def convert_folder(name: str, source: Path, size: int, root: Path, show: Show) -> Images:
    """Make a data set of the images in `source`, of any sizes: cut to the middle square and scaled to `size`.

    Folders `train` and `test` (or `val`) are its two parts, with the same classes; without the latter, every fifth
    image of each class is for testing. Images that are all grey get a single channel. What was interrupted goes on
    where it was.
    """
    if not is_own(name):
        raise DataError(f"{name!r} is not a name for images of one's own; use images, or images/WORD")
    if not source.is_dir():
        raise DataError(f"{source} is not a folder; give one with a folder of images per class")
    for_training, for_testing, classes = _parts(source)
    if len(classes) < 2:
        raise DataError(f"{source} has one class alone, {classes[0]}; give a folder with a folder of images per class")
    samples, count = [*for_training, *for_testing], len(for_training)
    y = torch.tensor([label for _, label in samples])
    with (
        alone(root, name),
        pixels_of([path for path, _ in samples], size, root / "converted" / f"{name}.part", show) as read,
    ):
        x = torch.from_numpy(read)
        keep(name, x[:count], y[:count], x[count:], y[count:], classes, root)
    return images(name, root)


def _parts(source: Path) -> tuple[Samples, Samples, list[str]]:
    """Images for training, those for testing, and the classes of both."""
    tests = [source / each for each in _TEST_FOLDERS if (source / each).is_dir()]
    if not (source / "train").is_dir() or not tests:
        return _split(source / "train" if _has_folders(source / "train") else source)
    train, test = _found(source / "train"), _found(tests[0])
    if train.classes != test.classes:
        text = f"{source}/train has the classes {', '.join(train.classes)}"
        raise DataError(f"{text}, {tests[0]} has {', '.join(test.classes)}; they should be the same")
    return train.samples, test.samples, train.classes


def _split(folder: Path) -> tuple[Samples, Samples, list[str]]:
    found = _found(folder)
    y = torch.tensor([label for _, label in found.samples])
    held = held_out(y)
    lacking = (y[held].bincount(minlength=len(found.classes)) == 0).nonzero()[:, 0]
    if len(lacking):
        text = f"{folder}: there are fewer than 5 images of {', '.join(found.classes[i] for i in lacking)}, of which"
        raise DataError(f"{text} every fifth is for testing; add images, or give folders train and test")
    train, test = ([found.samples[i] for i in part.nonzero()[:, 0]] for part in (~held, held))
    return train, test, found.classes


def _has_folders(folder: Path) -> bool:
    """A folder `train` that has none holds images of trains."""
    return folder.is_dir() and any(each.is_dir() for each in folder.iterdir())


def _found(folder: Path) -> Any:
    try:
        return vision("datasets").ImageFolder(folder)
    except FileNotFoundError as error:
        raise DataError(
            f"{folder}: {str(error).splitlines()[0]}; give a folder with a folder of images per class"
        ) from None
