"""Stops runs early: each sweep has one stopper, which records all objectives and decides for whole packs.

It does not depend on Ray or torch. Inline sweeps call it directly; on Ray it runs in an actor. Its decisions depend
on the order of the calls alone. A new launch rebuilds it from the store's curves and the checkpoints of resumed packs.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow.compute as pc

from mislabel.sweeps.cells.space import branch_of
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.spec.model import EarlyTerminate, Spec
from mislabel.sweeps.stopping.rules import decision_steps, rule_of, shortest_run
from mislabel.sweeps.store.outcome import Status
from mislabel.sweeps.store.run_index import TRAINING, RunIndex
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value
from mislabel.tasks.training import measured_steps

if TYPE_CHECKING:
    from mislabel.tasks.task import Task


class Entry(NamedTuple):
    """A run, for the stopper."""

    cell: str
    seed: int
    branch: str = ""
    """The values of the axes with `grid: true`. Only cells of one branch are compared."""


Values = Sequence[float | None]
"""The objective of each run; None if the run has diverged."""


class StopDecisions(Protocol):
    """The interface for workers: a stopper, or a proxy of one in another process."""

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        """Record the objectives of runs at this step, and return whether each of them stops."""

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        """Record objectives for which the decision was made earlier."""


class Stopper:
    def __init__(self, wanted: EarlyTerminate, goal: str, steps: int, judged: float = math.inf) -> None:
        """Judge runs with seeds below `judged`. Later seeds are those of a race, which compares runs at their end.

        Only cells that were trained to the end race. If their further seeds were stopped, they would leave the race.
        """
        self._judged = judged
        self.per_cell = wanted.per == "cell"
        self.min_steps = wanted.min_steps
        self._rule = rule_of(wanted, steps)
        self._sign = 1 if goal == "minimize" else -1
        self._costs: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        """By candidate, step and seed."""
        self._means: dict[str, dict[int, float]] = defaultdict(dict)
        self._diverged: dict[str, int] = {}
        """By candidate, the step at which its first run diverged."""
        self._stopped: set[str] = set()

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        """Record all runs of a pack before the first decision, so that they are compared with each other."""
        self.record(step, runs, values)
        pairs = zip(runs, values, strict=True)
        measured = [run for run, value in pairs if value is not None and run.seed < self._judged]
        for name, branch in {self._candidate(run): run.branch for run in measured}.items():
            if name not in self._stopped and self._rule.should_stop(name, branch, step, self._means[name]):
                self._stopped.add(name)
        # The cell's other seeds are stopped too, once past min_steps.
        return [step >= self.min_steps and self._candidate(run) in self._stopped for run in runs]

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        for run, value in zip(runs, values, strict=True):
            if value is None:
                self.diverge(run, step)
            self._costs[self._candidate(run)][step][run.seed] = math.inf if value is None else self._sign * value
        for name, branch in {self._candidate(run): run.branch for run in runs}.items():
            self._update_mean(name, branch, step)

    def _update_mean(self, name: str, branch: str, step: int) -> None:
        costs = self._costs[name][step]
        # Sum in the order of the seeds, so that rounding is always the same.
        mean = sum(costs[seed] for seed in sorted(costs)) / len(costs)
        self._means[name][step] = math.inf if step >= self._diverged.get(name, math.inf) else mean
        self._rule.record(name, branch, step, self._means[name])

    def stop(self, run: Entry) -> None:
        """Record that the run was stopped in an earlier launch."""
        self._stopped.add(self._candidate(run))

    def diverge(self, run: Entry, step: int) -> None:
        """Record that the run diverged: from this step on, its cell ranks below all that have a mean."""
        name = self._candidate(run)
        self._diverged[name] = min(step, self._diverged.get(name, step))
        for later in [at for at in self._means[name] if at >= step]:
            self._update_mean(name, run.branch, later)

    def _candidate(self, run: Entry) -> str:
        return run.cell if self.per_cell else run_id(run.cell, run.seed)


def stopper_of(spec: Spec, task: "Task[Any]", index: RunIndex, files: SweepFiles) -> Stopper | None:
    """The sweep's stopper, with the objectives of the stored runs; None if the sweep has no stopping rule."""
    wanted = spec.early_terminate
    if wanted is None:
        return None
    stopper = Stopper(wanted, spec.metric[0].goal, shortest_run(spec, task), spec.seed_range.stop)
    objective, branches = spec.metric[0].name, spec.branch_axes()
    if not index.has([objective, *branches]):
        return stopper
    entries: dict[str, Entry] = {}
    schedules: dict[str, frozenset[int]] = {}
    defaults = {name: parameter.default for name, parameter in task.parameters.items()}

    @cache
    def schedule(*training: Value) -> frozenset[int]:
        settings = task.settings({**defaults, **dict(zip(TRAINING, training, strict=True))})
        return decision_steps(wanted, measured_steps(settings))

    for row in index.rows.to_pylist():
        run = entries[row["run_id"]] = Entry(row["cell_id"], row["seed"], branch_of(row, branches))
        schedules[row["run_id"]] = schedule(*(row[name] for name in TRAINING))
        if row["status"] == Status.STOPPED:
            stopper.stop(run)
        if row["status"] == Status.DIVERGED:
            stopper.diverge(run, row["step"])
    for step, values in sorted(_curves(files, objective, schedules).items()):
        found = sorted((entries[run], value) for run, value in values.items())
        stopper.record(step, [run for run, _ in found], [value for _, value in found])
    return stopper


def _curves(files: SweepFiles, metric: str, schedules: Mapping[str, frozenset[int]]) -> dict[int, dict[str, float]]:
    """The metric at the steps of each run's schedule, by step and run."""
    at: dict[int, dict[str, float]] = defaultdict(dict)
    steps = sorted(set().union(*schedules.values()))
    if metric in files.columns("curves") and steps:
        # If a run has two curves, they have the same values: either one will do.
        curves = files.read("curves", ["run_id", "step", metric], pc.field("step").isin(steps), each_run_once=False)
        for run, step, value in zip(*(curves[name].to_pylist() for name in curves.column_names), strict=True):
            if step in schedules[run]:
                at[step][run] = math.nan if value is None else value
    return at
