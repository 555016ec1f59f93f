"""Read, write and list whole files in a folder, an object store, or on any other pyarrow file system.

A folder answers at once or fails. An object store may be unreachable for a while, or limit the rate of requests.
Such temporary failures are retried with growing delays until the caller's time limit.
"""

import errno
import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from mislabel.sweeps.errors import StoreError, WrongStoreError
from mislabel.tasks.files import write_atomically

T = TypeVar("T")
PATIENCE_SECONDS = 10.0
"""The time limit for retries of a command that a person waits for."""
LONG_PATIENCE_SECONDS = 180.0
"""The time limit for retries of a running sweep: a server restarts, or a network recovers, within minutes."""
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "the file size limit is reached; raise it",
    errno.EACCES: "can't be written; choose another store with --store, or ask for write permission",
    errno.EPERM: "can't be written; choose another store with --store, or ask for write permission",
    errno.EROFS: "is on a read-only file system; choose another store with --store",
    errno.ENOTDIR: "is not a folder; choose another store with --store",
    errno.EEXIST: "is not a folder; choose another store with --store",
}
# How the AWS library names temporary failures.
_PASSING = re.compile(
    r"NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|REQUEST_TIMEOUT|THROTTLING|curlCode"
    r"|HTTP status (5\d\d|408|429)|UNAVAILABLE"
)
_REFUSED = re.compile(
    r"ACCESS_DENIED|SIGNATURE_DOES_NOT_MATCH|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN|HTTP status 40[13]"
)
_ACCESS_ADVICE = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY with read and write access on every machine, or a role, "
    "then run the same command again"
)
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0
# A request to a server that hangs never ends, so we give up after this long.
_HUNG_SECONDS = 60.0
_SLOWEST_BYTES_PER_SECOND = 500_000
_PIECE_BYTES = 16 << 20
# Concurrent requests when many files are read.
_AT_ONCE = 16


class FileSystem:
    """The file system of an address. Paths have pyarrow's form: with the bucket, without the scheme."""

    def __init__(self, arrow: Any, patience_seconds: float = PATIENCE_SECONDS, shown: str = "the store") -> None:
        self.arrow = arrow
        self.is_local = isinstance(arrow, fs.LocalFileSystem)
        self._patience_seconds = patience_seconds
        self._shown = shown

    def with_patience(self, seconds: float) -> "FileSystem":
        return FileSystem(self.arrow, seconds, self._shown)

    def listed(self, folder: str) -> list[Any]:
        """The entries of the folder; empty if it does not exist."""
        selector = fs.FileSelector(folder, allow_not_found=True)
        return list(self._asked(lambda: self.arrow.get_file_info(selector)))

    def is_file(self, path: str) -> bool:
        return bool(self._asked(lambda: self.arrow.get_file_info(path)).type == fs.FileType.File)

    def get(self, path: str) -> bytes | None:
        """The file's content, or None if it does not exist."""
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
        """Write the file completely or not at all: object stores do so, and in a folder we rename a temporary file."""
        if self.is_local:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_atomically(Path(path), data)
        else:
            self._asked(lambda: self._put(path, data), len(data) / _SLOWEST_BYTES_PER_SECOND)

    def _put(self, path: str, data: bytes) -> None:
        try:
            stream = self.arrow.open_output_stream(path)
        except FileNotFoundError:  # not an object store: the folder must exist
            self.arrow.create_dir(os.path.dirname(path), recursive=True)
            stream = self.arrow.open_output_stream(path)
        with stream:
            stream.write(data)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):  # it did not exist, or an earlier attempt deleted it
            self._asked(lambda: self.arrow.delete_file(path))

    def move(self, path: str, target: str) -> None:
        self.with_retries(lambda: self.arrow.create_dir(os.path.dirname(target), recursive=True))
        try:
            self.with_retries(lambda: self.arrow.move(path, target))
        except FileNotFoundError:
            if not self.is_file(target):  # else an earlier attempt moved it
                raise

    def each(self, work: Callable[[str], T], paths: Iterable[str]) -> list[T]:
        """The results of `work` for each path. On an object store, several requests run at once."""
        if self.is_local:
            return [work(path) for path in paths]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(work, paths))

    def with_retries(self, work: Callable[[], T]) -> T:
        """Call `work`, repeatedly if it fails temporarily. Raises StoreError if the store can't be used."""
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
                    raise StoreError(f"{self._shown}: denies access ({_short(error)}); {_ACCESS_ADVICE}") from None
                if not isinstance(error, TimeoutError | ConnectionError) and not _PASSING.search(str(error)):
                    raise
                waited = time.monotonic() - began
                if waited + pause > self._patience_seconds:
                    found = f"{self._shown}: can't be reached for {waited:.0f} s ({_short(error)})"
                    raise StoreError(f"{found}; run the same command again later") from None
            # Random delays, so that workers that failed at the same moment do not retry at the same moment.
            time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def with_timeout(self, work: Callable[[], T], more_seconds: float = 0.0) -> T:
        """Call `work`. Raises TimeoutError if it takes longer than any request should."""
        if self.is_local:
            return work()
        answer: Future[T] = Future()

        def wait_for_answer() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=wait_for_answer, daemon=True).start()
        if not wait([answer], _HUNG_SECONDS + more_seconds).done:
            raise TimeoutError(f"no answer within {_HUNG_SECONDS + more_seconds:.0f} s")
        return answer.result()

    def _asked(self, work: Callable[[], T], more_seconds: float = 0.0) -> T:
        return self.with_retries(lambda: self.with_timeout(work, more_seconds))


def opened(address: str, patience_seconds: float = PATIENCE_SECONDS) -> tuple[FileSystem, str]:
    """The file system of a store's address, and the store's path on it."""
    if "://" not in address:
        return FileSystem(fs.LocalFileSystem(), patience_seconds, address), os.path.abspath(address)
    if "@" in urlsplit(address).netloc:
        raise WrongStoreError(
            f"{address.split('://')[0]}://…@{address.rpartition('@')[2]}: contains a password, which would be "
            "shown and stored in many places; set it in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    uri = address
    if address.startswith("s3://") and "allow_delayed_open" not in address:
        # This option lets pyarrow send a small file in one request instead of three.
        uri += f"{'&' if '?' in address else '?'}allow_delayed_open=true"
    try:
        arrow, root = fs.FileSystem.from_uri(uri)
    except (OSError, pa.ArrowException) as error:
        raise WrongStoreError(f"{address}: is not the address of a store: {error}") from None
    return FileSystem(arrow, patience_seconds, address), root.rstrip("/")


def within(address: str, name: str) -> str:
    """The address of something in a store. Options stay at the end of the address."""
    path, mark, options = address.partition("?") if "://" in address else (address, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{options}"


def _short(error: OSError) -> str:
    found = re.search(r"AWS Error .*", str(error))
    return (found.group() if found else str(error)).splitlines()[0][:160].rstrip(".")


@contextmanager
def as_store_errors(address: str) -> Iterator[None]:
    """Turn errors of the file system into a StoreError that says what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, str(error))
        kind = WrongStoreError if error.errno in (errno.ENOTDIR, errno.EEXIST) else StoreError
        raise kind(f"{address}: {advice}, then run the same command again") from None


class Files:
    """The folder of one sweep. File names are relative to it."""

    def __init__(self, filesystem: FileSystem, root: str, name: str, store: str) -> None:
        """`name` is the sweep's name; `store` is the address of the store."""
        self._fs = filesystem
        self._root = root
        self.name = name
        self.store = store
        self.address = within(store, name)
        """The folder's address, as a user would write it."""
        self.is_local = filesystem.is_local

    def read_bytes(self, file: str) -> bytes | None:
        """The file's content, or None if it does not exist."""
        return self._fs.get(f"{self._root}/{file}")

    def write(self, file: str, data: bytes) -> None:
        with as_store_errors(self.address):
            self._fs.put(f"{self._root}/{file}", data)

    def read_text(self, file: str) -> str | None:
        data = self.read_bytes(file)
        return None if data is None else data.decode()

    def write_text(self, file: str, text: str) -> None:
        self.write(file, text.encode())

    def append_text(self, file: str, text: str) -> None:
        """Append to the file. An object store has to read and write all of it."""
        if self.is_local:
            with as_store_errors(self.address), open(f"{self._root}/{file}", "a") as stream:
                stream.write(text)
        else:
            self.write_text(file, (self.read_text(file) or "") + text)

    def read_json(self, file: str) -> Any:
        """The file's value, or None if it does not exist or is damaged."""
        try:
            return json.loads(self.read_bytes(file) or b"null")
        except ValueError:
            return None

    def write_json(self, file: str, value: Any) -> None:
        self.write_text(file, json.dumps(value, indent=1))

    def remove(self, file: str) -> None:
        self._fs.remove(f"{self._root}/{file}")

    def names(self, folder: str) -> list[str]:
        """Names of the files in a subfolder, sorted."""
        with as_store_errors(self.address):
            found = self._fs.listed(f"{self._root}/{folder}")
        return sorted(i.base_name for i in found if i.type == fs.FileType.File and not i.base_name.startswith("."))
