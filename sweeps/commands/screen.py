"""Text for the terminal: tables, and the progress of a running sweep."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.formatting import duration, value_text

if TYPE_CHECKING:
    from mislabel.sweeps.run.driver import Driver

_LINE_SECONDS = 10.0


def columns(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> str:
    """Rows as aligned text; numbers are aligned to the right."""
    aligned = []
    for name, *cells in zip(header, *rows, strict=True):
        texts = [str(cell) for cell in cells]
        width = max(map(len, [name, *texts]))
        right = bool(texts) and all(text and (text[0].isdigit() or text[0] in "-–±.") for text in texts)
        aligned.append([text.rjust(width) if right else text.ljust(width) for text in [name, *texts]])
    return "\n".join("  ".join(line).rstrip() for line in zip(*aligned, strict=True))


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Names and their values, one pair per line."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)


def progress_text(driver: "Driver") -> str:
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
        parts.append(f"best {driver.means.names[0]} {value_text(driver.means.best[0])}" + (f" at {at}" if at else ""))
    if driver.stop_reason:
        parts.append("stopping: saving checkpoints")
    return " · ".join(parts)


def _now_and_then() -> Callable[[str], None]:
    """A function that writes a line to stderr, at most every ten seconds."""
    last = time.monotonic()

    def write(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_SECONDS:
            last = time.monotonic()
            click.echo(text, err=True)

    return write


@contextmanager
def counting(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many are done, on stderr: on a terminal one line that is updated, otherwise a line every ten seconds."""
    if not sys.stderr.isatty():
        write = _now_and_then()
        yield lambda done, of: write(f"{what}: {done:,} of {of:,}")
        return
    yield lambda done, of: click.echo(f"\r{what}: {done:,} of {of:,}", nl=False, err=True)
    click.echo("\r\033[K", nl=False, err=True)


@contextmanager
def progress_line(driver: "Driver") -> Iterator[Callable[[], None]]:
    """Show progress on stderr at each call: a bar on a terminal, otherwise a line every ten seconds."""
    if not sys.stderr.isatty():
        write = _now_and_then()
        yield lambda: write(progress_text(driver))
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    percentage, description = TextColumn("{task.percentage:>3.0f} %"), TextColumn("{task.description}")
    parts = (SpinnerColumn(), BarColumn(bar_width=24), percentage, description)
    with Progress(*parts, console=Console(stderr=True), transient=True, refresh_per_second=4) as progress:
        bar = progress.add_task(progress_text(driver), total=1.0)
        yield lambda: progress.update(bar, description=progress_text(driver), completed=driver.progress.share)
