"""Processes that we started, known by number and time of start, so that another with the same number is never ended."""

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Process:
    pid: int
    started: str
    """As the system tells it: numbers of processes are used again."""

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """The process that has this number now; None where none has."""
        started = _started(pid)
        return None if started is None else cls(pid, started)

    @classmethod
    def own(cls) -> "Process":
        process = cls.of(os.getpid())
        assert process is not None
        return process

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Process":
        return cls(int(values["pid"]), str(values["started"]))

    def to_json(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started}

    @property
    def lives(self) -> bool:
        return _started(self.pid) == self.started

    @property
    def recent(self) -> bool:
        """Whether it was started since this machine was."""
        return not os.path.isdir("/proc/self") or self.started.endswith(_boot())

    def send(self, number: signal.Signals) -> None:
        """Send the signal, unless the process has ended."""
        if self.lives:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def start(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    """Start the command in a session of its own, apart from this terminal, writing to the log."""
    # Opened so that other users can't read it: what servers say of themselves is not for all.
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            command, env=dict(environment), stdin=subprocess.DEVNULL, stdout=descriptor, stderr=descriptor,
            start_new_session=True, cwd=log.parent,
        )  # fmt: skip
    finally:
        os.close(descriptor)
    # Whoever starts it may not wait for it, and may end before it.
    child.returncode = 0
    return Process.of(child.pid) or Process(child.pid, "ended")


def end(processes: Iterable[Process], seconds: float) -> None:
    """Ask these and all that they have started to end, and kill what has not ended after so long."""
    asked = list(processes)
    family = [*asked, *descendants(asked)]
    orphans = descendants([process for process in asked if not process.lives])
    for process in (*asked, *orphans):
        process.send(signal.SIGTERM)
    if not _ended_within(family, seconds):
        # What was started meanwhile, too.
        family = [*family, *descendants(family)]
        for process in family:
            process.send(signal.SIGKILL)
        _ended_within(family, seconds)


def _ended_within(processes: Sequence[Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while any(process.lives for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def descendants(processes: Iterable[Process]) -> list[Process]:
    """Children of these, their children, and so on; of one that has ended, what is left in the session it led.

    No process gets the number of a session that still has members, so these are not another's.
    """
    known = list(processes)
    below: dict[int, list[int]] = {}
    for pid, (parent, session) in _relations().items():
        below.setdefault(parent, []).append(pid)
        if pid != session and Process.of(session) is None:
            below.setdefault(session, []).append(pid)
    found: set[int] = set()
    left = [process.pid for process in known if process.lives or (process.recent and not Process.of(process.pid))]
    while left:
        more = [pid for pid in below.get(left.pop(), []) if pid not in found]
        found.update(more)
        left += more
    return [process for pid in sorted(found) if (process := Process.of(pid))]


def _relations() -> dict[int, tuple[int, int]]:
    """By number of every process, that of its parent and that of its session."""
    if os.path.isdir("/proc/self"):
        fields = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}
        return {pid: (int(stat[1]), int(stat[3])) for pid, stat in fields.items() if stat}
    shown = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in shown.splitlines())
    return {int(pid): (int(parent), int(pid)) for pid, parent in pairs}


def _started(pid: int) -> str | None:
    """When the process was started; None where it is not there, or has ended and was not waited for."""
    if os.path.isdir("/proc/self"):
        stat = _stat(pid)
        # In ticks since the machine was started, so which start that was belongs to it.
        return None if not stat or stat[0] in "ZX" else f"{stat[19]} of {_boot()}"
    shown = subprocess.run(["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, when = shown.stdout.strip().partition(" ")
    return None if not when or state.startswith("Z") else when.strip()


def _stat(pid: int) -> list[str]:
    """Fields of /proc/<pid>/stat from the third on; the second, a name, may hold anything."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
