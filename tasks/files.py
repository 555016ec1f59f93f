"""Write a file completely or not at all, and let one process at a time do something.

A file that is moved to its name when it is complete is never read half written, even if the writer is killed. After a
power cut, the file is there if the content and the folder were written to disk before: both are synchronized.
"""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

UNFINISHED = ".*.part"
"""A pattern for the names of unfinished files."""
_ATTEMPTS = 3


@contextmanager
def atomic_path(path: Path, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path in the same folder. It becomes `path` if the body succeeds, and is removed if not."""
    # The leading dot hides the file from Parquet readers. torch.save refuses a name that is only a suffix.
    unfinished = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        yield unfinished
        if durable:
            with open(unfinished, "rb+") as file:
                os.fsync(file.fileno())
        os.replace(unfinished, path)
        if durable:
            _sync_folder(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes, durable: bool = True) -> None:
    """Write the file; its folder must exist. A file that is not `durable` may be lost in a power cut.

    A process that removes unfinished files of killed writers may also remove ours. We then write it again.
    """
    for attempts_left in range(_ATTEMPTS - 1, -1, -1):
        try:
            with atomic_path(path, durable) as unfinished:
                unfinished.write_bytes(data)
            return
        except FileNotFoundError:
            if not attempts_left or not path.parent.is_dir():
                raise


def make_folder(path: Path) -> None:
    """Create the folder and those above it, as far as they do not exist, so that they survive a power cut."""
    missing = [folder for folder in (path, *path.parents) if not folder.is_dir()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        _sync_folder(folder.parent)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems can't synchronize folders
            raise
    finally:
        os.close(descriptor)


def create_exclusively(path: Path, data: bytes) -> bool:
    """Write the file unless it exists; returns whether it was written. Of several writers, exactly one succeeds.

    Like `write_atomically`, this begins again if another process removes the unfinished file.
    """
    for attempts_left in range(_ATTEMPTS - 1, -1, -1):
        try:
            return _created(path, data)
        except FileNotFoundError:
            if not attempts_left or not path.parent.is_dir():
                raise
    return False


def _created(path: Path, data: bytes) -> bool:
    unfinished = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        with open(unfinished, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(unfinished, path)  # a rename would replace a file of that name
    except FileExistsError:
        return False
    finally:
        unfinished.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of this file, which other processes wait for; filelock.Timeout if it is held and not `wait`.

    The system releases the lock when the process ends, also by a crash. The file stays.
    """
    with FileLock(path, blocking=wait):
        yield
