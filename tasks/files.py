"""Write a file completely or not at all, and let one process at a time do something.

A file that is moved to its name when it is complete is never read half written, even if the writer is killed.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder. It becomes `path` if the body succeeds, and is removed if not."""
    # The leading dot hides the file from Parquet readers. torch.save refuses a name that is only a suffix.
    unfinished = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        yield unfinished
        with open(unfinished, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write the file; its folder must exist."""
    with atomic_path(path) as unfinished:
        unfinished.write_bytes(data)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of this file, which other processes wait for; filelock.Timeout if it is held and not `wait`.

    The system releases the lock when the process ends, also by a crash. The file stays.
    """
    with FileLock(path, blocking=wait):
        yield
