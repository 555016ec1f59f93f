"""Run a sweep from spec to complete tables: the order of things, whoever does the training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import torch

from mislabel.sweeps.checks.revision import incompatible_changes
from mislabel.sweeps.errors import Problem, SpecError
from mislabel.sweeps.plan.backlog import Backlog
from mislabel.sweeps.plan.data_check import datasets_of
from mislabel.sweeps.plan.pack_size import Sizing
from mislabel.sweeps.plan.plan import Plan, make_plan, sized_plan
from mislabel.sweeps.plan.reuse import reusable_runs, reuse
from mislabel.sweeps.plan.seed_race import SeedRaceSource, race_is_on
from mislabel.sweeps.plan.sources import GridSource, SearchSource, Source
from mislabel.sweeps.plan.speed import LocalProfiler, Profiler
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.heartbeat import Heartbeat, note_complete, refuse_if_running
from mislabel.sweeps.run.provenance import provenance
from mislabel.sweeps.search.warm_start import earlier_cells, refuse_unknown_sweeps
from mislabel.sweeps.spec.model import Spec, spec_from_stored
from mislabel.sweeps.store.cell_means import Mean, Means
from mislabel.sweeps.store.earlier_values import write_earlier_values
from mislabel.sweeps.store.filesystem import LONG_PATIENCE_SECONDS
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.task import Task

Say = Callable[[str], None]


@dataclass(frozen=True)
class Machine:
    """What there is to run on."""

    workers: int
    memory_bytes: int
    """Of one worker."""
    device: torch.device
    ahead: bool = False
    """Whether a search prepares proposals while packs train; what it proposes then depends on who ends first."""
    profiler: Profiler | None = None
    """Who tries pack sizes; by default this process, on that device."""


class Launch:
    """A sweep from the moment its spec is accepted: count it, equip it with a machine, run it, finish it."""

    def __init__(self, plan: Plan, index: RunIndex, files: SweepFiles) -> None:
        self.spec = plan.spec
        self.task = plan.task
        self.files = files
        self.plan = plan
        self._index = index
        self.complete = not plan.missing and not race_is_on(plan.spec, index, plan.retry)
        """True where there is nothing to run."""
        self._driver: Driver | None = None

    @property
    def driver(self) -> Driver:
        assert self._driver is not None, "equip the launch with a machine first"
        return self._driver

    def equip(self, machine: Machine) -> None:
        """Decide how the sweep is packed on this machine; from here on it counts as running."""
        sizing = _sizing(self.task, self.files, machine)
        self.plan = sized_plan(self.plan, sizing)
        sizing.keep()
        self.backlog = Backlog(self.plan, self._index, sizing)
        means = Means(self.spec, self._index, self.plan.retry, self.backlog.seeding)
        source = _source(self.backlog, self.files, means, machine.ahead)
        if self.spec.seeds.up_to is not None:
            source = SeedRaceSource(source, self.backlog, means)
        self._driver = Driver(self.backlog, source, self.files, means)
        self.heartbeat = Heartbeat(self.files, self._driver)
        self.heartbeat.beat()

    def finish(self) -> None:
        """Leave the store tidy, and say how it ended."""
        if self.driver.broken:
            return
        over = self.driver.over and self.driver.stop_reason is None
        _tidy(self.files, over)
        self.heartbeat.beat("done" if over else "stopped")


def plan_sweep(spec: Spec, task: Task[Any], store: Store, machine: Machine, retry: bool = False) -> Plan:
    """The plan, without writing anything."""
    files = store.sweep(spec.name)
    refuse_other_spec(spec, task, files)
    refuse_unknown_sweeps(spec, task, store)
    index = RunIndex(spec, files)
    plan = make_plan(spec, task, index, files, retry)
    data = datasets_of(plan, files)
    elsewhere = {name: len(runs) for name, runs in reusable_runs(plan.space, store, index, data).items()}
    return sized_plan(replace(plan, elsewhere=elsewhere), _sizing(task, files, machine))


def prepare(spec: Spec, task: Task[Any], store: Store, say: Say, retry: bool = False) -> Launch:
    """Everything before a machine is needed: checks, spec and provenance into the store, counts."""
    store.prepare()
    files = store.sweep(spec.name).with_patience(LONG_PATIENCE_SECONDS)
    refuse_if_running(files)
    refuse_other_spec(spec, task, files)
    refuse_unknown_sweeps(spec, task, store)
    for moved in files.set_damaged_aside():
        say(f"{moved} is damaged: set aside, and its runs are run again")
    write_earlier_values(files, task.earlier)
    index = RunIndex(spec, files)
    plan = make_plan(spec, task, index, files, retry)  # SpecError where shapes conflict, before anything is written
    data = datasets_of(plan, files)
    reused = reuse(plan.space, store, index, data)
    for name, runs in reused.items():
        say(f"{runs:,} runs are the same as in {name}: copied from there")
    if reused:
        plan = make_plan(spec, task, index, files, retry)
    launch = Launch(replace(plan, data=data), index, files)
    files.revise_spec(spec.to_yaml())
    files.remove("stop")
    if not launch.complete:
        files.write_json(f"launches/{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.json", provenance(task.init.__module__, data))
    else:
        _tidy(files, over=True)
        note_complete(files, launch.plan.cells, launch.plan.runs)
    return launch


def _tidy(files: SweepFiles, over: bool) -> None:
    """Leave few files behind, and no checkpoints of a sweep that is over."""
    if over:
        for pack, _ in list(files.checkpoints()):
            files.drop_checkpoint(pack)
    files.compact()


def refuse_other_spec(spec: Spec, task: Task[Any], files: SweepFiles) -> None:
    """SpecError where the store has a sweep of this name that the spec does not merely widen."""
    stored = files.read_text("spec.yaml")
    if stored is None:
        return
    old = spec_from_stored(stored)
    if task.earlier and (columns := files.columns("runs")):
        # Runs from before a parameter was added had its earlier value, which need not be its default.
        added = {name: value for name, value in task.earlier.items() if name not in columns}
        old = old.model_copy(update={"parameters": {**added, **old.parameters}})
    changes = incompatible_changes(old, spec, task)
    if changes:
        problems = [Problem("", change) for change in changes]
        raise SpecError(
            f"{files.address} is a sweep with another spec; give this one another name, or keep what it had", problems
        )


def _sizing(task: Task[Any], files: SweepFiles, machine: Machine) -> Sizing:
    return Sizing(task, files, machine.profiler or LocalProfiler(machine.device), machine.memory_bytes, machine.workers)


def _source(backlog: Backlog, files: SweepFiles, means: Means, ahead: bool) -> Source:
    plan = backlog.plan
    if not plan.spec.method.learns:
        return GridSource(backlog)
    from mislabel.sweeps.search.branch_searches import Branches  # imports Optuna, which a grid can do without

    search = Branches(plan.space, files)
    if plan.spec.start_from:
        sweeps = [files.sibling(name) for name in plan.spec.start_from]
        search.learn_from(lambda space: earlier_cells(sweeps, space))

    def known(cell: str, seeds: int) -> Mean | None:
        backlog.seeding.want(cell, seeds)
        return means.of(cell)

    search.restore(known)
    if backlog.index.seeds.keys() - {proposal.cell for proposal in search.proposals}:
        search.recover(lambda space: earlier_cells([files], space), known)
    return SearchSource(backlog, search, means, ahead)
