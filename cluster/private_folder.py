"""Folders for Ray's sessions that only their owner can enter, and that do not stay behind after a crash.

Ray makes its own folders writable for everybody, so that users of one machine can share them. Whoever can write there
can replace sockets and logs. So Ray's folders are inside a folder that other users can't enter.
"""

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from filelock import Timeout

from mislabel.tasks.files import locked

SHORT = "/tmp"
"""The parent of a folder with sockets. Their paths have at most 107 characters, and TMPDIR may be long."""
_PREFIX = "mislabel-"
_LOCK = "lock"
_ATTEMPTS, _PAUSE_SECONDS = 10, 0.3


def make_private_folder() -> Path:
    """Create a folder with a short path, which stays until it is removed."""
    return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=SHORT))


@contextmanager
def private_folder(parent: str | None = None) -> Iterator[Path]:
    """Create a folder for the time of the body, by default in the folder for temporary files.

    Folders of processes that were killed are removed first. A process holds the lock of its folder while it runs, so
    this works across containers, whose process numbers differ.
    """
    at = Path(parent or tempfile.gettempdir())
    _remove_leftovers(at)
    # It gets its final name when it is locked: then others do not take it for a leftover.
    new = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=at))
    folder = new.with_name(new.name.removeprefix("."))
    with ExitStack() as held:
        held.callback(_remove, folder)
        held.enter_context(locked(new / _LOCK))
        new.rename(folder)
        yield folder


def _remove_leftovers(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, Timeout):
            status = folder.lstat()
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
            if ours and (folder / _LOCK).exists():
                with locked(folder / _LOCK, wait=False):
                    _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the folder, its lock last: what can't be removed now is then recognized as a leftover later.

    Processes of a Ray that was lost may still write files there for a moment.
    """
    for attempts_left in range(_ATTEMPTS - 1, -1, -1):
        for path in folder.glob("*"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != _LOCK:
                path.unlink(missing_ok=True)
        if [path.name for path in folder.glob("*")] in ([], [_LOCK]):
            (folder / _LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # removed by another process, or a file was written since
                folder.rmdir()
            return
        time.sleep(_PAUSE_SECONDS if attempts_left else 0.0)
