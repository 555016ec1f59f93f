"""Let a fault happen at one operation on a store: a crash, an error, a pause.

`tapped` intercepts every call that changes files below a folder: creating, writing, renaming, linking, removing, fsync.
On an object store it intercepts the requests that change objects. Operations are counted, so that a case can name one.
"""

import builtins
import hashlib
import io
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from mislabel.sweeps.store.filesystem import FileSystem

T = TypeVar("T")
WRITES = ("create", "write", "mkdir", "put", "link", "rename", "fsync")
"""Kinds of operations that need space."""
CHANGES = (*WRITES, "remove", "move")
"""All kinds of operations."""


Half = Callable[[], Callable[[], None]]


@dataclass(frozen=True)
class Operation:
    number: int
    """From 1."""
    kind: str
    path: str

    def __str__(self) -> str:
        return f"{self.number} {self.kind} {self.path}"


class Fault:
    """What happens at operations. This one does nothing."""

    one_at_a_time = False
    """Whether the operations of several threads wait for each other."""

    def before(self, operation: Operation) -> None:
        pass

    def during(self, operation: Operation, half: Half) -> None:
        """Called for a write. `half` writes the first half of the data, and returns a function that undoes that."""

    def after(self, operation: Operation) -> None:
        pass


@dataclass(frozen=True)
class Crash(Fault):
    """End the process at an operation, without cleaning up."""

    number: int
    moment: str
    """before, during or after"""
    CODE = 77

    def before(self, operation: Operation) -> None:
        if self.moment == "before" and operation.number == self.number:
            os._exit(self.CODE)

    def during(self, operation: Operation, half: Half) -> None:
        if self.moment == "during" and operation.number == self.number:
            half()
            os._exit(self.CODE)

    def after(self, operation: Operation) -> None:
        if self.moment == "after" and operation.number == self.number:
            os._exit(self.CODE)


@dataclass(frozen=True)
class Error(Fault):
    """Let an operation, and with `stays` all later ones, fail with this error number. A write gets half-way."""

    number: int
    errno: int
    stays: bool = True
    kinds: tuple[str, ...] = WRITES

    def _hits(self, operation: Operation) -> bool:
        later = operation.number > self.number and self.stays
        return operation.kind in self.kinds and (operation.number == self.number or later)

    def before(self, operation: Operation) -> None:
        if self._hits(operation) and operation.kind != "write":
            raise OSError(self.errno, os.strerror(self.errno), operation.path)

    def during(self, operation: Operation, half: Half) -> None:
        if self._hits(operation):
            half()
            raise OSError(self.errno, os.strerror(self.errno), operation.path)


class Snapshots(Fault):
    """Copy the store before, during and after each operation: a driver that ends at this moment leaves this behind.

    Many moments leave the same content. It is copied once.
    """

    one_at_a_time = True

    def __init__(self, store: str, folder: str) -> None:
        self._store, self._folder = Path(store), Path(folder)
        self.states: dict[str, list[str]] = {}
        """By the name of the copy's folder: the moments with this content."""

    def before(self, operation: Operation) -> None:
        self._take("before", operation)

    def during(self, operation: Operation, half: Half) -> None:
        undo = half()
        self._take("during", operation)
        undo()

    def after(self, operation: Operation) -> None:
        self._take("after", operation)

    def _take(self, moment: str, operation: Operation) -> None:
        digest = hashlib.sha256()
        for path in sorted(self._store.rglob("*")):
            digest.update(f"{path.relative_to(self._store)} {path.is_dir()} ".encode())
            if path.is_file():
                digest.update(path.read_bytes())
        name = digest.hexdigest()
        if name not in self.states:
            if self._store.exists():
                shutil.copytree(self._store, self._folder / name)
            self.states[name] = []
        self.states[name].append(f"{moment} {operation}")


class Flaky(Fault):
    """Let a share of the operations fail."""

    def __init__(self, share: float, errno: int, seed: int) -> None:
        self._share = share
        self._errno = errno
        self._random = random.Random(seed)

    def before(self, operation: Operation) -> None:
        if operation.kind in WRITES and self._random.random() < self._share:
            raise OSError(self._errno, os.strerror(self._errno), operation.path)


@dataclass(frozen=True)
class Slow(Fault):
    """Let every so-many-th operation take long."""

    every: int
    seconds: float

    def before(self, operation: Operation) -> None:
        if operation.number % self.every == 0:
            time.sleep(self.seconds)


@dataclass(frozen=True)
class Pause(Fault):
    """Stop the process, as SIGSTOP does, before an operation."""

    number: int

    def before(self, operation: Operation) -> None:
        if operation.number == self.number:
            os.kill(os.getpid(), signal.SIGSTOP)


class Tap(Fault):
    """Counts operations and passes them on to a fault."""

    def __init__(self, root: str, fault: Fault) -> None:
        self._root = root
        self._fault = fault
        self._lock = threading.Lock()
        self._turn = threading.RLock() if fault.one_at_a_time else nullcontext()
        self.operations: list[Operation] = []

    def concerns(self, path: Any) -> bool:
        return isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self._root)

    def does(self, kind: str, path: Any, work: Callable[[], T]) -> T:
        with self._turn:
            operation = self._next(kind, path)
            self._fault.before(operation)
            result = work()
            self._fault.after(operation)
            return result

    def writes(self, path: str, half: Half, work: Callable[[], T]) -> T:
        with self._turn:
            operation = self._next("write", path)
            self._fault.before(operation)
            self._fault.during(operation, half)
            result = work()
            self._fault.after(operation)
            return result

    def _next(self, kind: str, path: Any) -> Operation:
        with self._lock:
            operation = Operation(len(self.operations) + 1, kind, os.fspath(path).removeprefix(self._root).lstrip("/"))
            self.operations.append(operation)
        return operation


class _Stream:
    """A file that is open for writing. Its writes are operations."""

    def __init__(self, tap: Tap, path: str, stream: Any) -> None:
        self._tap, self._path, self._stream = tap, path, stream

    def write(self, data: Any) -> Any:
        def half() -> Callable[[], None]:
            start = self._stream.tell()
            self._stream.write(data[: len(data) // 2])
            self._stream.flush()
            return lambda: (self._stream.seek(start), self._stream.truncate(), None)[-1]

        def whole() -> Any:
            written = self._stream.write(data)
            self._stream.flush()
            return written

        return self._tap.writes(self._path, half, whole)

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stream)


@contextmanager
def tapped(root: str, fault: Fault | None = None) -> Iterator[list[Operation]]:
    """Intercept operations on the store at this path while the body runs; yields the list of those that happened."""
    tap = Tap(root, fault or Fault())
    with mock.patch.multiple(os, **_local_calls(tap)), mock.patch.multiple(FileSystem, **_methods(tap)):
        opened = _open(tap, builtins.open)
        with mock.patch.object(builtins, "open", opened), mock.patch.object(io, "open", opened):
            yield tap.operations


def _open(tap: Tap, real: Any) -> Any:
    def opened(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        if not set(mode) & set("wxa+") or not tap.concerns(file):
            return real(file, mode, *more, **options)
        creates = "w" in mode or "x" in mode or not os.path.exists(file)

        def call() -> Any:
            return real(file, mode, *more, **options)

        stream = tap.does("create", file, call) if creates else call()
        return _Stream(tap, os.path.abspath(file), stream)

    return opened


def _local_calls(tap: Tap) -> dict[str, Any]:
    def on_path(name: str, kind: str, changes: Callable[[Any], bool]) -> Any:
        real = getattr(os, name)

        def call(path: Any, *more: Any, **options: Any) -> Any:
            if not tap.concerns(path) or not changes(path):
                return real(path, *more, **options)
            return tap.does(kind, more[0] if kind in ("rename", "link") else path, lambda: real(path, *more, **options))

        return call

    real_fsync, real_open = os.fsync, os.open

    def fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if tap.concerns(path):
            tap.does("fsync", path, lambda: real_fsync(descriptor))
        else:
            real_fsync(descriptor)

    def opened(path: Any, flags: int, *more: Any, **options: Any) -> int:
        if not flags & os.O_CREAT or not tap.concerns(path) or os.path.exists(path):
            return real_open(path, flags, *more, **options)
        return tap.does("create", path, lambda: real_open(path, flags, *more, **options))

    def is_there(path: Any) -> bool:
        return os.path.lexists(path)

    return {
        "replace": on_path("replace", "rename", is_there),
        "rename": on_path("rename", "rename", is_there),
        "link": on_path("link", "link", is_there),
        "unlink": on_path("unlink", "remove", is_there),
        "remove": on_path("remove", "remove", is_there),
        "rmdir": on_path("rmdir", "remove", is_there),
        "mkdir": on_path("mkdir", "mkdir", lambda path: not os.path.exists(path)),
        "fsync": fsync,
        "open": opened,
    }


def _methods(tap: Tap) -> dict[str, Any]:
    """Methods of our file system whose calls Python does not see: those of pyarrow."""
    put, remove, move = FileSystem.put, FileSystem.remove, FileSystem.move

    def tapped_put(self: FileSystem, path: str, data: bytes, durable: bool = True) -> None:
        if self.is_local:
            put(self, path, data, durable)
        else:
            tap.does("put", path, lambda: put(self, path, data, durable))

    def tapped_remove(self: FileSystem, path: str) -> None:
        if self.is_local and not Path(path).exists():
            remove(self, path)
        else:
            tap.does("remove", path, lambda: remove(self, path))

    def tapped_move(self: FileSystem, path: str, target: str) -> None:
        tap.does("move", path, lambda: move(self, path, target))

    return {"put": tapped_put, "remove": tapped_remove, "move": tapped_move}
