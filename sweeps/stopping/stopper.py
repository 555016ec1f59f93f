"""Who stops runs: one stopper per sweep holds what all contenders have shown, and judges the lanes of a pack together.

It knows neither Ray nor torch. Inline it is called as it is, on Ray it lives in an actor of its own; what it decides
depends on the order in which it is told alone. What a stopper of an earlier launch knew is rebuilt from the store's
curves, and from the checkpoints of packs that are taken up again.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow.compute as pc

from mislabel.sweeps.cells.space import branch_of
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.spec.model import EarlyTerminate, Spec
from mislabel.sweeps.stopping.rules import judged_steps, rule_of, shortest_run
from mislabel.sweeps.store.outcome import Status
from mislabel.sweeps.store.run_index import TRAINING, RunIndex
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value
from mislabel.tasks.training import measured_steps

if TYPE_CHECKING:
    from mislabel.tasks.task import Task


class Entry(NamedTuple):
    """A run as the stopper knows it."""

    cell: str
    seed: int
    branch: str = ""
    """Values of the axes for each of which the others are searched anew: cells are compared within a branch."""


Values = Sequence[float | None]
"""The objective of each run; None where it has diverged and will never have one."""


class StopDecisions(Protocol):
    """What workers ask: a stopper, or a way to reach one."""

    def judge(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        """Whether each of these runs is stopped, all of which have just come to this step."""

    def tell(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        """What these runs have shown at this step, where that was judged already."""


class Stopper:
    def __init__(self, wanted: EarlyTerminate, goal: str, steps: int) -> None:
        self.per_cell = wanted.per == "cell"
        self.min_steps = wanted.min_steps
        self._rule = rule_of(wanted, steps)
        self._sign = 1 if goal == "minimize" else -1
        self._costs: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
        """By contender, step and seed."""
        self._means: dict[str, dict[int, float]] = defaultdict(dict)
        self._diverged: dict[str, int] = {}
        """By contender, the step at which the first of its runs did."""
        self._stopped: set[str] = set()

    def judge(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        """Whether each of these runs is stopped. All are told before the first is judged: a pack is judged jointly."""
        self.tell(step, runs, values)
        contenders = {
            self._contender(run): run.branch for run, value in zip(runs, values, strict=True) if value is not None
        }
        for name, branch in contenders.items():
            if name not in self._stopped and self._rule.stops(name, branch, step, self._means[name]):
                self._stopped.add(name)
        # A stopped cell's other seeds follow wherever they are, but no earlier than any run may be stopped.
        return [step >= self.min_steps and self._contender(run) in self._stopped for run in runs]

    def tell(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        contenders: dict[str, str] = {}
        for run, value in zip(runs, values, strict=True):
            name = self._contender(run)
            contenders[name] = run.branch
            if value is None:
                self.diverge(run, step)
            self._costs[name][step][run.seed] = math.inf if value is None else self._sign * value
        for name, branch in contenders.items():
            self._note_mean(name, branch, step)

    def _note_mean(self, name: str, branch: str, step: int) -> None:
        costs = self._costs[name][step]
        # In the order of the seeds, so that the sum has the same bits whenever it is made.
        mean = sum(costs[seed] for seed in sorted(costs)) / len(costs)
        self._means[name][step] = math.inf if step >= self._diverged.get(name, math.inf) else mean
        self._rule.told(name, branch, step, self._means[name])

    def stop(self, run: Entry) -> None:
        """The run was stopped before."""
        self._stopped.add(self._contender(run))

    def diverge(self, run: Entry, step: int) -> None:
        """The run has diverged: from this step on, its cell is worse than all that have a mean."""
        name = self._contender(run)
        self._diverged[name] = min(step, self._diverged.get(name, step))
        for later in [at for at in self._means[name] if at >= step]:
            self._note_mean(name, run.branch, later)

    def _contender(self, run: Entry) -> str:
        return run.cell if self.per_cell else run_id(run.cell, run.seed)


def stopper_of(spec: Spec, task: "Task[Any]", index: RunIndex, files: SweepFiles) -> Stopper | None:
    """The sweep's stopper, who knows what the runs in the store have shown; None where no rule stops runs."""
    wanted = spec.early_terminate
    if wanted is None:
        return None
    stopper = Stopper(wanted, spec.metric[0].goal, shortest_run(spec, task))
    objective, branches = spec.metric[0].name, spec.branch_axes()
    if not index.has([objective, *branches]):
        return stopper
    rows = index.rows.to_pylist()
    entries: dict[str, Entry] = {}
    schedules: dict[str, frozenset[int]] = {}
    of_training: dict[tuple[Value, ...], frozenset[int]] = {}
    defaults = {name: parameter.default for name, parameter in task.parameters.items()}
    for row in rows:
        run = entries[row["run_id"]] = Entry(row["cell_id"], row["seed"], branch_of(row, branches))
        training = tuple(row[name] for name in TRAINING)
        if training not in of_training:
            settings = task.settings({**defaults, **dict(zip(TRAINING, training, strict=True))})
            of_training[training] = judged_steps(wanted, measured_steps(settings))
        schedules[row["run_id"]] = of_training[training]
        if row["status"] == Status.STOPPED:
            stopper.stop(run)
        if row["status"] == Status.DIVERGED:
            stopper.diverge(run, row["step"])
    _retell(stopper, entries, schedules, objective, files)
    return stopper


def _retell(
    stopper: Stopper, entries: Mapping[str, Entry], schedules: Mapping[str, frozenset[int]], objective: str,
    files: SweepFiles,
) -> None:  # fmt: skip
    steps = sorted(set().union(*schedules.values()))
    if objective not in files.columns("curves") or not steps:
        return
    # If a run has two curves, they have the same values: either one will do.
    curves = files.read("curves", ["run_id", "step", objective], pc.field("step").isin(steps), each_run_once=False)
    at: dict[int, dict[Entry, float]] = defaultdict(dict)
    for run, step, value in zip(*(curves[name].to_pylist() for name in curves.column_names), strict=True):
        if step in schedules[run]:
            at[step][entries[run]] = math.nan if value is None else value
    for step in sorted(at):
        told = sorted(at[step].items())
        stopper.tell(step, [run for run, _ in told], [value for _, value in told])
