"""What runs where the devices are: train one pack, checkpoint it, and write its rows to the store.

A Ray actor and the inline runner run this same code.
"""

import io
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from sweeps.order import PackOrder
from sweeps.outcome import Outcome, Record, Status
from sweeps.store import SweepFiles
from tasks.lanes import Lanes
from tasks.pack import Frame, Pack
from tasks.registry import find_task

CHECKPOINT_SECONDS = 30.0


@dataclass(frozen=True)
class Report:
    """What a worker tells the driver: progress, and how runs ended."""

    pack: str
    run_steps: int = 0
    """Steps trained since the last report, summed over lanes."""
    train_seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    error: str | None = None
    """Why the pack can't go on, where it failed."""
    finished: bool = False
    halted: bool = False
    """True where the pack was checkpointed because the sweep is stopping."""


class Worker:
    """Trains one pack, in stretches of any length."""

    def __init__(
        self, order: PackOrder, files: SweepFiles, device: torch.device, objectives: Sequence[str] = ()
    ) -> None:
        self.order = order
        self.objectives = objectives
        self.files = files
        self.device = device
        self.task = find_task(order.task)
        saved = self._saved()
        # Lanes are counted in the order that the pack was first made from, of which this order may want a part.
        whole = PackOrder.from_json({**saved["order"], "attempt": order.attempt}) if saved else order
        lanes = Lanes([self.task.settings(whole.values(i)) for i in range(len(whole))], whole.seeds, device)
        self.record = Record(
            whole, [_frame(f) for f in saved["frames"]] if saved else [], saved["seconds"] if saved else 0.0
        )
        self.pack = Pack.resumed(self.task, lanes, saved["pack"]) if saved else Pack(self.task, lanes)
        runs = set(order.run_ids)
        self.wanted = [i for i, run in enumerate(whole.run_ids) if run in runs]
        self.pack.drop([i for i, run in enumerate(whole.run_ids) if run not in runs])
        self._saved_at = time.monotonic()

    def work(self, seconds: float) -> Report:
        """Train for about this long; checkpoint when it is time; write the rows when all runs have ended."""
        began = time.perf_counter()
        steps, lanes = self.pack.step, len(self.pack.places)
        self.record.frames += self.pack.advance(seconds)
        spent = time.perf_counter() - began
        self.record.seconds += spent
        done = (self.pack.step - steps) * lanes
        if not self.pack.finished:
            if time.monotonic() - self._saved_at > CHECKPOINT_SECONDS:
                self.save()
            return Report(self.order.id, done, spent)
        tables = self.record.tables(self.wanted, self.task.parameters, self._about())
        self.files.write_results(self.order.id, tables)
        self.files.drop_checkpoint(self.record.order.id)
        return Report(self.order.id, done, spent, self.record.outcomes(self.wanted, self.objectives), finished=True)

    @property
    def finished(self) -> bool:
        return self.pack.finished

    def save(self) -> None:
        """Checkpoint, so that any worker can go on from here."""
        saved = {
            "order": self.record.order.to_json(),
            "pack": self.pack.checkpoint(),
            "frames": [_plain(frame) for frame in self.record.frames],
            "seconds": self.record.seconds,
        }
        buffer = io.BytesIO()
        torch.save(saved, buffer)
        order = self.record.order
        self.files.save_checkpoint(order.id, buffer.getvalue(), [order.run_ids[i] for i in self.wanted])
        self._saved_at = time.monotonic()

    def _saved(self) -> Any:
        data = self.files.load_checkpoint(self.order.resume or self.order.id)
        if data is None:
            return None
        try:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception:  # a checkpoint saves time and holds no results: without it the pack starts over
            return None

    def _about(self) -> dict[str, Any]:
        return about(self.device, self.task.version)


def record_failure(order: PackOrder, files: SweepFiles, error: str, status: Status = "failed") -> list[Outcome]:
    """Write rows for runs that ended without result."""
    task = find_task(order.task)
    tables = Record(order).failure(error, status, task.parameters, about(torch.device("cpu"), task.version))
    files.write_results(order.id, tables)
    return [Outcome(cell, seed, status) for cell, seed in zip(order.cells, order.seeds, strict=True)]


def about(device: torch.device, version: int) -> dict[str, Any]:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    return {"version": version, "host": platform.node(), "device": name}


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
        **tensors,
    }


def _frame(plain: Mapping[str, Any]) -> Frame:
    arrays = {k: {n: tensor.numpy() for n, tensor in plain[k].items()} for k in ("metrics", "arrays")}
    return Frame(plain["step"], plain["lanes"].numpy(), arrays["metrics"], arrays["arrays"], plain["diverged"].numpy())
