"""The fault suite: `make faults` breaks something on purpose, many times, and checks what a sweep does about it.

A topic is a module of this folder with a function `cases(full)`. It yields cases, which are run one by one while the
function is suspended. So it can start what its cases share before the first one, and end that after the last one. If it
yields a list of cases, they run in parallel threads, one per core; they start processes and wait for them. With `full`
it yields everything, which may take hours; without, a sample for `make test-all`.

A topic that starts a Ray or a server has `MARKS = ("ray",)`: the marks of its sample.
"""

import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mislabel.sweeps.formatting import duration

HERE = Path(__file__).parent
RECORD = HERE / "results.json"
"""The table of the last complete run, which the documentation shows."""
HEADER = ("topic", "what is broken", "cases", "passed", "failed", "skipped", "time")


@dataclass(frozen=True)
class Case:
    what: str
    """What is broken and how. Cases with the same text share a row of the table."""
    name: str
    """Finds the case within its row, such as the number of the operation."""
    run: Callable[[Path], None]
    """Gets an empty folder. Raises if the sweep did something wrong, and calls pytest.skip if it can't run here."""
    count: int = 1
    """How many cases this one stands for, such as the fuzzed specs that it tries."""
    seconds: float = 600.0
    """The case fails if it takes longer."""


@dataclass
class Row:
    """The cases of a topic that broke the same thing."""

    topic: str
    what: str
    cases: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reasons: list[str] = field(default_factory=list)
    """Why cases were skipped."""

    @property
    def texts(self) -> tuple[str, ...]:
        counts = (self.cases, self.passed, self.failed, self.skipped)
        return (self.topic, self.what, *(f"{count:,}" for count in counts), duration(self.seconds))


@dataclass(frozen=True)
class Failure:
    topic: str
    case: Case
    error: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.case.what}: {self.case.name}\n{self.error}"


def topics() -> list[str]:
    """The modules of this folder that have cases."""
    names = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith(("_", "test_")))
    return [name for name in names if hasattr(module_of(name), "cases")]


def module_of(topic: str) -> Any:
    return importlib.import_module(f"tests.faults.{topic}")


def marks_of(topic: str) -> tuple[str, ...]:
    return tuple(getattr(module_of(topic), "MARKS", ()))


class Suite:
    """Runs topics and counts."""

    def __init__(self, show: Callable[[str], None] = lambda text: None, limit: bool = True) -> None:
        """`show` gets a line whenever something has happened. With `limit`, a case that takes too long fails."""
        self._show = show
        self._limit = limit
        self._lock = threading.Lock()
        self.rows: list[Row] = []
        self.failures: list[Failure] = []

    def run(self, topic: str, full: bool, wanted: str = "", every: int = 1) -> None:
        """Run the topic's cases, or those with this text in their row or name, or every nth of a list."""
        with closing(_cases(topic, full)) as groups, ThreadPoolExecutor(os.cpu_count()) as pool:
            for group in groups:
                found = [case for case in group if wanted in f"{case.what} {case.name}"][::every]
                if len(found) == 1:
                    self._run(topic, found[0])  # in the main thread, which gets signals
                else:
                    list(pool.map(partial(self._run, topic), found))

    def _run(self, topic: str, case: Case) -> None:
        began, failure, skipped = time.monotonic(), "", ""
        try:
            with scratch(topic) as folder, _within(case.seconds if self._limit else 0.0):
                case.run(folder)
        except pytest.skip.Exception as reason:
            skipped = str(reason)
        except (Exception, pytest.fail.Exception):
            failure = traceback.format_exc()
        with self._lock:
            row = self._row(topic, case.what)
            row.cases += case.count
            row.seconds += time.monotonic() - began
            if failure:
                row.failed += case.count
                self.failures.append(Failure(topic, case, failure))
                self._show(f"FAILED {self.failures[-1]}")
            elif skipped:
                row.skipped += case.count
                row.reasons = sorted({*row.reasons, skipped})
            else:
                row.passed += case.count
            self._show(f"{topic}: {case.what}: {row.cases:,} cases, {row.failed:,} failed, {duration(row.seconds)}")

    def _row(self, topic: str, what: str) -> Row:
        for row in self.rows:
            if (row.topic, row.what) == (topic, what):
                return row
        self.rows.append(Row(topic, what))
        return self.rows[-1]

    @property
    def table(self) -> str:
        """The rows as aligned text."""
        lines = [HEADER, *(row.texts for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
        aligned = ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines]
        reasons = sorted({f"skipped: {reason}" for row in self.rows for reason in row.reasons})
        return "\n".join([*(line.rstrip() for line in aligned), *reasons])


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """An empty folder, in memory if there is room: fsync on a disk takes most of the time of a tiny sweep."""
    memory = Path("/dev/shm")
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    folder = Path(tempfile.mkdtemp(prefix=f"faults-{name}-", dir=memory if has_room else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _cases(topic: str, full: bool) -> Generator[list[Case], None, None]:
    """The topic's cases, in lists. Closing this generator closes that of the topic."""
    found: Iterable[Case | list[Case]] = module_of(topic).cases(full)
    try:
        for each in found:
            yield each if isinstance(each, list) else [each]
    finally:
        if isinstance(found, Generator):
            found.close()


def recorded(rows: Sequence[Row], before: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The record with these rows instead of those of the same topics."""
    run = {row.topic for row in rows}
    kept = [row for row in before if row["topic"] not in run]
    return sorted([*kept, *map(asdict, rows)], key=lambda row: str(row["topic"]))


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the body after this long; 0 is no limit."""
    if not seconds or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the case takes longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def progress_on_stderr() -> Callable[[str], None]:
    """Shows failures at once, and other lines in place on a terminal, or every ten seconds elsewhere."""
    last = time.monotonic()

    def show(text: str) -> None:
        nonlocal last
        on_terminal = sys.stderr.isatty()
        if text.startswith("FAILED"):
            sys.stderr.write(f"{chr(10) if on_terminal else ''}{text}\n")
        elif on_terminal:
            sys.stderr.write(f"\r\x1b[K{text[:150]}")
        elif time.monotonic() - last > 10:
            last = time.monotonic()
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    return show
