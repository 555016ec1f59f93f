"""Data sets of images as tensors, with one shared copy per machine.

A data set is converted once, into one file in the data folder. Processes map that file into memory instead of reading
it, so that all packs on a machine share one copy; a GPU has one copy per process. Labels are numbers from 0, in the
order of the classes.
"""

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks import draws
from mislabel.tasks.data.catalogue import SOURCES, Tensors
from mislabel.tasks.data.folder import atomic_file, data_folder, data_lock, folder_option, shown

EMBEDDED = "digits"
OWN = "images"
_OWN_NAME = re.compile(rf"{OWN}(/[\w-]+)?", re.ASCII)
_TENSORS = ("train_x", "train_y", "test_x", "test_y")


class AbsentData(Exception):
    """A data set is not in the data folder; the message has the command that fetches it."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.command = command_for(name, folder)
        super().__init__(f"{name} is not in {shown(folder)}; fetch it with: {self.command}")


class DataError(Exception):
    """A data set, or a part of one, does not exist or can't be used."""


class DamagedData(DataError):
    """The converted file of a data set is damaged; the message has the command that writes it again."""


@dataclass(frozen=True)
class Images:
    """A data set, or a part of one."""

    name: str
    train_x: Tensor  # n c h w, uint8
    train_y: Tensor  # n, int64
    test_x: Tensor
    test_y: Tensor
    classes: tuple[str, ...]
    checksum: str
    """The checksum of the whole data set, also for a part of it."""

    @property
    def tensors(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _TENSORS}

    @property
    def size(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        c, h, w = self.train_x.shape[1:]
        return c, h, w

    def to(self, device: torch.device | str) -> "Images":
        return replace(self, **{name: tensor.to(device) for name, tensor in self.tensors.items()})


def names(folder: str | Path | None = None) -> list[str]:
    """All data sets: ours, whether fetched or not, and the user's own in the data folder."""
    root = data_folder(folder)
    own = [path.relative_to(root / "converted").with_suffix("") for path in root.glob(f"converted/{OWN}/*.pt")]
    return [EMBEDDED, *SOURCES, *[OWN] * _converted(root, OWN).exists(), *sorted(map(str, own))]


def is_own(name: str) -> bool:
    """Whether this is a name for the user's own images: `images`, or `images/` and a word."""
    return bool(_OWN_NAME.fullmatch(name))


def command_for(name: str, folder: Path) -> str:
    """The command that fetches the data set into this data folder."""
    own = " --from FOLDER" if is_own(name) else ""
    return f"mislabel data get {name}{own}{folder_option(folder)}"


def images(name: str, folder: str | Path | None = None) -> Images:
    """The data set with this name.

    Raises AbsentData if it must be fetched first, DataError if the name is unknown, DamagedData if it can't be read.
    """
    return _loaded(name, data_folder(folder))


def fetched(name: str, folder: str | Path | None = None) -> Images:
    """The data set, fetched if it is absent. For tasks, which may run on another machine than the one that planned.

    One process of a machine fetches, while the others wait.
    """
    try:
        return images(name, folder)
    except AbsentData as absent:
        if name not in SOURCES:
            text = "every machine of a cluster needs it; or use a shared folder, see mislabel run --data"
            raise DataError(f"on {platform.node()}, {absent}; {text}") from None
    SOURCES[name].fetch(data_folder(folder), lambda what, done, total: None)
    return images(name, folder)


def checksums(*wanted: str) -> dict[str, str]:
    """The checksum of each data set, for a task's `data`."""
    return {name: images(name).checksum for name in wanted}


@lru_cache(maxsize=16)
def part(
    name: str,
    classes: str = "",
    count: int = 0,
    test_count: int = 0,
    seed: int = 0,
    device: torch.device | str = "cpu",
    folder: str | Path | None = None,
) -> Images:
    """A part of a data set on the device, see `subset`; the same tensors each time. `classes` is a text like "7, 9".

    Tasks call this function. It fetches absent data, see `fetched`.
    """
    return subset(fetched(name, folder), class_words(classes), count, test_count, seed).to(device)


def class_words(classes: str) -> list[str]:
    """The classes in a text such as "7, 9"."""
    return [word.strip() for word in classes.split(",") if word.strip()]


def subset(whole: Images, classes: Sequence[str] = (), count: int = 0, test_count: int = 0, seed: int = 0) -> Images:
    """Only these classes (by name or number), numbered in this order, and only `count` samples of them.

    A count is split evenly over the classes; if it does not divide, the first classes get one more. 0 takes all
    samples. The seed determines which samples are chosen. Samples keep their order.
    """
    chosen = [_class_number(whole, each) for each in classes] or list(range(len(whole.classes)))
    if len(set(chosen)) < len(chosen):
        raise DataError(f"{', '.join(classes)}: names a class of {whole.name} twice; name each class once")
    train = _chosen(whole, whole.train_y, chosen, count, seed, "train")
    test = _chosen(whole, whole.test_y, chosen, test_count, seed, "test")
    names = tuple(whole.classes[i] for i in chosen)
    for places, y, where in ((train, whole.train_y, "training"), (test, whole.test_y, "test")):
        if not len(y if places is None else places):
            text = f"{whole.name} has no {where} images of {', '.join(names)}"
            raise DataError(f"{text}; name other classes, or add images")
    if train is None and test is None and names == whole.classes:
        return whole
    number = torch.full((len(whole.classes),), -1)
    number[chosen] = torch.arange(len(chosen))
    parts = zip(whole.tensors.values(), (train, train, test, test), strict=True)
    train_x, train_y, test_x, test_y = (each if places is None else each[places] for each, places in parts)
    return replace(whole, train_x=train_x, train_y=number[train_y], test_x=test_x, test_y=number[test_y], classes=names)


def keep(name: str, train: Tensors, test: Tensors, classes: Sequence[str], root: Path) -> None:
    """Write the converted file of a data set."""
    tensors = dict(zip(_TENSORS, (*train, *test), strict=True))
    with atomic_file(_converted(root, name)) as path:
        torch.save({**tensors, "classes": list(classes), "checksum": checksum_of(tensors, classes)}, path)
    forget()


def forget() -> None:
    """Forget loaded data sets, so that the data folder is read again."""
    _loaded.cache_clear()
    part.cache_clear()


def checksum_of(tensors: Mapping[str, Tensor], classes: Sequence[str]) -> str:
    """A checksum of pixels and labels, which does not depend on the original files."""
    found = hashlib.sha256(repr([(name, tuple(t.shape)) for name, t in tensors.items()] + list(classes)).encode())
    for tensor in tensors.values():
        found.update(tensor.contiguous().numpy().data)
    return f"sha256:{found.hexdigest()}"


def faults(name: str, folder: str | Path | None = None) -> Iterator[str]:
    """Sentences about what is wrong with a data set in the data folder, after reading all of it."""
    root = data_folder(folder)
    if name in SOURCES and SOURCES[name].is_there(root):
        yield from SOURCES[name].faults(root)
    try:
        _verify(name, root)
    except DamagedData as damage:
        yield str(damage)


def repair(name: str, folder: str | Path | None = None) -> bool:
    """Convert a data set again if its converted file is damaged; returns whether it was."""
    root = data_folder(folder)
    try:
        _verify(name, root)
    except DamagedData:
        with data_lock(root, name):
            keep(name, *SOURCES[name].read(root), root)
        return True
    return False


def _verify(name: str, root: Path) -> None:
    """Read the whole converted file; DamagedData if it is not as it was written."""
    found = images(name, root)
    if checksum_of(found.tensors, found.classes) != found.checksum:
        raise _damaged(name, root)


def _damaged(name: str, root: Path) -> DamagedData:
    return DamagedData(f"{shown(_converted(root, name))} is damaged; write it again with: {command_for(name, root)}")


@cache
def _loaded(name: str, root: Path) -> Images:
    if name == EMBEDDED:
        return _digits()
    if name not in SOURCES and not is_own(name):
        raise DataError(f"{name!r} is not a data set; choose from {', '.join(names(root))}")
    path = _converted(root, name)
    if not path.exists():
        source = SOURCES.get(name)
        if source is None or not source.is_there(root):
            raise AbsentData(name, root)
        with data_lock(root, name):
            if not path.exists():
                if damaged := source.faults(root):
                    raise DataError(f"{'; '.join(damaged)}; fetch it again with: {command_for(name, root)}")
                keep(name, *source.read(root), root)
    try:
        held = torch.load(path, mmap=True, weights_only=True)
        return Images(name, **{**held, "classes": tuple(held["classes"])})
    except OSError as error:
        text = f"{shown(path)} can't be read: {error.strerror}"
        raise DataError(f"{text}; remove it, or change its permissions") from None
    except MemoryError:
        raise
    except Exception as error:  # the type depends on which bytes are wrong
        raise _damaged(name, root) from error


def _converted(root: Path, name: str) -> Path:
    return root / "converted" / f"{name}.pt"


def _digits() -> Images:
    """scikit-learn's digits. Every fifth image of each class is for testing. The largest value, 16, becomes 255."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.from_numpy(found.images * 255 / 16).round().to(torch.uint8)[:, None]
    y = torch.from_numpy(found.target).long()
    test = held_out(y)
    tensors = dict(zip(_TENSORS, (x[~test], y[~test], x[test], y[test]), strict=True))
    classes = tuple(map(str, range(10)))
    return Images(EMBEDDED, **tensors, classes=classes, checksum=checksum_of(tensors, classes))


def held_out(y: Tensor) -> Tensor:
    """True for every fifth sample of each class: the test part of a data set without one."""
    order, counts = y.argsort(stable=True), y.bincount()
    place = torch.empty_like(y)  # index within the class, from 0
    place[order] = torch.arange(len(y)) - (counts.cumsum(dim=0) - counts)[y[order]]
    return place % 5 == 4


def _class_number(whole: Images, word: str) -> int:
    if word in whole.classes:
        return whole.classes.index(word)
    if word.isdecimal() and int(word) < len(whole.classes):
        return int(word)
    raise DataError(f"{word!r} is not a class of {whole.name}; it has {', '.join(whole.classes)}")


def _chosen(whole: Images, y: Tensor, classes: list[int], count: int, seed: int, where: str) -> Tensor | None:
    """The indices of the chosen samples, in order; None for all."""
    if not count:
        if len(classes) == len(whole.classes):
            return None
        return torch.isin(y, torch.tensor(classes)).nonzero()[:, 0]
    taken = []
    for i, number in enumerate(classes):
        wanted = count // len(classes) + (i < count % len(classes))
        places = (y == number).nonzero()[:, 0]
        if wanted > len(places):
            text = f"{wanted:,} {where} samples of class {whole.classes[number]}, but {whole.name} has {len(places):,}"
            raise DataError(f"{text}; take at most {len(places) * len(classes):,} samples of all classes")
        key = draws.keys([seed], f"subset/{whole.name}/{where}/{number}", torch.device("cpu"))
        order = draws.filled(key, 0, len(places), torch.float64, "uniform")[0].argsort(stable=True)
        taken.append(places[order[:wanted]])
    places = torch.cat(taken)
    return places.sort().values if len(places) < len(y) else None
