"""How a running sweep and other processes communicate through the store: progress, and requests to stop."""

import os
import platform
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psutil

from mislabel.sweeps.errors import MislabelError, StoreError, SweepBusyError
from mislabel.sweeps.store.outcome import ASKED, StopCause, StopReason
from mislabel.sweeps.store.store import SweepFiles

if TYPE_CHECKING:
    from mislabel.sweeps.run.driver import Driver

FILE = "progress.json"
STOP = "stop"
"""The file with the reason why a sweep stops, written by its driver or by `mislabel stop`."""
_EVERY_SECONDS = 2.0
# A driver on another machine that has not written its progress for this long counts as dead.
_SILENT_SECONDS = 60.0


class Heartbeat:
    def __init__(self, files: SweepFiles, driver: "Driver") -> None:
        self.files = files.with_patience(0)  # if writing fails, the next beat comes soon
        self.driver = driver
        self._last = 0.0
        self._stop_written = False

    def beat(self, state: str = "running") -> None:
        """Write the progress, at most every two seconds. If the store fails, the workers report it."""
        with suppress(StoreError):
            if self.driver.stop_reason and not self._stop_written:
                self.files.write_text(STOP, self.driver.stop_reason.text)
                self._stop_written = True
            if state == "running" and time.monotonic() - self._last < _EVERY_SECONDS:
                return
            self._last = time.monotonic()
            if not self.driver.stop_reason and (text := self.files.read_text(STOP)):
                self.driver.stop(StopReason(StopCause.ASKED, text))
                self._stop_written = True
            progress, reason = self.driver.progress, self.driver.stop_reason
            _write_progress(
                self.files, state=state, cells=self.driver.plan.cells, runs=progress.runs, done=progress.done,
                running=progress.running, ended_now=dict(progress.statuses), seconds=round(progress.elapsed, 1),
                seconds_left=progress.seconds_left if state == "running" else None,
                stopped_because=reason and reason.text,
            )  # fmt: skip


def ask_to_stop(files: SweepFiles) -> None:
    """Ask the driver, on any machine, to checkpoint its packs and end. Raises MislabelError if none is running."""
    if not alive(files.read_json(FILE)):
        raise MislabelError(f"{files.name} is not running; there is nothing to stop")
    files.write_text(STOP, ASKED.text)


def note_complete(files: SweepFiles, cells: int, runs: int) -> None:
    """Write that the sweep is complete, unless its last driver did."""
    last = files.read_json(FILE) or {}
    if (last.get("state"), last.get("runs")) != ("done", runs):
        _write_progress(files, state="done", cells=cells, runs=runs, done=runs)


def _write_progress(files: SweepFiles, **progress: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    files.write_json(FILE, {**progress, "host": platform.node(), "pid": os.getpid(), "updated_at": now})


def alive(progress: dict[str, Any] | None) -> bool:
    """Whether the driver that wrote this progress is still running."""
    if not progress or progress.get("state") != "running":
        return False
    if progress["host"] == platform.node():
        try:
            return bool(psutil.Process(progress["pid"]).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
        except psutil.AccessDenied:
            return True
    silent = datetime.now(UTC) - datetime.fromisoformat(progress["updated_at"])
    return silent.total_seconds() < _SILENT_SECONDS


def refuse_if_running(files: SweepFiles) -> None:
    progress = files.read_json(FILE)
    if alive(progress) and (progress["host"], progress["pid"]) != (platform.node(), os.getpid()):
        raise SweepBusyError(
            f"{files.name} is being run by process {progress['pid']} on {progress['host']} "
            f"({progress['done']} of {progress['runs']} runs); wait for it, or stop it first"
        )
