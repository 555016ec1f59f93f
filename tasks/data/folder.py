"""The data folder: where it is, and how files in it are written: atomically, by one process at a time."""

import hashlib
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mislabel.tasks.files import atomic_path, locked

VARIABLE = "MISLABEL_DATA"


def data_folder(given: str | Path | None = None) -> Path:
    """The given folder, else that of the environment variable, else one in the user's cache."""
    chosen = given or os.environ.get(VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else _default_folder()


def folder_option(folder: Path) -> str:
    """The option that makes `mislabel data` use this folder, from any directory; empty for the default folder."""
    return "" if folder == _default_folder() else f" --folder {shlex.quote(str(folder))}"


def chosen_folder() -> str | None:
    """The data folder set for this process, as an absolute path for processes elsewhere; None if not set."""
    chosen = os.environ.get(VARIABLE)
    return _absolute(chosen) if chosen else None


def choose_folder(folder: str | None) -> None:
    """Use this data folder from now on, in this process and those it starts; None changes nothing."""
    if folder:
        os.environ[VARIABLE] = _absolute(folder)


def _absolute(folder: str) -> str:
    """The folder as an absolute path; ~ is resolved by the machine that uses it."""
    return folder if folder.startswith("~") else os.path.abspath(folder)


def shown(path: Path) -> str:
    """The path with ~ for the home folder."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Like `atomic_path`, but creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as unfinished:
        yield unfinished


@contextmanager
def data_lock(folder: Path, name: str) -> Iterator[None]:
    """Let one process of this machine at a time work on the data set `name` in the folder; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f".{name.replace('/', '-')}.lock"):
        yield


def md5_of(path: Path) -> str:
    """The MD5 checksum, as in torchvision: it detects damage, not attacks."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _default_folder() -> Path:
    if sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "mislabel" / "data"
