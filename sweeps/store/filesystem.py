"""Read, write and list whole files in a folder, an object store, or on any other pyarrow file system.

An object store may be unreachable for a while, or limit the rate of requests. Such temporary failures are retried with
growing delays until the caller's time limit. A folder may be on a network file system, which reports errors while its
server restarts. Those are retried for about a second; other errors of a folder are final.
"""

import errno
import hashlib
import os
import random
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow import fs
from pydantic import ValidationError

from mislabel.sweeps.errors import AccessError, StoreError, WrongStoreError
from mislabel.sweeps.redaction import has_secret, redacted
from mislabel.tasks.files import create_exclusively, make_folder, write_atomically

T = TypeVar("T")
PATIENCE_SECONDS = 10.0
"""The time limit for retries of a command that a person waits for."""
LONG_PATIENCE_SECONDS = 180.0
"""The time limit for retries of a running sweep: a server restarts, or a network recovers, within minutes."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "the disk quota is used up; free some space",
    errno.EFBIG: "the file size limit is reached; raise it",
    errno.EACCES: "can't be written; choose another store with --store, or ask for write permission",
    errno.EPERM: "can't be written; choose another store with --store, or ask for write permission",
    errno.EROFS: "is on a read-only file system; choose another store with --store",
    errno.EISDIR: "is a folder where a file is expected; remove it",
    errno.ENOTDIR: "is not a folder; choose another store with --store",
    errno.EMFILE: "this process has too many open files; raise its limit with `ulimit -n`",
    errno.ENFILE: "this machine has too many open files; close some programs",
    errno.EEXIST: "is not a folder; choose another store with --store",
}
# How a folder reports failures that may be temporary, and how often we try.
_PASSING_CODES = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT)
_FOLDER_ATTEMPTS = 6
_FOLDER_PAUSE_SECONDS = 0.03
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
# Most footers of Parquet files are shorter than this.
_FOOTER_BYTES = 64 << 10
CLOCK = ".clock-"
"""The start of the names of files that are written to read the storage's clock."""
# Concurrent requests when many files are read.
_AT_ONCE = 16


Guard = Callable[[], None]


def _allow() -> None:
    """The guard of readers and of processes that share a file system with nobody."""


class FileSystem:
    """The file system of an address. Paths have pyarrow's form: with the bucket, without the scheme."""

    def __init__(self, arrow: Any, patience_seconds: float = PATIENCE_SECONDS, shown: str = "the store") -> None:
        """`shown` is the store's address, as a user would write it."""
        self.arrow = arrow
        self.is_local = isinstance(arrow, fs.LocalFileSystem)
        self._patience_seconds = patience_seconds
        self._shown = shown
        self.guard: Guard = _allow

    def with_patience(self, seconds: float) -> "FileSystem":
        other = FileSystem(self.arrow, seconds, self._shown)
        other.guard = self.guard
        return other

    def guarded(self, guard: "Guard") -> "FileSystem":
        """The same file system, which calls `guard` before every change. The guard may raise a StoreError."""
        other = self.with_patience(self._patience_seconds)
        other.guard = guard
        return other

    def listed(self, folder: str) -> list[Any]:
        """The entries of the folder; empty if it does not exist."""
        if self.is_local:
            return _listed(folder)
        selector = fs.FileSelector(folder, allow_not_found=True)
        return list(self._asked(lambda: self.arrow.get_file_info(selector)))

    def is_folder(self, path: str) -> bool:
        return bool(self._asked(lambda: self.arrow.get_file_info(path)).type == fs.FileType.Directory)

    def is_file(self, path: str) -> bool:
        return bool(self._asked(lambda: self.arrow.get_file_info(path)).type == fs.FileType.File)

    def get(self, path: str) -> bytes | None:
        """The file's content, or None if it does not exist."""
        try:
            return self.with_retries(lambda: b"".join(self._pieces(path)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _pieces(self, path: str) -> Iterator[bytes]:
        with self.with_timeout(lambda: self.arrow.open_input_stream(path)) as stream:
            while piece := self.with_timeout(lambda: stream.read(_PIECE_BYTES)):
                yield piece

    def sha256(self, path: str) -> str:
        """The checksum of the file, as hexadecimal digits."""

        def read() -> str:
            digest = hashlib.sha256()
            for piece in self._pieces(path):
                digest.update(piece)
            return digest.hexdigest()

        return self.with_retries(read)

    def parquet_footer(self, path: str) -> bytes:
        """The end of a Parquet file: its footer, the footer's length, and the magic number."""
        with self.with_timeout(lambda: self.arrow.open_input_file(path)) as file:
            size, wanted = file.size(), _FOOTER_BYTES
            while True:
                file.seek(max(0, size - wanted))
                tail: bytes = self.with_timeout(file.read)
                length = 8 + int.from_bytes(tail[-8:-4], "little")
                if length <= len(tail) or len(tail) == size:
                    return tail[-length:]
                wanted = length

    def put(self, path: str, data: bytes, durable: bool = True) -> None:
        """Write the file completely or not at all: object stores do so, and in a folder we rename a temporary file.

        A file that need not be `durable` may be lost in a power cut, and is written faster.
        """
        self.guard()
        if self.is_local:
            self.with_retries(lambda: _write(Path(path), data, durable))
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

    def create(self, path: str, data: bytes) -> bool:
        """Write the file unless it exists; returns whether it was written. Of several writers, at most one succeeds.

        If none does, an attempt that reported an error has written it. Its content tells whose attempt that was.
        """
        if self.is_local:
            return self.with_retries(lambda: _create(Path(path), data))
        if self.arrow.type_name not in ("s3", "gcs", "abfs"):
            # pyarrow can't create a file exclusively, for example on HDFS: writers at the same moment all succeed.
            exists = self.is_file(path)
            if not exists:
                self.put(path, data)
            return not exists
        from mislabel.sweeps.store.conditional_put import put_if_absent

        region = getattr(self.arrow, "region", None)
        return self._asked(lambda: put_if_absent(self._shown, path, data, region))

    def age_seconds(self, path: str) -> float | None:
        """The time since the file was written, by the storage's own clock; None if there is no such file.

        We write another file next to it and compare their times, because clocks of machines differ.
        """
        written = self.modified(path)
        probe = f"{os.path.dirname(path)}/{CLOCK}{uuid.uuid4().hex}"
        self.put(probe, b"")
        now = self.modified(probe)
        self.remove(probe)
        return None if written is None or now is None else now - written

    def modified(self, path: str) -> float | None:
        """When the file was written, in seconds since 1970; None if there is no such file."""
        info = self._asked(lambda: self.arrow.get_file_info(path))
        return None if info.mtime is None else float(info.mtime.timestamp())

    def remove(self, path: str) -> None:
        self.guard()
        with suppress(FileNotFoundError):  # it did not exist, or an earlier attempt deleted it
            self._asked(lambda: self.arrow.delete_file(path))

    def move(self, path: str, target: str) -> None:
        self.guard()
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
            return _with_attempts(work)
        began, pause = time.monotonic(), _FIRST_PAUSE_SECONDS
        while True:
            try:
                return work()
            except (FileNotFoundError, NotADirectoryError):
                raise
            except OSError as error:
                if _REFUSED.search(str(error)):
                    raise AccessError(f"{self._shown}: denies access ({short(error)}); {_ACCESS_ADVICE}") from None
                if not isinstance(error, TimeoutError | ConnectionError) and not _PASSING.search(str(error)):
                    raise
                waited = time.monotonic() - began
                if waited + pause > self._patience_seconds:
                    found = f"{self._shown}: can't be reached for {waited:.0f} s ({short(error)})"
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


def _write(path: Path, data: bytes, durable: bool) -> None:
    make_folder(path.parent)
    write_atomically(path, data, durable)


def _create(path: Path, data: bytes) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    return create_exclusively(path, data)


def _with_attempts(work: Callable[[], T]) -> T:
    """Call `work`, again if the folder reports an error that may be temporary."""
    for attempt in range(_FOLDER_ATTEMPTS - 1):
        try:
            return work()
        except OSError as error:
            if error.errno not in _PASSING_CODES:
                raise
        time.sleep(_FOLDER_PAUSE_SECONDS * 2**attempt)
    return work()


def _listed(folder: str) -> list[fs.FileInfo]:
    """The entries of a local folder. pyarrow fails if an entry is removed or renamed while it lists them."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    kind = fs.FileType.Directory if entry.is_dir() else fs.FileType.File
                    found.append(fs.FileInfo(entry.path, kind, size=entry.stat().st_size))
    except FileNotFoundError:
        pass
    return found


def opened(address: str, patience_seconds: float = PATIENCE_SECONDS) -> tuple[FileSystem, str]:
    """The file system of a store's address, and the store's path on it."""
    if "://" not in address:
        return FileSystem(fs.LocalFileSystem(), patience_seconds, address), os.path.abspath(address)
    if has_secret(address):
        raise WrongStoreError(
            f"{redacted(address)}: contains a password, which would be "
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


def short(error: Exception) -> str:
    """One line about the error."""
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        return ": ".join(str(part) for part in (".".join(map(str, problem["loc"])), problem["msg"]) if part)[:160]
    found = re.search(r"AWS Error .*", str(error))
    return (found.group() if found else str(error)).splitlines()[0][:160].rstrip(".")


@contextmanager
def as_store_errors(address: str, file: str | None = None) -> Iterator[None]:
    """Turn errors of the file system into a StoreError that says what to do.

    It names the sweep's address, or the file if only this file is the problem.
    """
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, str(error))
        kind = WrongStoreError if error.errno in (errno.ENOTDIR, errno.EEXIST) else StoreError
        is_general = file is None or error.errno in (*_FULL, errno.EROFS)
        raise kind(f"{address if is_general else file}: {advice}, then run the same command again") from None
