"""The driver of a sweep: it hands out packs, handles the workers' reports, and knows when the sweep is over.

The inline runner and the Ray Tune searcher call it; they decide nothing.
"""

import logging
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.backlog import Backlog, RefillQueue
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.sources import Source
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.run.report import Failed, Halted, OutOfMemory, Refill, Report, StoreBroken
from mislabel.sweeps.run.worker import record_failure
from mislabel.sweeps.stopping.stopper import StopLearner, stopper_of, stored_runs
from mislabel.sweeps.store.cell_means import Means
from mislabel.sweeps.store.outcome import Outcome, Status, StopCause, StopReason
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value

_log = logging.getLogger(__name__)


@dataclass
class Progress:
    runs: int
    work: float
    """Work of the runs that were missing at the start, minus the steps that early ends saved: see Backlog.work."""
    done: int = 0
    """Runs in the store, including those of earlier launches."""
    statuses: Counter[Status] = field(default_factory=Counter)
    """How the runs of this launch ended."""
    steps_done: int = 0
    work_done: float = 0.0
    train_seconds: float = 0.0
    running: int = 0
    began: float = field(default_factory=time.monotonic)
    first_report: float | None = None
    """When the first worker reported. Workers take seconds to start."""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def run_steps_per_second(self) -> float | None:
        """The rate since the workers started; None in the first seconds."""
        return self.steps_done / self._since if self._since > 3 and self.steps_done else None

    @property
    def seconds_left(self) -> float | None:
        """Extrapolated from the work done so far; None in the first seconds."""
        known = self.run_steps_per_second is not None
        return max(0.0, (self.work - self.work_done) * self._since / self.work_done) if known else None

    @property
    def share(self) -> float:
        """The part of the work that is done, from 0 to 1."""
        return min(1.0, self.work_done / self.work) if self.work else 1.0

    @property
    def _since(self) -> float:
        return time.monotonic() - (self.first_report or time.monotonic())


@dataclass
class Handed:
    """An order that a worker trains."""

    order: PackOrder
    left: dict[str, int]
    """The runs that have not ended, and their lanes."""

    def rest(self, **changes: Any) -> PackOrder | None:
        """An order for the runs that have not ended; None if all have."""
        return self.order.select(list(self.left.values()), **changes) if self.left else None


class Driver:
    def __init__(self, backlog: Backlog, source: Source, files: SweepFiles, means: Means) -> None:
        self.backlog = backlog
        self.plan = plan = backlog.plan
        self.files = files
        self.means = means
        self.stopper = stopper_of(plan.spec, plan.task, backlog.index, files, plan.checkpoints)
        self.stop_learner: StopLearner | None = None
        """The stopper, or a proxy of it: on Ray, it moves to an actor."""
        copied = sum(each.runs.num_rows for each in backlog.copied)
        has = max(plan.runs - plan.missing, backlog.index.count - copied)
        self.progress = Progress(max(plan.runs, has), backlog.work, has)
        self.stop_reason: StopReason | None = None
        self.broken: StoreError | None = None
        self.errors: dict[str, str] = {}
        """The error of each failed run, by run id."""
        self._axes = list(plan.spec.axes())
        self._cells: dict[str, tuple[Value, ...]] = {}
        """The values of the axes in each cell with a run that ended or was copied in this launch."""
        self._source = source
        self._source_is_dry = False
        self._again: deque[PackOrder] = deque()
        self._refill_queue = RefillQueue(backlog)
        self._running: dict[str, Handed] = {}
        self.packs = 0
        """How many packs were handed out."""
        self._begun = has
        self._planned_run_work = self.progress.work / max(1, plan.missing)
        self._closed: StopReason | None = None
        """Why no more runs are begun. Runs that have begun are finished."""
        self._note_copied()  # the stopper has these runs from the store
        self.stop_learner = self.stopper

    def next(self) -> PackOrder | None:
        """A pack to train, or None: there is none now, or none at all if the sweep is `over`."""
        self._watch_budget()
        if self.stop_reason:
            return None
        try:
            order = self._again.popleft() if self._again else self._refill_queue.full() or self._to_begin()
            order = order or self._refill_queue.next()
        except StoreError as error:  # a search writes its proposals to the store
            self.break_off(error)
            return None
        if order is None:
            self._close_if_idle()
            return None
        order, *rest = self._refill_queue.fitting(order)
        self._again.extendleft(reversed(rest))
        # Other runs can take the lanes that a stopping rule empties.
        more = self._refill_queue.holds(order) or not (self._source_is_dry or self._closed)
        order = replace(order, refill=more and self.plan.spec.early_terminate is not None)
        self._running[order.id] = Handed(order, {run: lane for lane, run in enumerate(order.run_ids)})
        self.progress.running += len(order)
        self.packs += 1
        _log.debug("pack %s: %d runs%s", order.id, len(order), ", from a checkpoint" if order.resume else "")
        return order

    def _to_begin(self) -> PackOrder | None:
        """The next pack of the source, cut to the remaining budget of runs."""
        order = None if self._closed else self._source.next()
        self._note_copied()
        self._source_is_dry = order is None
        if order is None:
            return None
        most = self.plan.spec.budget.runs
        # Runs with a checkpoint were begun by an earlier launch.
        room = len(order) if most is None or order.resume else max(0, min(len(order), most - self._begun))
        self._begun += room
        self._note_begun(order, room)
        if room < len(order):
            self._closed = StopReason(StopCause.RUNS_USED_UP, f"budget.runs of {most} is used up")
            order = order.select(range(room)) if room else None
        return None if order is None else self._refill_queue.filled(order)

    def _note_begun(self, order: PackOrder, runs: int) -> None:
        """Correct the expected work: a race runs more seeds than planned, and a search proposes unplanned shapes."""
        unplanned = max(0, min(runs, self._begun - self.progress.runs))
        run_work = int(order.common["steps"]) * self.backlog.step_work(order.common)
        self.progress.runs += unplanned
        self.progress.work += unplanned * run_work
        if self.plan.spec.method.learns:
            self.progress.work += (runs - unplanned) * (run_work - self._planned_run_work)

    def _note_copied(self) -> None:
        """Count runs that the source copied from other sweeps like stored runs, and compare later runs with them."""
        while self.backlog.copied:
            copied = self.backlog.copied.popleft()
            runs = copied.runs.num_rows
            self.progress.done += runs
            self._begun += runs
            unplanned = max(0, min(runs, self._begun - self.progress.runs))
            self.progress.runs += unplanned
            self.progress.work -= (runs - unplanned) * self._planned_run_work
            for cell, *values in zip(
                *(copied.runs[name].to_pylist() for name in ("cell_id", *self._axes)), strict=True
            ):
                self._cells[cell] = tuple(values)
            if self.stop_learner is not None:
                self.stop_learner.learn(stored_runs(self.plan.spec, self.plan.task, copied.runs, copied.curves))

    @property
    def over(self) -> bool:
        """True if no pack is running and no begun run waits to be handed out again."""
        return not self._running and (self.stop_reason is not None or not self._left_over)

    @property
    def _left_over(self) -> bool:
        return bool(self._again or len(self._refill_queue))

    @property
    def best_cell(self) -> dict[str, Value]:
        """The values of the axes in the best cell; empty if this launch does not know them."""
        values = self._cells.get(self.means.best[1]) if self.means.best else None
        return dict(zip(self._axes, values, strict=True)) if values else {}

    @property
    def stopping(self) -> bool:
        """True once running packs should checkpoint and end."""
        self._watch_budget()
        return self.stop_reason is not None

    def stop(self, reason: StopReason) -> None:
        self.stop_reason = self.stop_reason or reason

    def report(self, report: Report) -> None:
        self.progress.first_report = self.progress.first_report or time.monotonic() - report.train_seconds
        self.progress.steps_done += report.run_steps
        self.progress.train_seconds += report.train_seconds
        handed = self._running.get(report.pack)
        self.progress.work_done += report.run_steps * self.backlog.step_work(handed.order.common if handed else None)
        if isinstance(report, StoreBroken):
            self.break_off(StoreError(report.error))
        if handed is None:  # a worker that was taken for dead still reports
            return
        for outcome in report.outcomes:
            self._ended_in(handed, outcome)
        if report.ends_pack:
            _log.debug("pack %s: %s, %d runs left", report.pack, type(report).__name__.lower(), len(handed.left))
            self._released(report.pack)
        match report:
            case OutOfMemory(error=error) if handed.left:
                self._did_not_fit(handed, error)
            case Failed(error=error) if rest := handed.rest(resume=()):
                self._failed(rest, error)
            case Refill(step=step) if rest := handed.rest(resume=(report.pack,)):
                self._refill_queue.put(rest, step)
            case Halted() if not self.stop_reason and (rest := handed.rest(resume=(report.pack,))):
                self._again.append(rest)  # it made room for another sweep
        self._close_if_idle()

    def lost(self, pack: str, error: str) -> None:
        """The pack's workers died too often: record its runs as lost. The next launch runs them again."""
        handed = self._released(pack)
        if handed is not None and (rest := handed.rest()):
            _log.warning("pack %s: lost with %d runs: %s", pack, len(rest), error.splitlines()[0] if error else "")
            self._record_failure(rest, error, Status.LOST)
            with suppress(StoreError):
                self.files.drop_running(pack)
        self._close_if_idle()

    def break_off(self, error: StoreError) -> None:
        """The store can't be written: stop, because further work would be lost."""
        self.broken = self.broken or error
        self.stop(StopReason(StopCause.STORE_FAILED, redacted(str(error))))

    def _released(self, pack: str) -> Handed | None:
        handed = self._running.pop(pack, None)
        if handed is not None:
            self.progress.running -= len(handed.left)
        return handed

    def _close_if_idle(self) -> None:
        """Stop when the budget of runs is used up and all begun runs have ended."""
        if self._closed and not self._running and not self._left_over:
            self.stop(self._closed)

    def _did_not_fit(self, handed: Handed, error: str) -> None:
        """Continue in halves from the pack's checkpoint, if there is one; packs of this shape are smaller from now on.

        To load a checkpoint, all of its lanes have to fit into memory. If they do not, the runs start over.
        """
        order = handed.order
        rest = order.select(list(handed.left.values()), resume=() if order.resume else (order.id,))
        if len(rest) == 1 and not order.resume:
            self._failed(replace(rest, resume=()), error)
            return
        self._refill_queue.limit(rest, max(1, len(order) // 2))
        self._again.append(rest)

    def _failed(self, order: PackOrder, error: str) -> None:
        """Find the run at fault by halving the pack; a single run that fails is recorded with its error."""
        if len(order) > 1:
            self._again.extend(order.halves())
            return
        self.errors[order.run_ids[0]] = error
        self._record_failure(order, error, Status.FAILED)
        failed, most = self.progress.statuses[Status.FAILED], self.plan.spec.budget.failures
        if failed > most:
            reason = f"{failed} runs failed, more than budget.failures = {most}"
            self.stop(StopReason(StopCause.TOO_MANY_FAILURES, reason))

    def _record_failure(self, order: PackOrder, error: str, status: Status) -> None:
        try:
            outcomes = record_failure(order, self.files, error, status)
        except StoreError as broken:
            self.break_off(broken)
            return
        for outcome in outcomes:
            self._ended(outcome)

    def _ended_in(self, handed: Handed, outcome: Outcome) -> None:
        """A run has ended while its pack continues; a restarted worker may report it again."""
        lane = handed.left.pop(run_id(outcome.cell, outcome.seed), None)
        if lane is None:
            return
        self.progress.running -= 1
        if outcome.cell not in self._cells:
            values = handed.order.values(lane)
            self._cells[outcome.cell] = tuple(values[name] for name in self._axes)
        if outcome.status in (Status.STOPPED, Status.DIVERGED):
            spared = int(handed.order.values(lane)["steps"]) - outcome.step
            self.progress.work -= spared * self.backlog.step_work(handed.order.common)
        self._ended(outcome)

    def _ended(self, outcome: Outcome) -> None:
        self.progress.statuses[outcome.status] += 1
        self.progress.done += 1
        before = self.means.of(outcome.cell)
        self.means.add(outcome)
        mean = self.means.of(outcome.cell)
        if mean is not None and before is None:
            self._source.ended(outcome.cell, mean)

    def _watch_budget(self) -> None:
        wall = self.plan.spec.budget.wall
        if wall is not None and self.progress.elapsed > wall:
            self.stop(StopReason(StopCause.TIME_USED_UP, f"budget.wall of {wall:g} s is used up"))
