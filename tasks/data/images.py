"""Data sets of images as tensors: one place that gives them, the same bytes to every pack of a machine.

A data set is converted once, into one file of the data folder. Processes map that file into memory instead of reading
it, so that all packs on a machine share one copy of it; a GPU has one copy per process. Labels are numbers from 0, in
the order of the classes.
"""

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

import torch
from torch import Tensor

from mislabel.tasks.data.catalogue import SOURCES, Source
from mislabel.tasks.data.folder import alone, data_folder, folder_option, shown, written_whole

EMBEDDED = "digits"
OWN = "images"
_OWN_NAME = re.compile(rf"{OWN}(/[\w-]+)?", re.ASCII)
_LARGEST_DIGIT = 16


class AbsentData(Exception):
    """A data set is not where it is looked for; the message says what to type."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.command = command_for(name, folder)
        super().__init__(f"{name} is not in {shown(folder)}; fetch it with: {self.command}")


class DataError(Exception):
    """A data set, or a part of one, that does not exist or can't be used."""


class DamagedData(DataError):
    """The file that processes share is not as it was written; the message says what to type."""


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
    """Of the whole data set, whatever part this is."""

    @property
    def size(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        c, h, w = self.train_x.shape[1:]
        return c, h, w

    def to(self, device: torch.device | str) -> "Images":
        moved = {name: getattr(self, name).to(device) for name in ("train_x", "train_y", "test_x", "test_y")}
        return replace(self, **moved)


def names(folder: str | Path | None = None) -> list[str]:
    """Data sets that there are or could be: ours, and the user's own that are there."""
    root = data_folder(folder)
    own = [path.relative_to(root / "converted").with_suffix("") for path in root.glob(f"converted/{OWN}/*.pt")]
    return [EMBEDDED, *SOURCES, *[OWN] * _converted(root, OWN).exists(), *sorted(map(str, own))]


def is_own(name: str) -> bool:
    """Whether the name is one for images of the user's own: `images`, or `images/` and a word."""
    return bool(_OWN_NAME.fullmatch(name))


def command_for(name: str, folder: Path) -> str:
    """What to type to have the data set in that data folder."""
    own = " --from FOLDER" if is_own(name) else ""
    return f"mislabel data get {name}{own}{folder_option(folder)}"


def images(name: str, folder: str | Path | None = None) -> Images:
    """The data set of that name.

    AbsentData where it must be fetched first, DataError where the name is unknown, DamagedData where it can't be read.
    """
    return _loaded(name, data_folder(folder))


def fetched(name: str, folder: str | Path | None = None) -> Images:
    """The data set, fetched where it is absent: for tasks, on a machine other than the one where it was asked for.

    Of a machine's processes one fetches, while the others wait.
    """
    try:
        return images(name, folder)
    except AbsentData as absent:
        if name not in SOURCES:
            text = "every machine of a cluster must have it, or use a folder that all share, see mislabel run --data"
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
    """A part of a data set on the device, see `subset`; the same tensors each time. `classes` is as in "7, 9".

    This is what tasks call, once the data was found where a sweep is planned: see `fetched`.
    """
    return subset(fetched(name, folder), class_words(classes), count, test_count, seed).to(device)


def class_words(classes: str) -> list[str]:
    """The classes that a text such as "7, 9" names."""
    return [word.strip() for word in classes.split(",") if word.strip()]


def subset(whole: Images, classes: Sequence[str] = (), count: int = 0, test_count: int = 0, seed: int = 0) -> Images:
    """These classes alone (by name or number), numbered in this order, and so many samples of them.

    A count takes as many of each class, the first classes one more where it does not divide; 0 takes all there are.
    Which ones is drawn by the seed. Samples keep their order.
    """
    chosen = [_class_number(whole, each) for each in classes] or list(range(len(whole.classes)))
    if len(set(chosen)) < len(chosen):
        raise DataError(f"{', '.join(classes)}: a class of {whole.name} is named twice; name each once")
    train = _chosen(whole, whole.train_y, chosen, count, seed, "train")
    test = _chosen(whole, whole.test_y, chosen, test_count, seed, "test")
    number = torch.full((len(whole.classes),), -1)
    number[chosen] = torch.arange(len(chosen))
    train_x, train_y = _cut(whole.train_x, whole.train_y, train, number)
    test_x, test_y = _cut(whole.test_x, whole.test_y, test, number)
    names = tuple(whole.classes[i] for i in chosen)
    for y, where in ((train_y, "training"), (test_y, "test")):
        if not len(y):
            text = f"{whole.name} has no {where} images of {', '.join(names)}"
            raise DataError(f"{text}; name classes that have some, or add images")
    if train is None and test is None and names == whole.classes:
        return whole
    return replace(whole, train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y, classes=names)


def _cut(x: Tensor, y: Tensor, places: Tensor | None, number: Tensor) -> tuple[Tensor, Tensor]:
    """Images at these places, which are not copied where that is all of them, and labels by their new number."""
    return (x, number[y]) if places is None else (x[places], number[y[places]])


def convert(name: str, folder: str | Path | None = None) -> Images:
    """Make the file that processes share out of a data set's own files, which must be there; the data set."""
    _convert(SOURCES[name], data_folder(folder))
    return images(name, folder)


def _convert(source: Source, root: Path) -> None:
    train, test, classes = source.read(root)
    keep(source.name, *train, *test, classes, root)


def keep(
    name: str, train_x: Tensor, train_y: Tensor, test_x: Tensor, test_y: Tensor, classes: Sequence[str], root: Path
) -> None:
    """Write a data set in the form in which it is shared."""
    tensors = {"train_x": train_x, "train_y": train_y, "test_x": test_x, "test_y": test_y}
    with written_whole(_converted(root, name)) as path:
        torch.save({**tensors, "classes": list(classes), "checksum": checksum_of(tensors, classes)}, path)
    forget()


def forget() -> None:
    """Look into the data folder anew when next asked."""
    _loaded.cache_clear()
    part.cache_clear()


def checksum_of(tensors: Mapping[str, Tensor], classes: Sequence[str]) -> str:
    """A checksum of pixels and labels, in order: the same for the same data, whatever files it came in."""
    found = hashlib.sha256(repr([(name, tuple(t.shape)) for name, t in tensors.items()] + list(classes)).encode())
    for tensor in tensors.values():
        found.update(tensor.contiguous().numpy().data)
    return f"sha256:{found.hexdigest()}"


def faults(name: str, folder: str | Path | None = None) -> Iterator[str]:
    """What is wrong with a data set that is there, after reading all of it."""
    root = data_folder(folder)
    if name in SOURCES and SOURCES[name].is_there(root):
        yield from SOURCES[name].faults(root)
    try:
        _verify(name, root)
    except DamagedData as damage:
        yield str(damage)


def mend(name: str, folder: str | Path | None = None) -> bool:
    """Convert a data set anew where the file that processes share is damaged; whether it was."""
    root = data_folder(folder)
    try:
        _verify(name, root)
    except DamagedData:
        with alone(root, name):
            _convert(SOURCES[name], root)
        return True
    return False


def _verify(name: str, root: Path) -> None:
    """Read all of the file that processes share; DamagedData where it is not as it was written."""
    found = images(name, root)
    tensors = {"train_x": found.train_x, "train_y": found.train_y, "test_x": found.test_x, "test_y": found.test_y}
    if checksum_of(tensors, found.classes) != found.checksum:
        raise _damaged(name, root)


def _damaged(name: str, root: Path) -> DamagedData:
    return DamagedData(f"{shown(_converted(root, name))} is damaged; make it anew with: {command_for(name, root)}")


@cache
def _loaded(name: str, root: Path) -> Images:
    if name == EMBEDDED:
        return _digits()
    if name not in SOURCES and not is_own(name):
        raise DataError(f"{name!r} is not a data set; there are {', '.join(names(root))}")
    path = _converted(root, name)
    if not path.exists():
        source = SOURCES.get(name)
        if source is None or not source.is_there(root):
            raise AbsentData(name, root)
        with alone(root, name):
            if not path.exists():
                if damaged := source.faults(root):
                    raise DataError(f"{'; '.join(damaged)}; fetch it again with: {command_for(name, root)}")
                _convert(source, root)
    try:
        held = torch.load(path, mmap=True, weights_only=True)
        return Images(name, **{**held, "classes": tuple(held["classes"])})
    except OSError as error:
        raise DataError(f"{shown(path)} can't be read: {error.strerror}; remove it, or allow it to be read") from None
    except MemoryError:
        raise
    except Exception as error:  # of any kind: which one depends on which bytes are wrong
        raise _damaged(name, root) from error


def _converted(root: Path, name: str) -> Path:
    return root / "converted" / f"{name}.pt"


def _digits() -> Images:
    """scikit-learn's digits; every fifth of each class is for testing. Of 17 shades, the lightest becomes 255."""
    from sklearn.datasets import load_digits

    found = load_digits()
    x = torch.from_numpy(found.images * 255 / _LARGEST_DIGIT).round().to(torch.uint8)[:, None]
    y = torch.from_numpy(found.target).long()
    test = held_out(y)
    tensors = {"train_x": x[~test], "train_y": y[~test], "test_x": x[test], "test_y": y[test]}
    classes = tuple(map(str, range(10)))
    return Images(EMBEDDED, **tensors, classes=classes, checksum=checksum_of(tensors, classes))


def held_out(y: Tensor) -> Tensor:
    """True for every fifth sample of each class: the test part of data that comes without one."""
    order, counts = y.argsort(stable=True), y.bincount()
    place = torch.empty_like(y)  # within its class, from 0
    place[order] = torch.arange(len(y)) - (counts.cumsum(dim=0) - counts)[y[order]]
    return place % 5 == 4


def _class_number(whole: Images, word: str) -> int:
    if word in whole.classes:
        return whole.classes.index(word)
    if word.isdecimal() and int(word) < len(whole.classes):
        return int(word)
    raise DataError(f"{word!r} is not a class of {whole.name}; it has {', '.join(whole.classes)}")


def _chosen(whole: Images, y: Tensor, classes: list[int], count: int, seed: int, where: str) -> Tensor | None:
    """Places of the chosen samples, in order; None for all."""
    if not count:
        if len(classes) == len(whole.classes):
            return None
        return torch.isin(y, torch.tensor(classes)).nonzero()[:, 0]
    taken = []
    for i, number in enumerate(classes):
        wanted = count // len(classes) + (i < count % len(classes))
        places = (y == number).nonzero()[:, 0]
        if wanted > len(places):
            text = f"{wanted:,} {where} samples of class {whole.classes[number]}, of which {whole.name} has"
            raise DataError(f"{text} {len(places):,}; ask for at most {len(places) * len(classes):,} in all")
        order = _order(seed, f"{whole.name}/{where}/{number}", len(places))
        taken.append(places[order[:wanted]])
    places = torch.cat(taken)
    return places.sort().values if len(places) < len(y) else None


def _order(seed: int, name: str, count: int) -> Tensor:
    from mislabel.tasks import draws

    key = draws.keys([seed], f"subset/{name}", torch.device("cpu"))
    return draws.filled(key, 0, count, torch.float64, "uniform")[0].argsort(stable=True)
