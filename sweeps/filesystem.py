"""Read, write and list whole files on any pyarrow file system: a folder, or an object store."""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyarrow import fs

from sweeps.errors import StoreError

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "the file size limit is reached; raise it",
    errno.EACCES: "may not be written; give another store with --store, or the right to write here",
    errno.EPERM: "may not be written; give another store with --store, or the right to write here",
    errno.EROFS: "is on a read-only file system; give another store with --store",
    errno.ENOTDIR: "is not a folder; give another store with --store",
    errno.EEXIST: "is not a folder; give another store with --store",
}


def listed(filesystem: Any, folder: str) -> list[Any]:
    """What is in the folder; nothing where there is none."""
    return list(filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)))


def is_file(filesystem: Any, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type == fs.FileType.File)


def get(filesystem: Any, path: str) -> bytes | None:
    """The file's content, or None where there is no such file."""
    try:
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None


def put(filesystem: Any, path: str, data: bytes) -> None:
    """Write the whole file or nothing. Object stores do so by themselves; a folder needs a rename."""
    if isinstance(filesystem, fs.LocalFileSystem):
        _put_locally(path, data)
        return
    try:
        stream = filesystem.open_output_stream(path)
    except FileNotFoundError:  # not an object store: it has folders, which must be made
        filesystem.create_dir(os.path.dirname(path), recursive=True)
        stream = filesystem.open_output_stream(path)
    with stream:
        stream.write(data)


def _put_locally(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # A leading dot hides the unfinished file from Parquet readers.
    unfinished = os.path.join(os.path.dirname(path), f".{uuid.uuid4().hex}")
    try:
        with open(unfinished, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


@contextmanager
def as_store_errors(address: str) -> Iterator[None]:
    """Errors of the file system in a sentence that says what to do about them."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, str(error))
        raise StoreError(f"{address}: {advice}, then run the same command again") from None
