"""Show the runs of a pack in the store while they train: their frames so far, and when they are expected to end."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mislabel.sweeps.errors import LeaseLostError, StoreError
from mislabel.sweeps.run.record import Record
from mislabel.sweeps.store.running import RUNNING
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.pack import Frame, Label
from mislabel.tasks.task import Task

_log = logging.getLogger(__name__)
# Rows are written first after this long, so that short packs cost nothing, and then at these intervals: less often if
# writing takes over 0.5 % of the time, but at least once a minute.
FIRST_SECONDS, EVERY_SECONDS, SHARE, LONGEST_SECONDS = 2.0, 10.0, 1 / 200, 60.0
# Expected ends are computed from the steps of at least this long.
RATE_SECONDS = 5.0
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
        # Frames become rows once. Later writes contain the same rows and those of new frames.
        self._new = list(record.frames)
        self._rows: dict[str, pa.Table] = {}
        self._writes = 0
        self._is_reported = False

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due

    def write(self, steps: Mapping[Label, int]) -> None:
        """Write the rows of the running runs, whose present steps these are."""
        began = time.monotonic()
        measured = self._record.last_frames(steps)
        if runs := [run for run in steps if run in measured]:
            changed = self._update(runs) if self._new else {}
            rows = {**changed, "runs": self._running(runs, steps)}
            self._try(lambda: self._files.write_running(self._record.order.id, rows))
        now = time.monotonic()
        if now - self._began >= RATE_SECONDS:
            self.begin(steps)
        spent = now - began if self._writes else 0.0  # the first write also imports modules
        self._writes += 1
        self._due = now + max(EVERY_SECONDS, min(spent / SHARE, LONGEST_SECONDS))

    def add(self, frames: Sequence[Frame]) -> None:
        """Take these frames into the next write."""
        self._new += frames

    def _update(self, runs: Sequence[Label]) -> dict[str, pa.Table]:
        """Rows of `curves` and `arrays` of these runs, with those of new frames."""
        new = {"curves": self._record.curves(self._new), "arrays": self._record.arrays(self._new)}
        has_ended = any(len(frame.labels) != len(runs) for frame in self._new)
        self._new = []
        for table, rows in new.items():
            if rows.num_rows:
                rows = pa.concat_tables([self._rows[table], rows]) if table in self._rows else rows
                self._rows[table] = rows.filter(pc.field("run_id").isin(runs)) if has_ended else rows
        return self._rows

    def begin(self, steps: Mapping[Label, int]) -> None:
        """Note where the runs are. Expected ends are computed from the steps that follow.

        The first steps are slower than others if frames are dense there, so this is repeated.
        """
        self._began = time.monotonic()
        self._first_steps = dict(steps)

    def drop(self) -> None:
        """Remove the pack's rows, because its runs have ended."""
        if self._writes:
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

    def _running(self, runs: Sequence[Label], steps: Mapping[Label, int]) -> pa.Table:
        """Rows of `runs` for running runs."""
        rows = self._record.last_rows(runs, self._task, self._device).drop_columns(["finished_at", "error"])
        rows = rows.set_column(
            rows.column_names.index("status"), "status", pa.array([RUNNING] * len(runs), pa.string())
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
