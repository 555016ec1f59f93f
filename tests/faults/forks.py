"""Commands in processes that start within milliseconds: forks of a server that has imported everything.

A case of the fault suite runs a sweep twice or more. Python, torch and pyarrow take seconds to import; a fork takes
milliseconds. The server forks nothing but what is asked of it and starts no threads, so forking it is safe.
"""

import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

MODULES = ["tests.faults.preloaded"]
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(MODULES)
# Starting a process also reads the exit codes of all others, and an exit code can be read only once. Without this lock,
# a thread that starts a process takes the exit code of another thread's, which then gets 255 instead.
_EXIT_CODES = threading.Lock()


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    """Its exit code; negative for a signal."""
    out: str
    err: str

    def expect(self, *codes: int) -> "Ended":
        """This, if it has one of these exit codes and shows no traceback; else an AssertionError with its output."""
        assert self.code in codes, f"exit code {self.code} instead of {codes}\n{self.err}"
        assert "Traceback (most recent call last)" not in self.err, f"a traceback\n{self.err}"
        return self


class Forked:
    """A function that runs in a fork. Its stdout and stderr go to files."""

    def __init__(self, work: Callable[..., Any], *arguments: Any, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._paths = [folder / f"{id(self):x}.{name}" for name in ("out", "err")]
        self._process = _CONTEXT.Process(
            target=_child, args=(list(map(str, self._paths)), work, arguments), daemon=False
        )
        with _EXIT_CODES:
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        with _EXIT_CODES:
            return self._process.is_alive()

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return _text(self._paths[1])

    def ended(self, seconds: float = 120.0) -> Ended:
        """Wait for its end. It is killed, and TimeoutError raised, if that takes longer than this."""
        wait([self._process.sentinel], seconds)
        if self.runs:
            self.kill()
            raise TimeoutError(f"the process did not end within {seconds:g} s\n{self.err}")
        assert self._process.exitcode is not None
        return Ended(self._process.exitcode, *map(_text, self._paths))

    def kill(self) -> None:
        with _EXIT_CODES:
            self._process.kill()
        wait([self._process.sentinel])
        with _EXIT_CODES:
            self._process.join()


def forked(work: Callable[..., Any], *arguments: Any, folder: Path, seconds: float = 120.0) -> Ended:
    """Run the function in a fork, and wait for its end."""
    return Forked(work, *arguments, folder=folder).ended(seconds)


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _child(paths: list[str], work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    for path, stream in zip(paths, (sys.stdout, sys.stderr), strict=True):
        stream.flush()
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(target, stream.fileno())
        os.close(target)
    code = 0
    try:
        work(*arguments)
    except SystemExit as ended:
        code = int(ended.code or 0) if not isinstance(ended.code, str) else 1
    except BaseException:
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the work must not keep the process alive, as they do not in a program that calls sys.exit.
    os._exit(code)


def mislabel(*words: str) -> None:
    """The command line, in this process. Exits as the command does."""
    from mislabel.sweeps.commands.main import main

    sys.argv = ["mislabel", *words]
    main()
