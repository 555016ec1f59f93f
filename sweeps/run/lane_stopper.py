"""The worker's side of early stopping: shows frames to the stopper and returns the lanes to stop."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.spec.model import EarlyTerminate, Spec
from mislabel.sweeps.stopping.rules import judged_steps
from mislabel.tasks.training import Training, measured_steps

if TYPE_CHECKING:
    from mislabel.tasks.pack import Frame
from mislabel.sweeps.cells.space import branch_of
from mislabel.sweeps.stopping.stopper import Entry, StopDecisions, Values


class LaneStopper:
    """A worker's side: turns frames of its pack into what a stopper is told, and its answer into lanes to stop."""

    def __init__(self, wanted: EarlyTerminate, objective: str, branches: Sequence[str], stopper: StopDecisions) -> None:
        self.wanted = wanted
        self.objective = objective
        self.branches = branches
        self.stopper = stopper

    def judge_of(self, order: PackOrder, training: Training) -> Callable[["Frame"], list[int]]:
        """For lanes of this order and runs that are measured like `training`: the lanes that a frame stops."""
        judged, entries = self._seen_by(order, training)

        def judge(frame: "Frame") -> list[int]:
            if frame.step not in judged and not frame.diverged.any():
                return []
            lanes = frame.lanes.tolist()
            stopped = self.stopper.judge(frame.step, [entries[i] for i in lanes], self._values(frame))
            return [lane for lane, stop, gone in zip(lanes, stopped, frame.diverged, strict=True) if stop and not gone]

        return judge

    def tell(self, order: PackOrder, training: Training, frames: Sequence["Frame"]) -> None:
        """Frames of a checkpoint: they were judged when they were measured."""
        judged, entries = self._seen_by(order, training)
        for frame in frames:
            if frame.step in judged:
                self.stopper.tell(frame.step, [entries[i] for i in frame.lanes.tolist()], self._values(frame))

    def _seen_by(self, order: PackOrder, training: Training) -> tuple[frozenset[int], list[Entry]]:
        entries = [
            Entry(cell, seed, branch_of(order.values(i), self.branches))
            for i, (cell, seed) in enumerate(zip(order.cells, order.seeds, strict=True))
        ]
        return judged_steps(self.wanted, measured_steps(training)), entries

    def _values(self, frame: "Frame") -> Values:
        values = frame.metrics[self.objective].tolist()
        return [None if gone else value for value, gone in zip(values, frame.diverged, strict=True)]


def lane_stopper_of(spec: Spec, stopper: StopDecisions | None) -> LaneStopper | None:
    """What the sweep's workers watch their packs with; None where no rule stops runs."""
    if spec.early_terminate is None or stopper is None:
        return None
    return LaneStopper(spec.early_terminate, spec.metric[0].name, spec.branch_axes(), stopper)
