"""Text for the terminal: tables, and the progress of a running sweep."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mislabel.sweeps.formatting import duration, value_text

if TYPE_CHECKING:
    from mislabel.sweeps.run.driver import Driver
    from mislabel.sweeps.spec.model import Spec

_LINE_SECONDS = 10.0


def columns(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    """Rows as aligned text; numbers are aligned to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [
        max(len(name), *(len(row[i]) for row in texts), 0) if texts else len(name) for i, name in enumerate(header)
    ]
    right = [all(_is_number(row[i]) for row in texts) and bool(texts) for i in range(len(header))]
    lines = []
    for row in [list(header), *texts]:
        cells = [
            text.rjust(width) if r else text.ljust(width) for text, width, r in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _is_number(text: str) -> bool:
    return bool(text) and (text[0].isdigit() or text[0] in "-–±.")


def progress_text(driver: "Driver", spec: "Spec") -> str:
    """One line: runs done, running, failed, rate, time left, best cell so far."""
    from mislabel.sweeps.store.outcome import Status

    progress = driver.progress
    parts = [f"{progress.done:,}/{progress.runs:,} runs"]
    if progress.running:
        parts.append(f"{progress.running:,} running")
    parts += [f"{n:,} {status}" for status, n in sorted(progress.statuses.items()) if status != Status.DONE]
    if progress.run_steps_per_second is not None:
        parts.append(f"{progress.run_steps_per_second:,.0f} run-steps/s")
    if progress.seconds_left is not None and not driver.stop_reason:
        parts.append(f"{duration(progress.seconds_left)} left")
    if driver.means.best:
        at = ", ".join(f"{name} {value_text(value)}" for name, value in driver.best_cell.items())
        parts.append(f"best {spec.metric[0].name} {value_text(driver.means.best[0])}" + (f" at {at}" if at else ""))
    if driver.stop_reason:
        parts.append("stopping: saving checkpoints")
    return " · ".join(parts)


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many are done, on stderr: on a terminal one line that is updated, otherwise a line every ten seconds."""
    last = time.monotonic()
    live = sys.stderr.isatty()

    def show(done: int, of: int) -> None:
        nonlocal last
        if live or time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            sys.stderr.write(f"\r{what}: {done:,} of {of:,}" if live else f"{what}: {done:,} of {of:,}\n")
            sys.stderr.flush()

    yield show
    if live:
        sys.stderr.write("\r\033[K")


class ProgressLine:
    """Progress on stderr: a bar on a terminal, otherwise a line every ten seconds."""

    def __init__(self, driver: "Driver", spec: "Spec") -> None:
        self.driver = driver
        self.spec = spec
        self._bar: Any = None
        self._last = time.monotonic()

    @contextmanager
    def shown(self) -> Iterator["ProgressLine"]:
        if not sys.stderr.isatty():
            yield self
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.description}"),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=4,
        )
        with progress:
            self._bar = (progress, progress.add_task(progress_text(self.driver, self.spec), total=1.0))
            try:
                yield self
            finally:
                self._bar = None

    def update(self) -> None:
        if self._bar is not None:
            progress, task = self._bar
            progress.update(
                task, description=progress_text(self.driver, self.spec), completed=self.driver.progress.share
            )
        elif time.monotonic() - self._last >= _LINE_SECONDS:
            self._last = time.monotonic()
            sys.stderr.write(progress_text(self.driver, self.spec) + "\n")
            sys.stderr.flush()
