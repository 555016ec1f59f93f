"""What the runs of a pack measure, and the rows of the store's tables that it becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.tasks.pack import Frame
from mislabel.tasks.parameters import Parameter

_TYPES = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


_TIME = pa.timestamp("us", tz="UTC")


class Record:
    """What a pack's runs have shown so far; becomes rows of the store's tables when they end."""

    def __init__(self, order: PackOrder, frames: Sequence[Frame] = (), seconds: Sequence[float] | None = None) -> None:
        self.order = order
        self.frames = list(frames)
        self.seconds = np.array(seconds or [0.0] * len(order))
        """Training time of each run: its share of the pack's."""
        self.started_at = datetime.now(UTC)

    def spend(self, seconds: float, steps: Mapping[int, int]) -> None:
        """Share the time that a stretch took among the lanes that were trained, by the steps that each made."""
        total = sum(steps.values())
        for lane, made in steps.items():
            self.seconds[lane] += seconds * (made / total if total else 1 / len(steps))

    def take(self, other: "Record", wanted: Sequence[int]) -> None:
        """Add what the record of an earlier order has of these lanes."""
        lanes = {self.order.run_ids[lane]: lane for lane in wanted}
        renamed = np.array([lanes.get(run, -1) for run in other.order.run_ids], dtype=int)
        for frame in other.frames:
            if (at := renamed[frame.lanes] >= 0).any():
                self.frames.append(replace(_rows(frame, at), lanes=renamed[frame.lanes[at]]))
        self.seconds[renamed[renamed >= 0]] += other.seconds[renamed >= 0]

    def forget(self, ended: Sequence[int]) -> None:
        """Leave out frames of these lanes, whose rows are written."""
        kept = ((frame, ~np.isin(frame.lanes, ended)) for frame in self.frames)
        self.frames = [_rows(frame, keep) for frame, keep in kept if keep.any()]

    def last_steps(self) -> dict[int, int]:
        """Of each lane, the last step that was measured."""
        return {int(lane): frame.step for frame in self.frames for lane in frame.lanes}

    def outcomes(self, wanted: Sequence[int], names: Sequence[str] | None = None) -> list[Outcome]:
        """The end of each of these lanes: its last frame, with the metrics named, or all."""
        last = {int(lane): (frame, i) for frame in self.frames for i, lane in enumerate(frame.lanes)}
        outcomes = []
        for lane in wanted:
            frame, i = last[lane]
            stopped = Status.STOPPED if frame.stopped[i] else Status.DONE
            status = Status.DIVERGED if frame.diverged[i] else stopped
            metrics = {name: float(frame.metrics[name][i]) for name in (frame.metrics if names is None else names)}
            outcomes.append(Outcome(self.order.cells[lane], self.order.seeds[lane], status, metrics, frame.step))
        return outcomes

    def tables(
        self, wanted: Sequence[int], parameters: Mapping[str, Parameter], about: Mapping[str, Any]
    ) -> dict[str, pa.Table]:
        """Rows of `runs`, `curves` and `arrays` for these lanes, which have all ended."""
        outcomes = self.outcomes(wanted)
        steps = self.last_steps()
        runs = self._runs(
            wanted, parameters, about, [outcome.status for outcome in outcomes], [steps[i] for i in wanted]
        )
        for name in outcomes[0].metrics:
            runs = runs.append_column(
                name, pa.array([o.metrics[name] for o in outcomes], pa.float64(), from_pandas=False)
            )
        return {"runs": runs, "curves": self._curves(wanted), "arrays": self._arrays(wanted)}

    def failure(
        self, error: str, status: Status, parameters: Mapping[str, Parameter], about: Mapping[str, Any]
    ) -> dict[str, pa.Table]:
        """Rows for runs that ended without result."""
        lanes = range(len(self.order))
        return {"runs": self._runs(lanes, parameters, about, [status] * len(lanes), [0] * len(lanes), error)}

    def _runs(
        self, wanted: Sequence[int], parameters: Mapping[str, Parameter], about: Mapping[str, Any],
        statuses: Sequence[str], steps: Sequence[int], error: str = "",
    ) -> pa.Table:  # fmt: skip
        order = self.order
        count = len(wanted)
        columns = {
            "run_id": pa.array([order.run_ids[i] for i in wanted]),
            "cell_id": pa.array([order.cells[i] for i in wanted], pa.string()),
            "seed": pa.array([order.seeds[i] for i in wanted], pa.int64()),
            "status": pa.array(statuses, pa.string()),
            "step": pa.array(steps, pa.int64()),
        }
        cells = [order.values(i) for i in wanted]
        for name, parameter in parameters.items():
            columns[name] = pa.array([cell[name] for cell in cells], _TYPES[parameter.type])
        constant = {
            "task": order.task, "task_version": about["version"], "pack_id": order.id, "pack_lanes": len(order),
            "attempt": order.attempt, "error": error or None,
            "started_at": self.started_at, "finished_at": datetime.now(UTC),
            "host": about["host"], "device": about["device"],
        }  # fmt: skip
        types = {
            "task": pa.string(), "task_version": pa.int64(), "pack_id": pa.string(), "pack_lanes": pa.int64(),
            "attempt": pa.int64(), "error": pa.string(),
            "started_at": _TIME, "finished_at": _TIME,
            "host": pa.string(), "device": pa.string(),
        }  # fmt: skip
        for name, value in constant.items():
            columns[name] = pa.array([value] * count, types[name])
        columns["train_seconds"] = pa.array(self.seconds[list(wanted)], pa.float64())
        return pa.table(columns)

    def _curves(self, wanted: Sequence[int]) -> pa.Table:
        lanes, steps, keep = self._stacked(self.frames, wanted)
        columns = self._keys(lanes, steps)
        for name in self.frames[0].metrics:
            columns[name] = pa.array(np.concatenate([frame.metrics[name] for frame in self.frames])[keep])
        return pa.table(columns)

    def _arrays(self, wanted: Sequence[int]) -> pa.Table:
        """A row per run, snapshot and metric, with its values as a list."""
        tables = []
        frames = [frame for frame in self.frames if frame.arrays]
        for name in frames[0].arrays if frames else ():
            lanes, steps, keep = self._stacked(frames, wanted)
            rows = [row for frame in frames for row in frame.arrays[name]]
            columns = self._keys(lanes, steps)
            columns["metric"] = pa.array([name] * len(lanes), pa.string())
            columns["values"] = pa.array(
                [row for row, kept in zip(rows, keep, strict=True) if kept], pa.list_(pa.float64())
            )
            tables.append(pa.table(columns))
        return pa.concat_tables(tables) if tables else pa.table({})

    def _stacked(self, frames: Sequence[Frame], wanted: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        lanes = np.concatenate([frame.lanes for frame in frames])
        steps = np.concatenate([np.full(len(frame.lanes), frame.step) for frame in frames])
        keep = np.isin(lanes, wanted)
        return lanes[keep], steps[keep], keep

    def _keys(self, lanes: np.ndarray, steps: np.ndarray) -> dict[str, pa.Array]:
        order = self.order
        return {
            "run_id": pa.array(order.run_ids).take(lanes),
            "cell_id": pa.array(order.cells).take(lanes),
            "seed": pa.array(np.asarray(order.seeds)[lanes]),
            "pack_id": pa.array([order.id] * len(lanes), pa.string()),
            "step": pa.array(steps),
        }


def _rows(frame: Frame, keep: np.ndarray) -> Frame:
    """The frame of some of its lanes."""
    return Frame(
        frame.step,
        frame.lanes[keep],
        {name: values[keep] for name, values in frame.metrics.items()},
        {name: values[keep] for name, values in frame.arrays.items()},
        frame.diverged[keep],
        frame.stopped[keep],
    )
