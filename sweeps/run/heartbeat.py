"""How a running sweep and other processes communicate through the store: progress, and requests to stop."""

import logging
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mislabel.sweeps.errors import MislabelError, StoreError
from mislabel.sweeps.run.lease import Lease, is_held, newest_generation
from mislabel.sweeps.store.outcome import ASKED, StopCause, StopReason
from mislabel.sweeps.store.store import SweepFiles

if TYPE_CHECKING:
    from mislabel.sweeps.run.driver import Driver

_log = logging.getLogger(__name__)
STOP = "stop"
"""The file with the reason why a sweep stops, written by its driver or by `mislabel stop`. It names the generation of
the lease whose holder stops, so that it has no effect on a later one."""
_EVERY_SECONDS = 2.0
# How often a launch that waits for a machine looks for a request to stop.
_STOP_SECONDS = 2.0


class Heartbeat:
    def __init__(self, lease: Lease, driver: "Driver") -> None:
        self.lease = lease
        self.files = lease.files.with_patience(0)  # if writing fails, the next beat comes soon
        self.driver = driver
        self._last = 0.0
        self._stop_written = False

    def beat(self, state: str = "running") -> None:
        """Write the progress, at most every two seconds. If the store fails, the workers report it.

        A driver that has lost its lease stops.
        """
        if self.lease.lost is not None:
            self.driver.break_off(self.lease.lost)
            return
        with suppress(StoreError):
            if self.driver.stop_reason and not self._stop_written:
                _write_stop(self.files, self.lease.generation, self.driver.stop_reason.text)
                self._stop_written = True
            if state == "running" and time.monotonic() - self._last < _EVERY_SECONDS:
                return
            self._last = time.monotonic()
            if not self.driver.stop_reason and (text := requested_stop(self.files, self.lease.generation)):
                self.driver.stop(StopReason(StopCause.ASKED, text))
                self._stop_written = True
            progress, reason = self.driver.progress, self.driver.stop_reason
            _write_progress(
                self.files, state=state, cells=self.driver.plan.cells, runs=progress.runs, done=progress.done,
                running=progress.running, ended_now=dict(progress.statuses), seconds=round(progress.elapsed, 1),
                seconds_left=progress.seconds_left if state == "running" else None,
                stopped_because=reason and reason.text,
            )  # fmt: skip


def note_starting(files: SweepFiles, cells: int, runs: int, done: int) -> None:
    """Write that the sweep is running, before it has a machine. It may wait for one."""
    _write_progress(files, state="running", cells=cells, runs=runs, done=done, running=0)
    files.forget_earlier_progress()


def note_complete(files: SweepFiles, cells: int, runs: int) -> None:
    """Write that the sweep is complete, unless its last driver did."""
    last = files.progress()
    if (last.get("state"), last.get("runs")) != ("done", runs):
        _write_progress(files, state="done", cells=cells, runs=runs, done=runs)


def ask_to_stop(files: SweepFiles) -> None:
    """Ask the driver, on any machine, to checkpoint its packs and end. Raises MislabelError if none is running."""
    if not is_running(files):
        raise MislabelError(f"{files.name} is not running; there is nothing to stop")
    _write_stop(files, newest_generation(files), ASKED.text)


def requested_stop(files: SweepFiles, generation: int) -> str | None:
    """The reason why the holder of this generation stops or should stop; None if it should not."""
    found = files.read_json(STOP)
    if isinstance(found, dict) and found.get("generation") == generation:
        return str(found.get("reason") or ASKED.text)
    return None


@contextmanager
def stoppable_wait(lease: Lease) -> Iterator[Callable[[], None]]:
    """Let `mislabel stop` end a launch that waits for a machine, like Ctrl-C.

    Call the yielded function after the wait: from then on, the driver looks for the request.
    """
    over, waiting = threading.Event(), threading.current_thread()

    def watch() -> None:
        files = lease.files.with_patience(0)
        while not over.wait(_STOP_SECONDS):
            with suppress(StoreError):
                if text := requested_stop(files, lease.generation):
                    _log.info("stopped: %s; the same command continues", text)
                    signal.pthread_kill(waiting.ident or 0, signal.SIGINT)
                    return

    if waiting is not threading.main_thread():  # only the main thread gets signals
        yield over.set
        return
    # A shell lets programs in the background ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield over.set
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)


def forget_earlier_stop(files: SweepFiles) -> None:
    """Remove a request that was meant for an earlier driver."""
    if requested_stop(files, files.generation) is None:
        files.remove(STOP)


def is_running(files: SweepFiles) -> bool:
    """Whether a driver runs the sweep."""
    generation = newest_generation(files)
    return bool(generation) and is_held(files, generation)


def _write_stop(files: SweepFiles, generation: int, reason: str) -> None:
    files.write_json(STOP, {"generation": generation, "reason": reason})


def _write_progress(files: SweepFiles, **progress: Any) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    # The host and process are for people. The lease decides whether the driver runs.
    files.write_progress({**progress, "host": platform.node(), "pid": os.getpid(), "updated_at": now})
