"""What runs where the devices are: train the runs of one order, checkpoint them, and write their rows to the store.

A Ray actor and the inline runner run this same code.
"""

import io
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.data_check import refuse_other_data
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.lane_stopper import LaneStopper
from mislabel.sweeps.run.pack_group import PackGroup
from mislabel.sweeps.run.record import Record
from mislabel.sweeps.run.report import Advanced, Finished, Halted, Refill, Report, StoreBroken, failure
from mislabel.sweeps.store.outcome import Outcome, Status
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.device import allocator
from mislabel.tasks.device.determinism import make_deterministic
from mislabel.tasks.device.memory import device_name
from mislabel.tasks.pack import Frame, Judge
from mislabel.tasks.registry import find_task

# A checkpoint is due after so long, or later, where checkpoints would else take more than a twentieth of the time.
CHECKPOINT_SECONDS, CHECKPOINT_SHARE, LONGEST_CHECKPOINT_SECONDS = 30.0, 1 / 20, 600.0
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
        yield StoreBroken(order.id, error=str(error))
    except Exception as error:
        yield failure(order, error, device, share)


class Worker:
    """Trains the runs of one order, in stretches of any length."""

    def __init__(
        self, order: PackOrder, files: SweepFiles, device: torch.device, objectives: Sequence[str] = (),
        watch: LaneStopper | None = None,
    ) -> None:  # fmt: skip
        allocator.keep_freed()
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
        self._untold: list[Outcome] = []
        with torch.no_grad():
            self._take_up_checkpoints()
        self._begun_with = len(self.pack_group.live)
        self._judge: Judge | None = None
        if watch is not None:
            training = self.task.settings(order.values(0))
            watch.tell(order, training, self.record.frames)
            self._judge = watch.judge_of(order, training)
        self._saved_at = time.monotonic()
        self._save_seconds = 0.0

    def work(self, seconds: float) -> Advanced | Finished | Refill:
        """Train for about this long; write the rows of runs that have ended; checkpoint when it is time."""
        began = time.perf_counter()
        before, run_steps = self.pack_group.steps(), self.pack_group.run_steps
        # A pack is parked where it has lost lanes, so that it meets those that lost theirs at the same rung.
        fewest = self._begun_with // 2 if self.order.refill else 0
        self.record.frames += self.pack_group.advance(seconds, self._judge, fewest)
        spent = time.perf_counter() - began
        after = {**self.record.last_steps(), **self.pack_group.steps()}
        self.record.spend(spent, {lane: after[lane] - step for lane, step in before.items()})
        live = set(self.pack_group.live)
        self._write([lane for lane in before if lane not in live])
        outcomes, self._untold = self._untold, []
        trained = (self.order.id, self.pack_group.run_steps - run_steps, spent, outcomes)
        if not live:
            self.files.drop_checkpoint(self.order.id)
            self._drop_taken_up()
            allocator.give_back()
            return Finished(*trained)
        if len(live) <= fewest:
            self.save()
            allocator.give_back()
            return Refill(*trained, self.pack_group.step)
        if time.monotonic() - self._saved_at > self._checkpoint_seconds:
            self.save()
        return Advanced(*trained)

    @property
    def _checkpoint_seconds(self) -> float:
        """From one checkpoint to the next: large ones, or a slow store, make it longer."""
        return max(CHECKPOINT_SECONDS, min(self._save_seconds / CHECKPOINT_SHARE, LONGEST_CHECKPOINT_SECONDS))

    def save(self) -> None:
        """Checkpoint, so that any worker can go on from here."""
        began = time.monotonic()
        saved = {
            "order": self.order.to_json(),
            "packs": self.pack_group.checkpoint(),
            "frames": [_plain(frame) for frame in self.record.frames],
            "seconds": self.record.seconds.tolist(),
            "ended": [{**asdict(outcome), "status": outcome.status.value} for outcome in self._ended],
        }
        live = sorted(self.pack_group.live)
        self.files.save_checkpoint(self.order.id, _bytes(saved), [self.order.run_ids[lane] for lane in live])
        self._drop_taken_up()
        self._saved_at = time.monotonic()
        self._save_seconds = self._saved_at - began

    def _write(self, ended: Sequence[int]) -> None:
        """The rows of runs that have ended, as a part of their own: they are results whatever becomes of the others."""
        if not ended:
            return
        tables = self.record.tables(ended, self.task.parameters, about(self.device, self.task.version))
        outcomes = self.record.outcomes(ended, self.objectives)
        # Before the rows: a run that exists has its weights.
        for lane in ended:
            if lane in self.pack_group.weights:
                self.files.save_weights(self.order.run_ids[lane], _bytes(self.pack_group.weights.pop(lane)))
        self.files.write_results(tables)
        self.record.forget(ended)
        self._ended += outcomes
        self._untold += outcomes

    def _take_up_checkpoints(self) -> None:
        """Go on from this order's own checkpoint, else from those it names; what none of them has starts at step 0."""
        own = self._saved(self.order.id)
        if own is not None:
            # Its worker may have died before it told of them.
            self._ended = [Outcome(**{**outcome, "status": Status(outcome["status"])}) for outcome in own["ended"]]
            self._untold = list(self._ended)
        for saved in [own] if own is not None else map(self._saved, self.order.resume):
            if saved is not None:
                lanes = [lane for pack in saved["packs"] for lane in self.pack_group.take_up(pack)]
                frames = [_frame(plain) for plain in saved["frames"]]
                self.record.take(Record(PackOrder.from_json(saved["order"]), frames, saved["seconds"]), lanes)
        has = set(self.pack_group.live)
        ended = {run_id(outcome.cell, outcome.seed) for outcome in self._ended}
        fresh = [lane for lane, run in enumerate(self.order.run_ids) if lane not in has and run not in ended]
        if fresh:
            self.pack_group.begin(fresh)

    def _saved(self, pack: str) -> Any:
        data = self.files.load_checkpoint(pack)
        if data is None:
            return None
        try:
            saved = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception:  # a checkpoint saves time and holds no results: without it the pack starts over
            return None
        return saved if "packs" in saved else None

    def _drop_taken_up(self) -> None:
        """Drop checkpoints that this order went on from, but for those from which another order still has to."""
        for pack in set(self.order.resume) - {self.order.id}:
            if set(self.files.checkpointed(pack)) <= set(self.order.run_ids):
                self.files.drop_checkpoint(pack)


def record_failure(order: PackOrder, files: SweepFiles, error: str, status: Status = Status.FAILED) -> list[Outcome]:
    """Write rows for runs that ended without result."""
    task = find_task(order.task)
    tables = Record(order).failure(error, status, task.parameters, about(torch.device("cpu"), task.version))
    files.write_results(tables)
    return [Outcome(cell, seed, status) for cell, seed in zip(order.cells, order.seeds, strict=True)]


def about(device: torch.device, version: int) -> dict[str, Any]:
    return {"version": version, "host": platform.node(), "device": device_name(device)}


def _bytes(value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _plain(frame: Frame) -> dict[str, Any]:
    """A frame as tensors, which can be loaded without running code."""
    tensors = {
        k: {n: torch.from_numpy(np.ascontiguousarray(v)) for n, v in getattr(frame, k).items()}
        for k in ("metrics", "arrays")
    }
    return {
        "step": frame.step,
        "lanes": torch.from_numpy(frame.lanes),
        "diverged": torch.from_numpy(frame.diverged),
        "stopped": torch.from_numpy(frame.stopped),
        **tensors,
    }


def _frame(plain: Mapping[str, Any]) -> Frame:
    arrays = {k: {n: tensor.numpy() for n, tensor in plain[k].items()} for k in ("metrics", "arrays")}
    lanes, diverged, stopped = (plain[k].numpy() for k in ("lanes", "diverged", "stopped"))
    return Frame(plain["step"], lanes, arrays["metrics"], arrays["arrays"], diverged, stopped)
