"""Show the runs of a pack in the store while they train: their frames so far, and when they are expected to end."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from mislabel.sweeps.errors import LeaseLostError, StoreError
from mislabel.sweeps.run.record import Record
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.pack import Label
from mislabel.tasks.task import Task

_log = logging.getLogger(__name__)
# Rows are written first after this long, so that short packs cost nothing, and then at these intervals: less often if
# writing takes over 1 % of the time, but at least once a minute.
FIRST_SECONDS, EVERY_SECONDS, SHARE, LONGEST_SECONDS = 2.0, 10.0, 1 / 100, 60.0
_TIME = pa.timestamp("us", tz="UTC")


class LiveRows:
    def __init__(self, files: SweepFiles, record: Record, task: Task[Any], device: str) -> None:
        self._files = files.with_patience(0)  # if writing fails, the next attempt comes soon
        self._record = record
        self._task = task
        self._device = device
        self._began = time.monotonic()
        self._first_steps: dict[Label, int] = {}
        self._due = self._began + FIRST_SECONDS
        self._written_frames: tuple[int, int] | None = None
        self._is_reported = False

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def write(self, steps: Mapping[Label, int]) -> None:
        """Write the rows of the running runs, whose present steps these are."""
        began = time.monotonic()
        measured = self._record.last_steps()
        runs = [run for run in steps if run in measured]
        if runs:
            tables = self._record.tables(runs, self._task, self._device)
            frames = len(self._record.frames), len(runs)
            if frames == self._written_frames:
                tables = {"runs": tables["runs"]}
            rows = {**tables, "runs": self._running(tables["runs"], runs, steps)}
            self._try(lambda: self._files.write_running(self._record.order.id, rows))
            self._written_frames = frames
        now = time.monotonic()
        self._due = now + max(EVERY_SECONDS, min((now - began) / SHARE, LONGEST_SECONDS))

    def begin(self, steps: Mapping[Label, int]) -> None:
        """Note where the runs are. Expected ends are computed from the steps that follow."""
        self._first_steps = dict(steps)

    def drop(self) -> None:
        """Remove the pack's rows, because its runs have ended."""
        if self._written_frames is not None:
            self._try(lambda: self._files.drop_running(self._record.order.id))

    def drop_resumed(self, pack: str) -> None:
        """Remove the rows of a pack whose runs this one continues."""
        self._try(lambda: self._files.drop_running(pack))

    def _try(self, change: Callable[[], None]) -> None:
        """Change the rows. If the store fails, the pack continues: these rows are a view of its checkpoints."""
        try:
            change()
        except LeaseLostError:
            raise
        except StoreError as error:
            if not self._is_reported:
                _log.warning("rows of running runs can't be written: %s", error)
            self._is_reported = True

    def _running(self, rows: pa.Table, runs: Sequence[Label], steps: Mapping[Label, int]) -> pa.Table:
        """Rows of `runs` as rows of running runs."""
        rows = rows.drop_columns(["finished_at", "error"])
        rows = rows.set_column(
            rows.column_names.index("status"), "status", pa.array(["running"] * len(runs), pa.string())
        )
        ends = [
            self._expected_end(run, steps[run], last) for run, last in zip(runs, rows["steps"].to_pylist(), strict=True)
        ]
        columns = {
            "trained_steps": pa.array([steps[run] for run in runs], pa.int64()),
            "updated_at": pa.array([datetime.now(UTC)] * len(runs), _TIME),
            "expected_end": pa.array(ends, _TIME),
        }
        for name, column in columns.items():
            rows = rows.append_column(name, column)
        return rows

    def _expected_end(self, run: Label, step: int, last: int) -> datetime | None:
        made = step - self._first_steps.get(run, 0)
        if made <= 0:
            return None
        seconds = (time.monotonic() - self._began) / made * (last - step)
        return datetime.now(UTC) + timedelta(seconds=seconds)
