"""Start and end processes."""

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, suppress
from pathlib import Path

import psutil

from mislabel.sweeps.process import Process, boot

_POLL_SECONDS = 0.1


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
    recent = [process for process in processes if process.started.endswith(boot())]  # since the last boot
    left = [process.pid for process in recent if process.lives or not Process.of(process.pid)]
    while left:
        more = [pid for pid in below[left.pop()] if pid not in found]
        found.update(more)
        left += more
    return [process for pid in sorted(found) if (process := Process.of(pid))]


def oom_kills() -> int:
    """How many processes of this container or machine the system has killed because memory ran out."""
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control", "/proc/vmstat"):
        with suppress(OSError, StopIteration):
            lines = map(str.split, Path(path).read_text().splitlines())
            return next(int(line[1]) for line in lines if line[0] == "oom_kill")
    return 0
