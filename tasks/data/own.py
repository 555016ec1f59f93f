"""Images of the user's own, from a folder with a folder per class."""

from pathlib import Path
from typing import Any

import torch

from tasks.data.download import Show
from tasks.data.folder import alone
from tasks.data.images import DataError, Images, held_out, images, is_own, keep
from tasks.data.pixels import pixels_of
from tasks.vision import vision

_TEST_FOLDERS = ("test", "val", "valid", "validation")


def convert_folder(name: str, source: Path, size: int, root: Path, show: Show) -> Images:
    """Make a data set of the images in `source`, of any sizes: cut to the middle square and scaled to `size`.

    Folders `train` and `test` (or `val`) are its two parts, with the same classes; without them, every fifth image of
    each class is for testing. Images that are all grey get a single channel. What was interrupted goes on where it was.
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
        for_training, for_testing = train.samples, test.samples
    else:
        train = _found(source)
        held = held_out(torch.tensor([label for _, label in train.samples]))
        for_training, for_testing = ([train.samples[i] for i in part.nonzero()[:, 0]] for part in (~held, held))
    samples, count = [*for_training, *for_testing], len(for_training)
    y = torch.tensor([label for _, label in samples])
    with (
        alone(root, name),
        pixels_of([path for path, _ in samples], size, root / "converted" / f"{name}.part", show) as read,
    ):
        x = torch.from_numpy(read)
        keep(name, x[:count], y[:count], x[count:], y[count:], train.classes, root)
    return images(name, root)


def _found(folder: Path) -> Any:
    try:
        return vision("datasets").ImageFolder(folder)
    except FileNotFoundError as error:
        raise DataError(
            f"{folder}: {str(error).splitlines()[0]}; give a folder with a folder of images per class"
        ) from None
