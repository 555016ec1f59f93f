"""Launch a sweep: check and plan it (`prepare`), start it on a machine, and leave complete tables (`finish`).

`run_sweep` does all of this. The caller passes in the host, which provides the machine and trains the packs: this
process (`inline_host`), or a Ray cluster. So this module does not know Ray.
"""

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import torch

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.revision import incompatible_changes
from mislabel.sweeps.errors import DamagedFileError, LeaseLostError, SpecError, StoreError
from mislabel.sweeps.plan.backlog import Backlog
from mislabel.sweeps.plan.data_check import datasets_of
from mislabel.sweeps.plan.pack_size import Profiler, Sizing
from mislabel.sweeps.plan.plan import Plan, averaged_plan, make_plan, sized_plan, without_copied
from mislabel.sweeps.plan.reuse import Reuse
from mislabel.sweeps.plan.seed_race import race_is_on
from mislabel.sweeps.plan.sources import GridSource, SearchSource, SeedRaceSource, Source, copy_missing
from mislabel.sweeps.plan.stages import StageClock, expected_time, start_seconds
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.heartbeat import (
    Heartbeat,
    forget_earlier_stop,
    is_running,
    note_complete,
    note_starting,
    stoppable_wait,
)
from mislabel.sweeps.run.lane_stopper import lane_stopper_of
from mislabel.sweeps.run.lease import Lease, take
from mislabel.sweeps.run.provenance import commit_of, provenance
from mislabel.sweeps.run.sweep_log import sweep_log
from mislabel.sweeps.run.worker import reports
from mislabel.sweeps.search.warm_start import earlier_cells, refuse_unknown_sweeps
from mislabel.sweeps.spec.model import Resources, Spec
from mislabel.sweeps.store.cell_means import Mean, Means
from mislabel.sweeps.store.filesystem import LONG_PATIENCE_SECONDS
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.device.memory import memory_of
from mislabel.tasks.task import Task

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Machine:
    """The resources of a launch."""

    workers: int
    memory_bytes: int
    """Of one worker."""
    device: torch.device | None
    """None if packs will train on a device that this machine does not have."""
    ahead: bool = False
    """Whether a search prepares proposals while packs train. Its proposals then depend on which pack ends first."""
    profiler: Profiler | None = None
    """Measures pack sizes; by default in this process, on that device."""


Show = Callable[[], None]
Runner = Callable[[Driver, Store, Show], None]
"""Trains the driver's packs until it is over, and calls the function after every report."""
Host = Callable[[Resources], AbstractContextManager[tuple[Machine, Runner]]]
"""Provides a machine and its runner for as long as a sweep runs."""
Observer = Callable[[Plan, SweepFiles, Driver | None], AbstractContextManager[Show]]
"""What the caller of `run_sweep` adds, such as a progress bar: a context around the training and its end.

Without a driver, there is nothing to run. The context provides the function that is called after every report.
"""


@dataclass(frozen=True)
class Result:
    plan: Plan
    driver: Driver | None = None
    """None if there was nothing to run."""

    @property
    def failed(self) -> int:
        """Runs without a result, including those of earlier launches that were not run again."""
        statuses = self.driver.progress.statuses if self.driver else {}
        return self.plan.failed + sum(count for status, count in statuses.items() if not status.has_result)


def run_sweep(
    spec: Spec, task: Task[Any], store: Store, host: Host, retry: bool = False, observer: Observer | None = None,
    take_over: bool = False, notes: Mapping[str, Any] | None = None,
) -> Result:  # fmt: skip
    """Run all runs of the sweep that the store lacks; with `retry`, also those that failed.

    `notes` are stored with the provenance of the launch.

    Raises SweepBusyError if another driver runs the sweep, unless `take_over`. Raises StoreError if the store fails on
    the way. Ctrl-C lets running packs checkpoint.
    """
    observe = observer or (lambda plan, files, driver: nullcontext(lambda: None))
    clock = StageClock(store)
    with (
        sweep_log(store.sweep(spec.name)) as log,
        closing(prepare(spec, task, store, retry, take_over, notes)) as prepared,
    ):
        log.begin()
        clock.end("start")
        if prepared.complete:
            with observe(prepared.plan, prepared.files, None):
                return Result(prepared.plan)
        with stoppable_wait(prepared.lease) as waited, host(spec.resources) as (machine, runner):
            waited()
            clock.end("machine")
            launch = prepared.start(machine)
            driver = launch.driver
            clock.end("measure")
            clock.begin_training(launch.plan.workers)
            with observe(launch.plan, launch.files, driver) as update:

                def show() -> None:
                    launch.heartbeat.beat()
                    update()

                with _interruptible(driver, show):
                    runner(driver, store, show)
                clock.end("workers", driver.progress.first_report)
                clock.end("train")
                launch.finish()
                clock.end("merge")
            clock.end("view")
        done, has_costs = driver.progress, driver.backlog.has_costs
        if done.work_done and driver.packs and not driver.stop_reason:
            expected = done.work_done if has_costs else None
            clock.note(launch.plan, machine.ahead, driver.packs, done.train_seconds, expected)
        if driver.broken:
            raise prepared.lease.lost or driver.broken
        return Result(launch.plan, driver)


@contextmanager
def _interruptible(driver: Driver, show: Show) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM lets packs checkpoint; the second one ends at once."""

    def stop(signum: int, frame: Any) -> None:
        if driver.stop_reason:
            raise KeyboardInterrupt
        driver.stop(INTERRUPTED)
        _log.info("interrupted: saving checkpoints of running packs; press Ctrl-C again to end at once")
        show()

    if threading.current_thread() is not threading.main_thread():  # only the main thread gets signals
        yield
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def inline_host(resources: Resources) -> Iterator[tuple[Machine, Runner]]:
    device = torch.device("cuda" if resources.gpu and torch.cuda.is_available() else "cpu")
    if resources.gpu and device.type == "cpu":
        _log.warning("resources.gpu: torch finds no CUDA here; packs train on the CPU")
    torch.set_num_threads(max(1, int(resources.cpu)))
    machine = Machine(1, free_memory_bytes() if device.type == "cpu" else memory_of(device), device)
    yield machine, lambda driver, store, show: run_inline(driver, driver.files, device, show)


def run_inline(driver: Driver, files: SweepFiles, device: torch.device, show: Show) -> None:
    """Train the driver's packs in this process, one after the other, without Ray."""
    lane_stopper = lane_stopper_of(driver.plan.spec, driver.stopper)
    while (order := driver.next()) is not None:
        for report in reports(order, files, device, driver.means.names, lane_stopper, lambda: driver.stopping):
            driver.report(report)
            show()


def free_memory_bytes() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Prepared:
    """A sweep whose spec is accepted and stored, and that has no machine yet."""

    plan: Plan
    index: RunIndex
    lease: Lease
    store: Store
    files: SweepFiles
    complete: bool
    """True if there is nothing to run."""
    reuse: Reuse

    def close(self) -> None:
        """Let other drivers run the sweep."""
        self.lease.release()

    def start(self, machine: Machine) -> "Launch":
        """Choose how the sweep is packed on this machine."""
        sizing = _sizing(self.plan.task, self.files, machine)
        plan = sized_plan(self.plan, sizing)
        sizing.keep()
        backlog = Backlog(plan, self.index, sizing, self.reuse)
        means = Means(plan.spec, self.index, plan.retry, backlog.seeding)
        source = _source(backlog, self.files, means, machine.ahead, self.reuse)
        if plan.spec.seeds.up_to is not None:
            source = SeedRaceSource(source, backlog, means)
        driver = Driver(backlog, source, self.files, means)
        heartbeat = Heartbeat(self.lease, driver)
        heartbeat.beat()
        expected = expected_time(plan, self.store, self.files, machine.ahead, sizing.spent_seconds)
        prepared = (self.index, self.lease, self.store, self.files, self.complete, self.reuse)
        return Launch(replace(plan, expected=expected), *prepared, driver, heartbeat)


@dataclass(frozen=True)
class Launch(Prepared):
    """A sweep that runs on a machine."""

    driver: Driver
    heartbeat: Heartbeat

    def finish(self) -> None:
        """Merge the tables' small files, remove checkpoints that nobody needs, and record how the sweep ended."""
        self.reuse.log_counts()
        if not self.driver.broken:
            over = self.driver.over and self.driver.stop_reason is None
            _tidy(self.lease, over)
            self.heartbeat.beat("done" if over else "stopped")
        self.close()


def plan_sweep(spec: Spec, task: Task[Any], store: Store, machine: Machine, retry: bool = False) -> Plan:
    """The plan of a sweep, with the time that it is expected to take. Writes nothing."""
    start_seconds()
    files = store.sweep(spec.name)
    refuse_other_spec(spec, task, files)
    refuse_unknown_sweeps(spec, task, store)
    index = RunIndex(spec, files, [cell for cells in Space(spec, task).baselines() for cell in cells.ids])
    plan = make_plan(spec, task, index, files, retry)
    data = datasets_of(plan, files)
    plan = without_copied(plan, Reuse(plan.space, store, files, data).expected_runs(index), index)
    sizing = _sizing(task, files, machine)
    plan = averaged_plan(sized_plan(plan, sizing), sizing)
    return replace(plan, expected=expected_time(plan, store, files, machine.ahead, sizing.spent_seconds))


def prepare(
    spec: Spec, task: Task[Any], store: Store, retry: bool = False, take_over: bool = False,
    notes: Mapping[str, Any] | None = None,
) -> Prepared:  # fmt: skip
    """Do everything that needs no machine: take the lease, check and plan the sweep, and store spec and provenance.

    Raises SweepBusyError if another driver runs the sweep, unless `take_over`.
    """
    store.prepare()
    files = store.sweep(spec.name).with_patience(LONG_PATIENCE_SECONDS)
    refuse_other_spec(spec, task, files)
    refuse_unknown_sweeps(spec, task, store)
    if take_over and is_running(files):
        _log.warning("%s is taken over from a driver that seems to run: what that driver trains is lost", spec.name)
    lease = take(files, take_over)
    try:
        return _prepared(spec, task, store, lease, retry, notes or {})
    except BaseException:
        lease.release()
        raise


def _prepared(
    spec: Spec, task: Task[Any], store: Store, lease: Lease, retry: bool, notes: Mapping[str, Any]
) -> Prepared:
    files = lease.files
    files.restore_spec()
    refuse_other_spec(spec, task, files)  # the driver before may have widened it since
    for path, problem in files.set_damaged_aside().items():
        _log.warning("%s %s: its part is set aside, and its runs are run again", path, problem)
    files.remove_leftovers()
    files.write_earlier_values(task.earlier)
    index = RunIndex(spec, files, [cell for cells in Space(spec, task).baselines() for cell in cells.ids])
    plan = make_plan(spec, task, index, files, retry)  # raises SpecError before anything is written
    data = datasets_of(plan, files)
    reuse = Reuse(plan.space, store, files, data)
    if reuse.copy([run for runs in reuse.known_cells(index).values() for run in runs], index):
        plan = make_plan(spec, task, index, files, retry)
    reuse.log_counts()
    files.revise_spec(spec.to_yaml())
    forget_earlier_stop(files)
    complete = not plan.missing and not race_is_on(spec, index, retry)
    if complete:
        _tidy(lease, over=True)
        note_complete(lease.files, plan.cells, plan.runs)
    else:
        launch = {**provenance(task.init.__module__, data), **notes}
        files.write_json(f"launches/{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.json", launch)
        plan = replace(plan, commit=commit_of(launch))
        note_starting(files, plan.cells, plan.runs, plan.runs - plan.missing)
    return Prepared(replace(plan, data=data), index, lease, store, files, complete, reuse)


def _tidy(lease: Lease, over: bool) -> None:
    """Merge small parts, and remove what nobody needs: in the next generation, as `lease` explains.

    If the store fails, for example because there is no room for the merged parts, the next launch does this.
    """
    files = lease.files
    try:
        if over:
            for pack, _ in list(files.checkpoints()):
                files.drop_checkpoint(pack)
            files.drop_all_running()
        files.compact()
        lease.advance()
        lease.files.remove_leftovers()
    except LeaseLostError:
        raise
    except StoreError as error:
        stored = "all runs" if over else "all runs that ended"
        _log.warning("%s are stored, but their small files can't be merged: %s", stored, error)


def refuse_other_spec(spec: Spec, task: Task[Any], files: SweepFiles) -> None:
    """Raise SpecError if the store has a sweep of this name that the spec does not merely widen."""
    old = files.spec()
    if old is None:
        return
    if task.earlier and (columns := _readable_columns(files)):
        # Runs from before a parameter was added had its earlier value, which need not be its default.
        added = {name: value for name, value in task.earlier.items() if name not in columns}
        old = old.model_copy(update={"parameters": {**added, **old.parameters}})
    if changes := incompatible_changes(old, spec, task):
        advice = "give this one another name, or keep what it had"
        raise SpecError(f"{files.address} is a sweep with another spec; {advice}", changes)


def _readable_columns(files: SweepFiles) -> list[str]:
    """The columns of `runs`; none if a part is damaged, which is set aside later."""
    try:
        return files.columns("runs")
    except DamagedFileError:
        return []


def _sizing(task: Task[Any], files: SweepFiles, machine: Machine) -> Sizing:
    return Sizing(task, files, machine.profiler or Profiler(machine.device), machine.memory_bytes, machine.workers)


def _source(backlog: Backlog, files: SweepFiles, means: Means, ahead: bool, reuse: Reuse) -> Source:
    plan = backlog.plan
    if not plan.spec.method.learns:
        return GridSource(backlog)
    from mislabel.sweeps.search.search import Branches  # imports Optuna, which a grid can do without

    search = Branches(plan.space, files)
    if plan.spec.start_from:
        sweeps = [files.sibling(name) for name in plan.spec.start_from]
        search.learn_from(lambda space: earlier_cells(sweeps, space))

    def known(cell: str, seeds: int) -> Mean | None:
        backlog.seeding.want(cell, seeds)
        return means.of(cell)

    if not backlog.index.count and (other := reuse.same_search()):
        copy_missing(search.adopt(other), backlog, means)
    search.restore(known)
    if backlog.index.seeds.keys() - {proposal.cell for proposal in search.proposals}:
        search.recover(lambda space: earlier_cells([files], space), known)
    return SearchSource(backlog, search, means, ahead)
