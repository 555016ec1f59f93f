"""Train the runs of a pack together: the loop that every task shares, with checkpoints and dropping of lanes."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Self

import numpy as np
import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes, P
from mislabel.tasks.parameters import values_of
from mislabel.tasks.task import State, Task
from mislabel.tasks.training import measured_steps, snapshot_steps

# Between two looks at the clock, a pack trains for about this long, so that it can be interrupted in time.
_STRETCH_SECONDS = 0.2
Label = str | int
"""Names a lane, also after other lanes were dropped or two packs were merged. By default its number in the pack."""


@dataclass(frozen=True)
class Frame:
    """What was measured at one step."""

    step: int
    labels: np.ndarray
    """The label of each lane."""
    metrics: Mapping[str, np.ndarray]
    """A value per lane."""
    arrays: Mapping[str, np.ndarray]
    """A row per lane; empty except at snapshots."""
    diverged: np.ndarray
    """True for lanes whose metrics are no longer finite. They end with this frame."""
    stopped: np.ndarray
    """True for lanes that are stopped early. They end with this frame."""

    def select(self, keep: np.ndarray) -> "Frame":
        """The frame of the lanes where `keep` is true."""
        metrics, arrays = (
            {name: values[keep] for name, values in each.items()} for each in (self.metrics, self.arrays)
        )
        return Frame(self.step, self.labels[keep], metrics, arrays, self.diverged[keep], self.stopped[keep])


Judge = Callable[[Frame], Collection[Label]]
"""Returns the labels of the lanes to stop at a frame."""


def is_among(labels: np.ndarray, wanted: Collection[Label]) -> np.ndarray:
    """For each label, whether it is wanted."""
    wanted = set(wanted)
    return np.fromiter((label in wanted for label in labels.tolist()), bool, len(labels))


class Pack(Generic[P]):
    """Runs of equal shape, trained together from step 0 or from a checkpoint to the last step."""

    def __init__(
        self, task: Task[P], lanes: Lanes[P], labels: Sequence[Label] | None = None, *, state: State | None = None,
        step: int = 0, measured_at: int = -1, start: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.task = task
        self.lanes = lanes
        self.labels = np.array(range(len(lanes)) if labels is None else labels, dtype=object)
        """Of the lanes that are left."""
        self.step = step
        self.run_steps = 0
        """Steps trained in this process, summed over lanes."""
        self._measured_at = measured_at
        self._schedule = measured_steps(lanes.shape)
        self._snapshots = snapshot_steps(lanes.shape)
        self._steps_per_second = 0.0
        # All lanes that the pack was made of, also those that it drops later.
        values = [values_of(params) for params in lanes.params]
        self._start = start or {"labels": self.labels.tolist(), "seeds": lanes.seeds, "values": values}
        self.state: State = task.init(lanes) if state is None else state

    @property
    def finished(self) -> bool:
        return len(self.labels) == 0 or self._measured_at >= self._schedule[-1]

    @property
    def live(self) -> list[Label]:
        """Labels of the lanes that still train."""
        return [] if self.finished else self.labels.tolist()

    @torch.no_grad()
    def advance(
        self, seconds: float, judge: Judge | None = None, until: int | None = None, fewest: int = 0
    ) -> list[Frame]:
        """Train for about this long, at least one stretch of steps, and return the frames measured meanwhile.

        `judge` sees each frame except the last before training continues; the lanes that it names end there. Training
        also ends at step `until`, where another pack of the shape waits, or once at most `fewest` lanes are left.
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
            if time.perf_counter() >= deadline or len(self.labels) <= fewest:
                break
        return frames

    @property
    def reached(self) -> tuple[int, int]:
        """The current step and the last measured step."""
        return self.step, self._measured_at

    def merged(self, other: "Pack[P]") -> "Pack[P]":
        """One pack with the lanes of both, which must be at the same step."""
        assert self.reached == other.reached, f"one has reached {self.reached}, the other {other.reached}"
        state = {name: torch.cat([tensor, other.state[name]]) for name, tensor in self.state.items()}
        labels = [*self.labels, *other.labels]
        return Pack(
            self.task, self.lanes.joined(other.lanes), labels, state=state, step=self.step,
            measured_at=self._measured_at,
        )  # fmt: skip

    def drop(self, labels: Collection[Label]) -> None:
        """End these lanes; the others continue as if nothing had happened."""
        self._keep(np.flatnonzero(~is_among(self.labels, labels)).tolist())

    def checkpoint(self) -> dict[str, Any]:
        """Everything that `resumed` needs, as tensors and plain values."""
        return {
            "state": {name: tensor.cpu() for name, tensor in self.state.items()},
            "labels": self.labels.tolist(),
            "step": self.step,
            "measured_at": self._measured_at,
            "start": self._start,
        }

    @classmethod
    def resumed(cls, task: Task[P], checkpoint: Mapping[str, Any], device: torch.device | str = "cpu") -> Self:
        """The pack as it was when the checkpoint was taken."""
        start, labels = checkpoint["start"], checkpoint["labels"]
        lanes = Lanes([task.settings(values) for values in start["values"]], start["seeds"], device)
        # What lanes keep is computed for all lanes, as before: products of fewer matrices may round differently.
        task.init(lanes)
        rows = {label: row for row, label in enumerate(start["labels"])}
        return cls(
            task, lanes.select([rows[label] for label in labels]) if labels else lanes, labels,
            state={name: tensor.to(lanes.device) for name, tensor in checkpoint["state"].items()},
            step=checkpoint["step"], measured_at=checkpoint["measured_at"], start=start,
        )  # fmt: skip

    @property
    def state_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.state.values())

    def weights(self) -> dict[Label, dict[str, Tensor]]:
        """By label, the trained weights."""
        named = self.task.weights(self.lanes, self.state)
        return {
            label: {name: tensor[row].detach().cpu().clone() for name, tensor in named.items()}
            for row, label in enumerate(self.labels.tolist())
        }

    def _train_towards(self, target: int) -> None:
        """Train one stretch: to the target, or to a multiple of the task's block before it."""
        block = self.task.block
        wanted = max(1, int(self._steps_per_second * _STRETCH_SECONDS))
        stop = min(target, (self.step // block + max(1, wanted // block)) * block)
        began = time.perf_counter()
        self.state = self.task.advance(self.lanes, self.state, self.step, stop)
        if self.lanes.device.type == "cuda":
            torch.cuda.synchronize(self.lanes.device)
        self._steps_per_second = (stop - self.step) / max(time.perf_counter() - began, 1e-6)
        self.run_steps += (stop - self.step) * len(self.labels)
        self.step = stop

    def _frame(self) -> Frame:
        measured = {name: _array(tensor) for name, tensor in self.task.measure(self.lanes, self.state).items()}
        metrics = {name: measured[name] for name in self.task.scalars}
        arrays = {name: value for name, value in measured.items() if name not in metrics}
        required = [metrics[name] for name in self.task.scalars if not self.task.metrics[name].may_be_absent]
        diverged = ~np.isfinite(np.array(required).reshape(-1, len(self.labels))).all(axis=0)
        kept = arrays if self.step in self._snapshots else {}
        frame = Frame(self.step, self.labels, metrics, kept, diverged, np.zeros(len(self.labels), dtype=bool))
        self._measured_at = self.step
        if diverged.any():
            self._keep(np.flatnonzero(~diverged).tolist())
        return frame

    def _judged(self, frame: Frame, judge: Judge | None) -> Frame:
        if judge is None or self.step >= self._schedule[-1]:
            return frame
        stopped = is_among(frame.labels, judge(frame))
        if stopped.any():
            self.drop(frame.labels[stopped].tolist())
        return replace(frame, stopped=stopped)

    def _keep(self, rows: list[int]) -> None:
        self.labels = self.labels[rows]
        if rows:
            index = torch.tensor(rows, device=self.lanes.device)
            self.state = {name: tensor[index] for name, tensor in self.state.items()}
            self.lanes = self.lanes.select(rows)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).numpy()
