"""Train the runs of one order, checkpoint them, and write their rows to the store.

A Ray actor and the inline runner both run this code.
"""

import io
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.data_check import refuse_other_data
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.run.lane_stopper import LaneStopper
from mislabel.sweeps.run.live_rows import LiveRows
from mislabel.sweeps.run.pack_group import PackGroup
from mislabel.sweeps.run.record import Record
from mislabel.sweeps.run.report import Advanced, Finished, Halted, Refill, Report, StoreBroken, failure
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.device import allocator
from mislabel.tasks.device.determinism import make_deterministic
from mislabel.tasks.device.memory import device_name
from mislabel.tasks.pack import Frame, Judge, Label
from mislabel.tasks.registry import find_task

# Checkpoint every 30 s, or less often if saving takes over 5 % of the time.
CHECKPOINT_SECONDS, CHECKPOINT_SHARE, LONGEST_CHECKPOINT_SECONDS = 30.0, 1 / 20, 600.0
# Version of the checkpoints' format.
_FORMAT = 2
_log = logging.getLogger(__name__)
# How long a worker trains between two reports.
STRETCH_SECONDS = 1.0


def reports(
    order: PackOrder, files: SweepFiles, device: torch.device, objectives: Sequence[str],
    lane_stopper: LaneStopper | None, has_to_halt: Callable[[], bool], share: float = 1.0,
) -> Iterator[Report]:  # fmt: skip
    """Train the runs of the order; yields a report after every stretch until one ends the pack.

    `has_to_halt` is asked after each report. `share` is the part of the device that the pack has.
    """
    try:
        worker = Worker(order, files, device, objectives, lane_stopper)
        while isinstance(report := worker.work(STRETCH_SECONDS), Advanced):
            yield report
            if has_to_halt():
                worker.save()
                yield Halted(order.id)
                return
        yield report
    except StoreError as error:
        yield StoreBroken(order.id, error=redacted(str(error)))
    except Exception as error:
        with suppress(StoreError):
            files.drop_running(order.id)
        yield failure(order, error, device, share)


class Worker:
    def __init__(
        self, order: PackOrder, files: SweepFiles, device: torch.device, objectives: Sequence[str] = (),
        lane_stopper: LaneStopper | None = None,
    ) -> None:  # fmt: skip
        allocator.keep_freed_memory()
        make_deterministic(device)
        self.order = order
        self.objectives = objectives
        self.files = files
        self.device = device
        self.task = find_task(order.task)
        refuse_other_data(self.task, order)
        self.pack_group = PackGroup(self.task, order, device)
        self.record = Record(order)
        self._ended: list[Outcome] = []
        self._unreported: list[Outcome] = []
        with torch.no_grad():
            self._resume_checkpoints()
        self._lanes_at_start = len(self.pack_group.live)
        self._live_rows = LiveRows(files, self.record, self.task, device_name(device))
        self._live_rows.begin(self.pack_group.steps())
        self._judge: Judge | None = None
        if lane_stopper is not None:
            training = self.task.settings(order.values(0))
            self._judge = lane_stopper.judge_of(order, training, self.record.frames)
        self._saved_at = time.monotonic()
        self._save_seconds = 0.0

    def work(self, seconds: float) -> Advanced | Finished | Refill:
        """Train for about this long, write the rows of runs that have ended, and checkpoint if it is time."""
        began = time.perf_counter()
        before, run_steps = self.pack_group.steps(), self.pack_group.run_steps
        # A pack waits for refill at the step where it lost lanes: others lose theirs at the same step.
        fewest = self._lanes_at_start // 2 if self.order.refill else 0
        frames = self.pack_group.advance(seconds, self._judge, fewest)
        spent = time.perf_counter() - began
        self.record.frames += frames
        self._live_rows.add(frames)
        measured = {run: frame.step for frame in frames for run in frame.labels.tolist()}
        after = {**measured, **self.pack_group.steps()}
        self.record.spend(spent, {run: after[run] - step for run, step in before.items()})
        live = set(self.pack_group.live)
        self._write([run for run in before if run not in live])
        outcomes, self._unreported = self._unreported, []
        trained = (self.order.id, self.pack_group.run_steps - run_steps, spent, outcomes)
        if not live:
            self.files.drop_checkpoint(self.order.id)
            self._live_rows.drop()
            self._drop_resumed()
            allocator.return_freed_memory()
            return Finished(*trained)
        if len(live) <= fewest:
            self.save()
            allocator.return_freed_memory()
            return Refill(*trained, self.pack_group.step)
        if time.monotonic() - self._saved_at > self._checkpoint_seconds:
            self.save()
        elif self._live_rows.is_due:
            self._live_rows.write(self.pack_group.steps())
        return Advanced(*trained)

    @property
    def _checkpoint_seconds(self) -> float:
        """The time between two checkpoints. It grows if saving is slow."""
        return max(CHECKPOINT_SECONDS, min(self._save_seconds / CHECKPOINT_SHARE, LONGEST_CHECKPOINT_SECONDS))

    def save(self) -> None:
        began = time.monotonic()
        saved = {
            "format": _FORMAT,
            "packs": self.pack_group.checkpoint(),
            "frames": [_plain(vars(frame)) for frame in self.record.frames],
            "seconds": dict(self.record.seconds),
            "commits": sorted(self.record.commits),
            "ended": [{**asdict(outcome), "status": outcome.status.value} for outcome in self._ended],
        }
        live = set(self.pack_group.live)
        self.files.save_checkpoint(self.order.id, _bytes(saved), [run for run in self.order.run_ids if run in live])
        self._live_rows.write(self.pack_group.steps())
        self._drop_resumed()
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - began

    def _write(self, ended: Sequence[Label]) -> None:
        """Write the rows of runs that have ended as a part of the tables, whatever happens to the others."""
        if not ended:
            return
        tables = self.record.tables(ended, self.task, device_name(self.device))
        outcomes = self.record.outcomes(ended, self.objectives)
        # Weights come first: a run that has a row has its weights.
        for run in ended:
            if run in self.pack_group.weights:
                self.files.save_weights(str(run), _bytes(self.pack_group.weights.pop(run)))
        self.files.write_results(tables)
        self.record.forget(ended)
        self._ended += outcomes
        self._unreported += outcomes

    def _resume_checkpoints(self) -> None:
        """Continue this order's own checkpoint, or else those it names. Runs without a checkpoint start at step 0."""
        own = self._saved(self.order.id)
        if own is not None:
            # The worker that saved them may have died before it reported them.
            self._ended = [Outcome(**{**outcome, "status": Status(outcome["status"])}) for outcome in own["ended"]]
            self._unreported = list(self._ended)
        for saved in [own] if own is not None else map(self._saved, self.order.resume):
            if saved is not None:
                self.record.commits.update(saved.get("commits", ()))
                runs = [run for pack in saved["packs"] for run in self.pack_group.resume(pack)]
                self.record.add([Frame(**_loaded(frame)) for frame in saved["frames"]], saved["seconds"], runs)
        known = {*self.pack_group.live, *(run_id(outcome.cell, outcome.seed) for outcome in self._ended)}
        if new := [run for run in self.order.run_ids if run not in known]:
            self.pack_group.begin(new)

    def _saved(self, pack: str) -> Any:
        data = self.files.load_checkpoint(pack)
        if data is None:
            return None
        try:
            saved = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception:  # a checkpoint only saves time: without it, its runs start over
            return None
        if not isinstance(saved, dict):
            return None
        if saved.get("format") == _FORMAT:
            return saved
        runs = set(self.files.checkpointed(pack)) & set(self.order.run_ids)
        _log.warning("checkpoint of an older version: %d runs start over", len(runs))
        return None

    def _drop_resumed(self) -> None:
        """Remove the checkpoints that this order resumed, except those that another order still needs."""
        for pack in set(self.order.resume) - {self.order.id}:
            if set(self.files.checkpointed(pack)) <= set(self.order.run_ids):
                self.files.drop_checkpoint(pack)
                self._live_rows.drop_resumed(pack)


def record_failure(order: PackOrder, files: SweepFiles, error: str, status: Status = Status.FAILED) -> list[Outcome]:
    outcomes = [Outcome(cell, seed, status) for cell, seed in zip(order.cells, order.seeds, strict=True)]
    device = device_name(torch.device("cpu"))
    files.write_results({"runs": Record(order).rows(outcomes, find_task(order.task), device, redacted(error))})
    return outcomes


def _bytes(value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """A part of a frame as tensors and plain values, which can be loaded without running code."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if not isinstance(value, np.ndarray):
        return value
    return value.tolist() if value.dtype == object else torch.from_numpy(np.ascontiguousarray(value))


def _loaded(value: Any) -> Any:
    """The reverse of `_plain`."""
    if isinstance(value, dict):
        return {name: _loaded(part) for name, part in value.items()}
    if isinstance(value, list):
        return np.array(value, dtype=object)
    return value.numpy() if isinstance(value, torch.Tensor) else value
