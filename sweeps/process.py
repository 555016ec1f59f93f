"""Identify a process by its number, start time and machine, because numbers are reused."""

import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil


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


def _started(pid: int) -> str:
    # Not psutil's time since 1970: it changes whenever the clock is set.
    while True:
        booted = psutil.boot_time()
        since_boot = psutil.Process(pid).create_time() - booted
        if psutil.boot_time() == booted:
            return f"{round(since_boot * os.sysconf('SC_CLK_TCK'))} of {boot()}"


def age_seconds() -> float:
    """How long this process has been running."""
    return max(0.0, time.time() - float(psutil.Process().create_time()))


@cache
def boot() -> str:
    """Identifies the last boot of this machine."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return str(psutil.boot_time())


@cache
def numbering() -> str:
    """Identifies the set of process numbers that this process sees: two containers of a machine have their own."""
    with suppress(OSError):
        return f"{boot()} {os.readlink('/proc/self/ns/pid')}"
    return boot()
