"""Read, write and list whole files in a folder, an object store, or on any other pyarrow file system.

A folder answers at once or not at all. An object store may be out of reach for a while, or slow down who asks too much:
what fails for such a reason is tried again, in growing pauses, for as long as the caller has patience.
"""

import errno
import os
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from mislabel.sweeps.errors import StoreError, WrongStoreError
from mislabel.tasks.files import write_atomically

T = TypeVar("T")
PATIENCE_SECONDS = 10.0
"""Of someone at a terminal."""
LONG_PATIENCE_SECONDS = 180.0
"""Of a sweep: a server is started again, or a network mended, within minutes."""
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
# How the AWS library names what goes away by itself.
_PASSING = re.compile(
    r"NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|THROTTLING|curlCode"
    r"|HTTP status (5\d\d|408|429)|UNAVAILABLE"
)
_REFUSED = re.compile(
    r"ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN|HTTP status 40[13]"
)
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
# A request to a server that hangs never ends by itself.
_HUNG_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 500_000
_PIECE_BYTES = 16 << 20
# Requests that are under way at once where many files are looked at.
_AT_ONCE = 16


class FileSystem:
    """The file system of an address. Paths are as pyarrow has them: with the bucket, without the scheme."""

    def __init__(self, arrow: Any, patience_seconds: float = PATIENCE_SECONDS, shown: str = "the store") -> None:
        self.arrow = arrow
        self.is_local = isinstance(arrow, fs.LocalFileSystem)
        self._patience_seconds = patience_seconds
        self._shown = shown

    def with_patience(self, seconds: float) -> "FileSystem":
        return FileSystem(self.arrow, seconds, self._shown)

    def listed(self, folder: str) -> list[Any]:
        """What is in the folder; nothing where there is none."""
        selector = fs.FileSelector(folder, allow_not_found=True)
        return list(self.with_retries(lambda: self.with_timeout(lambda: self.arrow.get_file_info(selector))))

    def is_file(self, path: str) -> bool:
        info = self.with_retries(lambda: self.with_timeout(lambda: self.arrow.get_file_info(path)))
        return bool(info.type == fs.FileType.File)

    def get(self, path: str) -> bytes | None:
        """The file's content, or None where there is no such file."""
        try:
            return self.with_retries(lambda: self._got(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _got(self, path: str) -> bytes:
        pieces = []
        with self.with_timeout(lambda: self.arrow.open_input_stream(path)) as stream:
            while piece := self.with_timeout(lambda: stream.read(_PIECE_BYTES)):
                pieces.append(piece)
        return b"".join(pieces)

    def put(self, path: str, data: bytes) -> None:
        """Write the whole file or nothing. Object stores do so by themselves; a folder needs a rename."""
        if self.is_local:
            _put_locally(path, data)
            return
        seconds = len(data) / _SLOWEST_BYTES_PER_SECOND
        self.with_retries(lambda: self.with_timeout(lambda: self._put(path, data), seconds))

    def _put(self, path: str, data: bytes) -> None:
        try:
            stream = self.arrow.open_output_stream(path)
        except FileNotFoundError:  # not an object store: it has folders, which must be made
            self.arrow.create_dir(os.path.dirname(path), recursive=True)
            stream = self.arrow.open_output_stream(path)
        with stream:
            stream.write(data)

    def remove(self, path: str) -> None:
        """Delete the file, where there is one."""
        try:
            self.with_retries(lambda: self.with_timeout(lambda: self.arrow.delete_file(path)))
        except FileNotFoundError:  # it was not there, or an answer was lost on its way
            return

    def move(self, path: str, target: str) -> None:
        """Give the file another path, in a folder that is made where it is not there."""
        self.with_retries(lambda: self.arrow.create_dir(os.path.dirname(target), recursive=True))
        try:
            self.with_retries(lambda: self.arrow.move(path, target))
        except FileNotFoundError:
            if not self.is_file(target):  # else it was moved, and the answer was lost on its way
                raise

    def each(self, work: Callable[[str], T], paths: Iterable[str]) -> list[T]:
        """What `work` makes of each path: one after the other in a folder, several at once where each takes a while."""
        if self.is_local:
            return [work(path) for path in paths]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(work, paths))

    def with_retries(self, work: Callable[[], T]) -> T:
        """What `work` returns, which can be done twice; StoreError where the store can't be reached or refuses."""
        if self.is_local:
            return work()
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                return work()
            except (FileNotFoundError, NotADirectoryError):
                raise
            except OSError as error:
                if _REFUSED.search(str(error)):
                    raise StoreError(_refused(self._shown, error)) from None
                if not _passes(error):
                    raise
                waited = time.monotonic() - began
                if waited + pause > self._patience_seconds:
                    raise StoreError(_out_of_reach(self._shown, waited, error)) from None
            # Workers that were thrown back at the same moment should not come again at the same moment.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def with_timeout(self, work: Callable[[], T], more_seconds: float = 0.0) -> T:
        """What `work` returns; TimeoutError where it takes longer than any request should."""
        if self.is_local:
            return work()
        answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

        def answer() -> None:
            try:
                answers.put((work(), None))
            except BaseException as error:
                answers.put((None, error))

        threading.Thread(target=answer, daemon=True).start()
        try:
            result, error = answers.get(timeout=_HUNG_SECONDS + more_seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer within {_HUNG_SECONDS + more_seconds:.0f} s") from None
        if error is not None:
            raise error
        return result  # type: ignore[return-value]


def opened(address: str, patience_seconds: float = PATIENCE_SECONDS) -> tuple[FileSystem, str]:
    """The file system of a store's address, and the store's path on it."""
    if "://" not in address:
        return FileSystem(fs.LocalFileSystem(), patience_seconds, address), os.path.abspath(address)
    if "@" in urlsplit(address).netloc:
        raise WrongStoreError(
            f"{address.split('://')[0]}://…@{address.rpartition('@')[2]}: holds a password, which would be shown and "
            "kept in many places; give it in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    try:
        arrow, root = fs.FileSystem.from_uri(_with_one_request_per_file(address))
    except (OSError, pa.ArrowException) as error:
        raise WrongStoreError(f"{address}: not an address that a store can have: {error}") from None
    return FileSystem(arrow, patience_seconds, address), root.rstrip("/")


def within(address: str, name: str) -> str:
    """The address of something in a store: options come after the path."""
    path, mark, options = address.partition("?") if "://" in address else (address, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{options}"


def _with_one_request_per_file(address: str) -> str:
    """Else pyarrow announces, sends and completes every file, however small."""
    if not address.startswith("s3://") or "allow_delayed_open" in address:
        return address
    return f"{address}{'&' if '?' in address else '?'}allow_delayed_open=true"


def _passes(error: OSError) -> bool:
    return isinstance(error, TimeoutError | ConnectionError) or bool(_PASSING.search(str(error)))


def _out_of_reach(address: str, seconds: float, error: OSError) -> str:
    return f"{address}: can't be reached, tried for {seconds:.0f} s ({_short(error)}); run the same command again later"


def _refused(address: str, error: OSError) -> str:
    return (
        f"{address}: refuses us ({_short(error)}); give every machine AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
        "that may read and write there, or a role, then run the same command again"
    )


def _short(error: OSError) -> str:
    found = re.search(r"AWS Error .*", str(error))
    return (found.group() if found else str(error)).splitlines()[0][:160].rstrip(".")


def _put_locally(path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_atomically(Path(path), data)


@contextmanager
def as_store_errors(address: str) -> Iterator[None]:
    """Errors of the file system in a sentence that says what to do about them."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, str(error))
        kind = WrongStoreError if error.errno in (errno.ENOTDIR, errno.EEXIST) else StoreError
        raise kind(f"{address}: {advice}, then run the same command again") from None
