"""Stops runs early: each sweep has one stopper, which records all objectives and decides for whole packs.

All seeds of a cell stop, or none does (unless the rule is `per: run`). A run that passes its last decision is trained
to the end. From then on, the rule no longer judges its cell, whatever its other seeds measure, in this launch or later.

It does not depend on Ray or torch. Inline sweeps call it directly; on Ray it runs in an actor. Its decisions depend
on the order of the calls alone. A new launch rebuilds it from the store's curves and the checkpoints of resumed packs.
"""

import math
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from mislabel.sweeps.cells.space import Space, branch_of
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
    last_decision: int = sys.maxsize
    """The last step at which the rule may stop the run."""


class StoredRun(NamedTuple):
    """An ended run in the store."""

    entry: Entry
    status: Status
    step: int
    values: Mapping[int, float]
    """The objective at the steps at which the rule decides."""


Values = Sequence[float | None]
"""The objective of each run; None if the run has diverged."""


class StopDecisions(Protocol):
    """The interface for workers: a stopper, or a proxy of one in another process."""

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        """Record the objectives of runs at this step, and return whether each of them stops."""

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        """Record objectives for which the decision was made earlier."""


class StopLearner(Protocol):
    """The interface for the driver: a stopper, or a proxy of one in another process."""

    def learn(self, runs: Sequence[StoredRun]) -> None:
        """Record runs of the store: how they ended, and their objectives."""


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
        self._kept: set[str] = set()
        """Candidates that are trained to the end."""
        self._awaited: dict[str, set[int]] = defaultdict(set)
        """By cell, the seeds in checkpoints whose measurements are not recorded yet."""

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        """Record all runs of a pack before the first decision, so that they are compared with each other."""
        self._measured(step, runs, values)
        pairs = list(zip(runs, values, strict=True))
        judged = [run for run, value in pairs if value is not None and self._is_judged(run)]
        for name, branch in {self._candidate(run): run.branch for run in judged}.items():
            if name not in self._stopped and self._rule.should_stop(name, branch, step, self._means[name]):
                self._stopped.add(name)
        # The cell's other seeds are stopped too, once past min_steps.
        stops = [step >= self.min_steps and self._is_stopped(run) for run in runs]
        self._keep_past_last(step, [pair for pair, stop in zip(pairs, stops, strict=True) if not stop])
        return stops

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        """Record the objectives of runs that were not stopped at this step."""
        self._measured(step, runs, values)
        self._keep_past_last(step, zip(runs, values, strict=True))

    def learn(self, runs: Sequence[StoredRun]) -> None:
        by_step: dict[int, list[tuple[Entry, float]]] = defaultdict(list)
        for run in runs:
            match run.status:
                case Status.DONE:
                    self.finish(run.entry)
                case Status.STOPPED:
                    self.stop(run.entry)
                case Status.DIVERGED:
                    self.diverge(run.entry, run.step)
            for step, value in run.values.items():
                by_step[step].append((run.entry, value))
        for step, found in sorted(by_step.items()):
            found.sort(key=lambda pair: pair[0])
            self.record(step, [entry for entry, _ in found], [value for _, value in found])

    def keep(self, cells: Iterable[str]) -> None:
        """Never stop these cells."""
        self._kept.update(cells)

    def finish(self, run: Entry) -> None:
        """Record that the run was trained to the end."""
        self._kept.add(self._candidate(run))

    def expect(self, run: Entry) -> None:
        """Record that the run continues from a checkpoint. Its cell is not judged before its measurements are known.

        The run may have passed its last decision. Then the cell's other seeds are trained to the end too.
        """
        self._awaited[run.cell].add(run.seed)

    def _is_kept(self, run: Entry) -> bool:
        return self._candidate(run) in self._kept or run.cell in self._kept

    def _is_stopped(self, run: Entry) -> bool:
        return self._candidate(run) in self._stopped and not self._is_kept(run)

    def _is_judged(self, run: Entry) -> bool:
        awaits_others = self.per_cell and bool(self._awaited.get(run.cell))
        return run.seed < self._judged and not self._is_kept(run) and not awaits_others

    def _keep_past_last(self, step: int, pairs: Iterable[tuple[Entry, float | None]]) -> None:
        for run, value in pairs:
            if value is not None and step >= run.last_decision:
                self.finish(run)

    def _measured(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        for run, value in zip(runs, values, strict=True):
            if value is None:
                self.diverge(run, step)
            if run.cell in self._awaited:
                self._awaited[run.cell].discard(run.seed)
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


def stopper_of(
    spec: Spec, task: "Task[Any]", index: RunIndex, files: SweepFiles, checkpoints: Collection[str] = ()
) -> Stopper | None:
    """The sweep's stopper, with the objectives of the stored runs; None if the sweep has no stopping rule.

    `checkpoints` are the ids of runs that continue from a checkpoint.
    """
    wanted = spec.early_terminate
    if wanted is None:
        return None
    # If a search proposes a cell again, the cell's further seeds are judged with it.
    all_seeds = wanted.per == "cell" and spec.seeds.up_to is None
    judged = math.inf if all_seeds else spec.seed_range.stop
    stopper = Stopper(wanted, spec.metric[0].goal, shortest_run(spec, task), judged)
    stopper.keep(cell for cells in Space(spec, task).baselines() for cell in cells.ids)
    for run in checkpoints:
        cell, _, seed = run.rpartition("-")
        if int(seed) not in index.seeds.get(cell, ()):
            stopper.expect(Entry(cell, int(seed)))
    objective = spec.metric[0].name
    if index.has([objective, *spec.branch_axes()]):
        steps = sorted(set().union(*_schedules(spec, task, index.rows).values()))
        if steps and objective in files.columns("curves"):
            # If a run has two curves, they have the same values: either one will do.
            names, at_steps = ["run_id", "step", objective], pc.field("step").isin(steps)
            curves = files.read("curves", names, at_steps, each_run_once=False)
        else:
            curves = pa.table({})
        stopper.learn(stored_runs(spec, task, index.rows, curves))
    return stopper


def stored_runs(spec: Spec, task: "Task[Any]", runs: pa.Table, curves: pa.Table) -> list[StoredRun]:
    """The runs in these rows of `runs` and `curves`, for the stopper. Curves of other runs are ignored."""
    objective, branches = spec.metric[0].name, spec.branch_axes()
    schedules, values = _schedules(spec, task, runs), defaultdict[str, dict[int, float]](dict)
    if objective in curves.column_names:
        columns = (curves[name].to_pylist() for name in ("run_id", "step", objective))
        for run, step, value in zip(*columns, strict=True):
            if step in schedules.get(run, ()):
                values[run][step] = math.nan if value is None else value
    return [
        StoredRun(
            Entry(row["cell_id"], row["seed"], branch_of(row, branches)),
            Status(row["status"]),
            row["step"],
            values.get(row["run_id"], {}),
        )
        for row in runs.select(["run_id", "cell_id", "seed", "status", "step", *branches]).to_pylist()
    ]


def _schedules(spec: Spec, task: "Task[Any]", runs: pa.Table) -> dict[str, frozenset[int]]:
    """By run, the steps at which the rule decides."""
    wanted = spec.early_terminate
    assert wanted is not None
    defaults = {name: parameter.default for name, parameter in task.parameters.items()}

    @cache
    def schedule(*training: Value) -> frozenset[int]:
        settings = task.settings({**defaults, **dict(zip(TRAINING, training, strict=True))})
        return decision_steps(wanted, measured_steps(settings))

    ids, *training = (runs[name].to_pylist() for name in ("run_id", *TRAINING))
    return {run: schedule(*values) for run, *values in zip(ids, *training, strict=True)}
