"""A data set of 15 images whose publisher can't be reached."""

import hashlib
from pathlib import Path

import torch

from mislabel.tasks.data.catalogue import Source, Tensors
from mislabel.tasks.data.download import FetchError, Show

PIXELS = bytes(range(60))


def read(root: Path) -> tuple[Tensors, Tensors, tuple[str, ...]]:
    x = torch.frombuffer(bytearray((root / "Tiny" / "pixels").read_bytes()), dtype=torch.uint8).view(15, 1, 2, 2)
    y = torch.arange(15) % 3
    return (x[:12], y[:12]), (x[12:], y[12:]), ("red", "green", "blue")


def write_pixels(to: Path, show: Show) -> None:
    to.mkdir(parents=True, exist_ok=True)
    (to / "pixels").write_bytes(PIXELS)


def _unreachable(to: Path, show: Show) -> None:
    raise FetchError("the publisher can't be reached")


TINY = Source("tiny", "for tests", 0, "Tiny", {"pixels": hashlib.md5(PIXELS).hexdigest()}, _unreachable, read)
