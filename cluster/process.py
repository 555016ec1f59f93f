"""Start and end processes. A process is identified by its number and start time, because numbers are reused."""

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Process:
    pid: int
    started: str
    """Clock ticks from the machine's boot to the start of the process, and the boot's id."""

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has this number now; None if there is none, or if it has ended and waits to be reaped."""
        try:
            process = psutil.Process(pid)
            ended = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
            return None if ended else cls(pid, _started(pid))
        except psutil.NoSuchProcess:
            return None

    @classmethod
    def own(cls) -> "Process":
        process = cls.of(os.getpid())
        assert process is not None
        return process

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Process":
        return cls(int(values["pid"]), str(values["started"]))

    @property
    def lives(self) -> bool:
        return Process.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send the signal, unless the process has ended."""
        if self.lives:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


@contextmanager
def working_directory(folder: str) -> Iterator[None]:
    """Start processes in this directory. Relative entries of PYTHONPATH still refer to the present one."""
    given = os.environ.get("PYTHONPATH")
    if given:
        os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, given.split(os.pathsep))))
    try:
        with chdir(folder):
            yield
    finally:
        if given:
            os.environ["PYTHONPATH"] = given


def start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    """Start the command in a new session, detached from this terminal. Its output goes to the log."""
    # Other users must not read what servers log.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor,
            start_new_session=True, cwd=log.parent,
        )  # fmt: skip
    finally:
        os.close(descriptor)
    # This process may end before its child, and never waits for it; without this, Popen warns.
    child.returncode = 0
    return Process.of(child.pid) or Process(child.pid, "ended")


def end(processes: Iterable[Process], seconds: float) -> None:
    """Send SIGTERM to the processes. Kill those that still run after this many seconds, with their descendants."""
    asked = list(processes)
    family = [*asked, *descendants(asked)]
    orphans = descendants([process for process in asked if not process.lives])
    for process in (*asked, *orphans):
        process.send(signal.SIGTERM)
    if not _ended_within(family, seconds):
        # Include processes that were started in the meantime.
        family = [*family, *descendants(family)]
        for process in family:
            process.send(signal.SIGKILL)
        _ended_within(family, seconds)


def _ended_within(processes: Sequence[Process], seconds: float) -> bool:
    # psutil.wait_procs would reap our children, and their exit codes would be lost.
    deadline = time.monotonic() + seconds
    while any(process.lives for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def descendants(processes: Iterable[Process]) -> list[Process]:
    """Their children, the children's children and so on; for a process that has ended, the rest of its session.

    The system does not reuse the number of a session that still has members, so these belong to no other process.
    """
    below = defaultdict[int, list[int]](list)
    for process in psutil.process_iter(["ppid"]):
        below[process.info["ppid"]].append(process.pid)
        with suppress(OSError):
            session = os.getsid(process.pid)
            if process.pid != session and Process.of(session) is None:
                below[session].append(process.pid)
    found: set[int] = set()
    recent = [process for process in processes if process.started.endswith(_boot())]  # since the last boot
    left = [process.pid for process in recent if process.lives or not Process.of(process.pid)]
    while left:
        more = [pid for pid in below[left.pop()] if pid not in found]
        found.update(more)
        left += more
    return [process for pid in sorted(found) if (process := Process.of(pid))]


def _started(pid: int) -> str:
    # Not psutil's time since 1970: it changes whenever the clock is set.
    while True:
        booted = psutil.boot_time()
        since_boot = psutil.Process(pid).create_time() - booted
        if psutil.boot_time() == booted:
            return f"{round(since_boot * os.sysconf('SC_CLK_TCK'))} of {_boot()}"


@cache
def _boot() -> str:
    """Identifies the last boot of this machine."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return str(psutil.boot_time())
