"""Where data sets lie, and how files there are written: whole or not at all, by one process at a time."""

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
    """The folder that is given, else that of the environment variable, else one in the user's cache."""
    chosen = given or os.environ.get(VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else _usual_folder()


def folder_option(folder: Path) -> str:
    """What `mislabel data` must be told to look there, wherever it is typed; nothing for the user's cache."""
    return "" if folder == _usual_folder() else f" --folder {shlex.quote(str(folder))}"


def chosen_folder() -> str | None:
    """The folder that this process was told of, for processes elsewhere: they have another folder to start from."""
    chosen = os.environ.get(VARIABLE)
    return _wherever(chosen) if chosen else None


def choose_folder(folder: str | None) -> None:
    """Look for data sets there from now on, in this process and those it starts; None leaves it as it is."""
    if folder:
        os.environ[VARIABLE] = _wherever(folder)


def _wherever(folder: str) -> str:
    """The folder as it is written in any other folder; ~ is left to the machine that it is read on."""
    return folder if folder.startswith("~") else os.path.abspath(folder)


def shown(path: Path) -> str:
    """The path as people write it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Like `atomic_path`, but creates the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as unfinished:
        yield unfinished


@contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """Let one process of this machine at a time work on the data set `name` in the folder; others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f".{name.replace('/', '-')}.lock"):
        yield


def md5_of(path: Path) -> str:
    """As torchvision gives them: they tell damage, not malice."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _usual_folder() -> Path:
    return _cache() / "mislabel" / "data"


def _cache() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
