"""Train the runs of a pack together: the loop that every task shares, with checkpoint, resume and dropping of lanes."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self

import numpy as np
import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes, P
from mislabel.tasks.task import State, Task
from mislabel.tasks.training import measured_steps, snapshot_steps

# A stretch of steps between two looks at the clock takes about this long, so that a pack can be interrupted in time.
_STRETCH_SECONDS = 0.2


@dataclass(frozen=True)
class Frame:
    """What was measured at one step. `lanes` are places in the pack as it was made, whatever was dropped since."""

    step: int
    lanes: np.ndarray
    metrics: Mapping[str, np.ndarray]
    """A value per lane."""
    arrays: Mapping[str, np.ndarray]
    """A row per lane; empty but at snapshots."""
    diverged: np.ndarray
    """True where a lane's metrics are no longer finite. Such lanes end with this frame."""
    stopped: np.ndarray
    """True where a lane was given up at this frame, which is its last."""


Judge = Callable[[Frame], Sequence[int]]
"""Says which places a frame gives up."""


class Pack(Generic[P]):
    """Runs of equal shape, trained together from step 0, or from a checkpoint, to the last step."""

    def __init__(self, task: Task[P], lanes: Lanes[P]) -> None:
        self.task = task
        self.lanes = lanes
        self.places = np.arange(len(lanes))
        self.step = 0
        self.run_steps = 0
        """Steps trained in this process, summed over lanes."""
        self._measured_at = -1
        self._schedule = measured_steps(lanes.shape)
        self._snapshots = snapshot_steps(lanes.shape)
        self._steps_per_second = 0.0
        self.state: State = task.init(lanes)

    @property
    def finished(self) -> bool:
        return len(self.places) == 0 or self._measured_at >= self._schedule[-1]

    @torch.no_grad()
    def advance(
        self, seconds: float, judge: Judge | None = None, until: int | None = None, fewest: int = 0
    ) -> list[Frame]:
        """Train for about this long, at least one stretch of steps, and return the frames measured on the way.

        `judge` sees each frame but the last before training goes on; the lanes that it names end there. `until` is a
        step that another pack of the shape has come to: this one goes no further. Nor does it with no more than the
        `fewest` lanes.
        """
        frames = []
        deadline = time.perf_counter() + seconds
        while not self.finished:
            target = next(step for step in self._schedule if step > self._measured_at)
            if until is not None and until < target and self.step >= until:
                break
            if self.step < target:
                self._train_towards(target if until is None else min(target, until))
            if self.step == target:
                frames.append(self._judged(self._frame(), judge))
            if time.perf_counter() >= deadline or len(self.places) <= fewest:
                break
        return frames

    @property
    def reached(self) -> tuple[int, int]:
        """How far it has come: the step, and the last one that was measured."""
        return self.step, self._measured_at

    def merged(self, other: "Pack[P]") -> "Pack[P]":
        """One pack of the lanes of both, which have come equally far; places are counted anew."""
        assert self.reached == other.reached, f"one has reached {self.reached}, the other {other.reached}"
        both = Pack.__new__(Pack)
        both.__dict__ |= vars(self)
        both.lanes = self.lanes.joined(other.lanes)
        both.places = np.arange(len(both.lanes))
        both.state = {name: torch.cat([tensor, other.state[name]]) for name, tensor in self.state.items()}
        both.run_steps = self.run_steps + other.run_steps
        return both

    def drop(self, places: Sequence[int]) -> None:
        """End these lanes; the others go on as if nothing had happened."""
        dropped = set(places)
        self._keep([i for i, place in enumerate(self.places) if place not in dropped])

    def checkpoint(self) -> dict[str, Any]:
        """All that is needed to go on later, as tensors and plain values."""
        return {
            "state": {name: tensor.cpu() for name, tensor in self.state.items()},
            "places": self.places.tolist(),
            "step": self.step,
            "measured_at": self._measured_at,
        }

    @classmethod
    def resumed(cls, task: Task[P], lanes: Lanes[P], checkpoint: Mapping[str, Any]) -> Self:
        """The pack as it was when the checkpoint was taken; `lanes` are all lanes that it was made of."""
        pack = cls.__new__(cls)
        pack.task = task
        pack.places = np.array(checkpoint["places"], dtype=int)
        # What lanes keep is made for all lanes at once, as it was then: products of few matrices may round differently.
        task.init(lanes)
        pack.lanes = lanes.select(checkpoint["places"]) if len(pack.places) else lanes
        pack.step = checkpoint["step"]
        pack._measured_at = checkpoint["measured_at"]
        pack._schedule = measured_steps(lanes.shape)
        pack._snapshots = snapshot_steps(lanes.shape)
        pack._steps_per_second = 0.0
        pack.run_steps = 0
        pack.state = {name: tensor.to(lanes.device) for name, tensor in checkpoint["state"].items()}
        return pack

    @property
    def state_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.state.values())

    def _train_towards(self, target: int) -> None:
        """One stretch: to the target, or to a multiple of the task's block before it that takes about a stretch."""
        block = self.task.block
        wanted = max(1, int(self._steps_per_second * _STRETCH_SECONDS))
        stop = min(target, (self.step // block + max(1, wanted // block)) * block)
        began = time.perf_counter()
        self.state = self.task.advance(self.lanes, self.state, self.step, stop)
        if self.lanes.device.type == "cuda":
            torch.cuda.synchronize(self.lanes.device)
        self._steps_per_second = (stop - self.step) / max(time.perf_counter() - began, 1e-6)
        self.run_steps += (stop - self.step) * len(self.places)
        self.step = stop

    def _frame(self) -> Frame:
        measured = {name: _array(tensor) for name, tensor in self.task.measure(self.lanes, self.state).items()}
        metrics = {name: measured[name] for name in self.task.scalars}
        arrays = {name: value for name, value in measured.items() if name not in metrics}
        required = [metrics[name] for name in self.task.scalars if not self.task.metrics[name].may_be_absent]
        diverged = ~np.isfinite(np.array(required).reshape(-1, len(self.places))).all(axis=0)
        kept = arrays if self.step in self._snapshots else {}
        frame = Frame(self.step, self.places, metrics, kept, diverged, np.zeros(len(self.places), dtype=bool))
        self._measured_at = self.step
        if diverged.any():
            self._keep([int(i) for i in np.flatnonzero(~diverged)])
        return frame

    def _judged(self, frame: Frame, judge: Judge | None) -> Frame:
        if judge is None or self.step >= self._schedule[-1]:
            return frame
        stopped = np.isin(frame.lanes, list(judge(frame)))
        if stopped.any():
            self.drop(frame.lanes[stopped].tolist())
        return replace(frame, stopped=stopped)

    def _keep(self, kept: list[int]) -> None:
        self.places = self.places[kept]
        if kept:
            index = torch.tensor(kept, device=self.lanes.device)
            self.state = {name: tensor[index] for name, tensor in self.state.items()}
            self.lanes = self.lanes.select(kept)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy()
