"""Read the pixels of many image files into one array, which may be larger than memory.

All cores read the files, in order, into one file on disk; for the largest data sets this takes hours. After an
interruption, or after a file that is not an image, reading continues where it stopped, if the files read so far are
unchanged.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mislabel.tasks.data.download import Show
from mislabel.tasks.data.folder import atomic_file
from mislabel.tasks.data.images import DataError

if TYPE_CHECKING:
    from PIL import Image

# The number of images between two records of progress.
_STRETCH = 256
# Pillow's modes for 32-bit integers and floats: files don't say which value is white.
_WITHOUT_WHITE = ("I", "F")


@contextmanager
def pixels_of(files: Sequence[str], size: int, folder: Path, show: Show) -> Iterator[np.ndarray]:
    """The images as squares of `size` pixels: (n 3 h w), or (n 1 h w) if all are grey.

    Each image is cropped to its central square. Transparent pixels are black. DataError names a file that can't be
    used. The folder is removed if the body of the `with` statement succeeds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    read = _Read(files, size, folder)
    x = read.pixels
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None) as pool:
        for first in range(read.done, len(files), _STRETCH):
            some = files[first : first + _STRETCH]
            for i, square in enumerate(pool.map(lambda file: _square(file, size), some), start=first):
                x[i] = square
                read.grey = read.grey and bool((square[:1] == square).all())
                show("images", i + 1, len(files))
            read.note(first + len(some))
    yield _one_channel(x, folder) if read.grey else x
    shutil.rmtree(folder)


class _Read:
    """The progress of reading, recorded in the folder with a digest of the files read; other files may change."""

    def __init__(self, files: Sequence[str], size: int, folder: Path) -> None:
        self._files, self._note = files, folder / "read.json"
        noted: dict[str, Any] = json.loads(self._note.read_text()) if self._note.exists() else {"done": 0}
        self.done, self.grey = 0, True
        self._found = hashlib.sha256(str(size).encode())
        begun = self._found.copy()
        if noted["done"] and noted["what"] == self._digest(noted["done"]):
            self.done, self.grey = noted["done"], noted["grey"]
        else:
            self._found = begun
        self.pixels = np.memmap(
            folder / "pixels", dtype=np.uint8, mode="r+" if self.done else "w+", shape=(len(files), 3, size, size)
        )

    def note(self, done: int) -> None:
        self.pixels.flush()
        what, self.done = self._digest(done), done
        with atomic_file(self._note) as path:
            path.write_text(json.dumps({"what": what, "done": done, "grey": self.grey}))

    def _digest(self, done: int) -> str:
        """A digest of the first `done` files, by name, size and time."""
        for file in self._files[self.done : done]:
            about = os.stat(file)
            self._found.update(f"\n{file} {about.st_size} {about.st_mtime_ns}".encode())
        return self._found.hexdigest()


def _square(file: str, size: int) -> np.ndarray:
    from PIL import Image, ImageOps

    try:
        with Image.open(file) as image:
            if image.mode in _WITHOUT_WHITE:
                text = f"{file} has pixels of mode {image.mode}, which has no defined brightness"
                raise DataError(f"{text}; convert it to 8 bits")
            upright = _to_rgb(ImageOps.exif_transpose(image))
    except (DataError, MemoryError):
        raise
    except Exception as error:  # each format has its own reader, with its own errors
        reason = str(error) or type(error).__name__
        raise DataError(f"{file} is not an image that can be read: {reason}") from None
    return np.asarray(ImageOps.fit(upright, (size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)


def _to_rgb(image: "Image.Image") -> "Image.Image":
    """The image in 8-bit colours, over black where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))  # Pillow would cut off at 255
    if image.has_transparency_data:
        black = Image.new("RGBA", image.size, (0, 0, 0, 255))
        image = Image.alpha_composite(black, image.convert("RGBA"))
    return image.convert("RGB")


def _one_channel(x: np.ndarray, folder: Path) -> np.ndarray:
    grey = np.memmap(folder / "grey", dtype=np.uint8, mode="w+", shape=(len(x), 1, *x.shape[2:]))
    for first in range(0, len(x), _STRETCH):
        grey[first : first + _STRETCH] = x[first : first + _STRETCH, :1]
    return grey
