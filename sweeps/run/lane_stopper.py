"""The worker's side of early stopping: shows frames to the stopper and returns the lanes to stop."""

from collections.abc import Sequence
from dataclasses import dataclass

from mislabel.sweeps.cells.space import branch_of
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.spec.model import EarlyTerminate, Spec
from mislabel.sweeps.stopping.rules import decision_steps
from mislabel.sweeps.stopping.stopper import Entry, StopDecisions, Values
from mislabel.tasks.pack import Frame, Judge, Label
from mislabel.tasks.training import Training, measured_steps


@dataclass(frozen=True)
class LaneStopper:
    """Translates between frames, whose lanes are labelled with run ids, and the stopper."""

    rule: EarlyTerminate
    objective: str
    branches: Sequence[str]
    stopper: StopDecisions

    def judge_of(self, order: PackOrder, training: Training, earlier: Sequence[Frame] = ()) -> Judge:
        """A judge for runs of this order. Shows the stopper the `earlier` frames of a checkpoint, which were judged."""
        judged = decision_steps(self.rule, measured_steps(training))
        last = max(judged, default=0)
        entries: dict[Label, Entry] = {
            run: Entry(order.cells[lane], order.seeds[lane], branch_of(order.values(lane), self.branches), last)
            for lane, run in enumerate(order.run_ids)
        }
        for frame in earlier:
            if frame.step in judged:
                runs = [entries[run] for run in frame.labels.tolist()]
                self.stopper.record(frame.step, runs, self._values(frame))

        def judge(frame: Frame) -> list[Label]:
            if frame.step not in judged and not frame.diverged.any():
                return []
            runs = frame.labels.tolist()
            stopped = self.stopper.decide(frame.step, [entries[run] for run in runs], self._values(frame))
            return [run for run, stop, gone in zip(runs, stopped, frame.diverged, strict=True) if stop and not gone]

        return judge

    def _values(self, frame: Frame) -> Values:
        values = frame.metrics[self.objective].tolist()
        return [None if gone else value for value, gone in zip(values, frame.diverged, strict=True)]


def lane_stopper_of(spec: Spec, stopper: StopDecisions | None) -> LaneStopper | None:
    """The lane stopper of the sweep's workers; None if the sweep has no stopping rule."""
    if spec.early_terminate is None or stopper is None:
        return None
    return LaneStopper(spec.early_terminate, spec.metric[0].name, spec.branch_axes(), stopper)
