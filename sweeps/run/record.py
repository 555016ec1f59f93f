"""What the runs of a pack measure, and the rows of the store's tables made of it."""

import platform
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.tasks.pack import Frame, Label, is_among
from mislabel.tasks.task import Task

_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
_TIME = pa.timestamp("us", tz="UTC")


class Record:
    """What the runs of one order have measured so far. When runs end, it becomes rows of the store's tables."""

    def __init__(self, order: PackOrder) -> None:
        self.order = order
        self.frames: list[Frame] = []
        self.seconds: defaultdict[Label, float] = defaultdict(float)
        """Training time of each run: its share of the pack's time."""
        self.commits = {order.commit} - {""}
        """Commits of the code that trained these runs: several if a later launch resumed a checkpoint."""
        self.started_at = datetime.now(UTC)
        self._lanes = {run: lane for lane, run in enumerate(order.run_ids)}

    def spend(self, seconds: float, steps: Mapping[Label, int]) -> None:
        """Divide the time of a stretch between the runs that trained, in proportion to their steps."""
        total = sum(steps.values())
        for run, made in steps.items():
            self.seconds[run] += seconds * (made / total if total else 1 / len(steps))

    def add(self, frames: Iterable[Frame], seconds: Mapping[Label, float], runs: Collection[Label]) -> None:
        """Add what a checkpoint has of these runs."""
        kept = ((frame, is_among(frame.labels, runs)) for frame in frames)
        self.frames += [frame.select(keep) for frame, keep in kept if keep.any()]
        for run in runs:
            self.seconds[run] += seconds.get(run, 0.0)

    def forget(self, runs: Collection[Label]) -> None:
        kept = ((frame, ~is_among(frame.labels, runs)) for frame in self.frames)
        self.frames = [frame.select(keep) for frame, keep in kept if keep.any()]

    def last_frames(self, runs: Iterable[Label]) -> dict[Label, tuple[Frame, int]]:
        """The last frame of each of these runs that has one, and the run's place in it."""
        missing, found = set(runs), {}
        for frame in reversed(self.frames):
            if not missing:
                break
            for i, run in enumerate(frame.labels.tolist()):
                if run in missing:
                    found[run] = frame, i
                    missing.discard(run)
        return found

    def outcomes(self, runs: Sequence[Label], names: Sequence[str] | None = None) -> list[Outcome]:
        """How each of these runs ended: its last frame, with all metrics or those in `names`."""
        last = self.last_frames(runs)
        outcomes = []
        for run in runs:
            frame, i = last[run]
            stopped = Status.STOPPED if frame.stopped[i] else Status.DONE
            status = Status.DIVERGED if frame.diverged[i] else stopped
            metrics = {name: float(frame.metrics[name][i]) for name in (frame.metrics if names is None else names)}
            lane = self._lanes[str(run)]
            outcomes.append(Outcome(self.order.cells[lane], self.order.seeds[lane], status, metrics, frame.step))
        return outcomes

    def tables(self, runs: Sequence[Label], task: Task[Any], device: str) -> dict[str, pa.Table]:
        """Rows of `runs`, `curves` and `arrays` for these runs, all of which have ended."""
        frames = [frame.select(is_among(frame.labels, runs)) for frame in self.frames]
        frames = [frame for frame in frames if len(frame.labels)]
        return {
            "runs": self.last_rows(runs, task, device),
            "curves": self.curves(frames),
            "arrays": self.arrays(frames),
        }

    def last_rows(self, runs: Sequence[Label], task: Task[Any], device: str) -> pa.Table:
        """Rows of `runs` with the metrics of each run's last frame."""
        outcomes = self.outcomes(runs)
        table = self.rows(outcomes, task, device)
        for name in outcomes[0].metrics:
            values = pa.array([outcome.metrics[name] for outcome in outcomes], pa.float64(), from_pandas=False)
            table = table.append_column(name, values)
        return table

    def rows(self, outcomes: Sequence[Outcome], task: Task[Any], device: str, error: str = "") -> pa.Table:
        order = self.order
        runs = [run_id(outcome.cell, outcome.seed) for outcome in outcomes]
        columns = {
            "run_id": pa.array(runs, pa.string()),
            "cell_id": pa.array([outcome.cell for outcome in outcomes], pa.string()),
            "seed": pa.array([outcome.seed for outcome in outcomes], pa.int64()),
            "status": pa.array([outcome.status.value for outcome in outcomes], pa.string()),
            "step": pa.array([outcome.step for outcome in outcomes], pa.int64()),
        }
        cells = [order.values(self._lanes[run]) for run in runs]
        for name, parameter in task.parameters.items():
            columns[name] = pa.array([cell[name] for cell in cells], _TYPES[parameter.type])
        text, whole = pa.string(), pa.int64()
        constant = {
            "task": (order.task, text), "task_version": (task.version, whole), "pack_id": (order.id, text),
            "pack_lanes": (len(order), whole), "attempt": (order.attempt, whole), "error": (error or None, text),
            "started_at": (self.started_at, _TIME), "finished_at": (datetime.now(UTC), _TIME),
            "host": (platform.node(), text), "device": (device, text), "commit": (" ".join(sorted(self.commits)), text),
        }  # fmt: skip
        for name, (value, kind) in constant.items():
            columns[name] = pa.array([value] * len(runs), kind)
        columns["train_seconds"] = pa.array([self.seconds[run] for run in runs], pa.float64())
        return pa.table(columns)

    def curves(self, frames: Sequence[Frame]) -> pa.Table:
        columns = self._keys(frames)
        for name in frames[0].metrics:
            columns[name] = pa.array(np.concatenate([frame.metrics[name] for frame in frames]))
        return pa.table(columns)

    def arrays(self, frames: Sequence[Frame]) -> pa.Table:
        """A row per run, snapshot and metric, with its values as a list."""
        tables = []
        frames = [frame for frame in frames if frame.arrays]
        for name in frames[0].arrays if frames else ():
            rows = [row for frame in frames for row in frame.arrays[name]]
            columns = self._keys(frames)
            columns["metric"] = pa.array([name] * len(rows), pa.string())
            columns["values"] = pa.array(rows, pa.list_(pa.float64()))
            tables.append(pa.table(columns))
        return pa.concat_tables(tables) if tables else pa.table({})

    def _keys(self, frames: Sequence[Frame]) -> dict[str, pa.Array]:
        """A row per frame and run."""
        order = self.order
        # Most frames have the same runs, so their lanes are looked up once.
        known: dict[tuple[Label, ...], np.ndarray] = {}
        found = []
        for frame in frames:
            labels = tuple(frame.labels.tolist())
            if labels not in known:
                known[labels] = np.array([self._lanes[run] for run in labels], dtype=int)
            found.append(known[labels])
        lanes = np.concatenate(found)
        return {
            "run_id": pa.array(order.run_ids, pa.string()).take(lanes),
            "cell_id": pa.array(order.cells, pa.string()).take(lanes),
            "seed": pa.array(np.asarray(order.seeds)[lanes]),
            "pack_id": pa.repeat(pa.scalar(order.id, pa.string()), len(lanes)),
            "step": pa.array(np.repeat([frame.step for frame in frames], [len(frame.labels) for frame in frames])),
        }
