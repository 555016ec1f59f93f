"""`mislabel run`: run a sweep on this machine or on a Ray cluster, or go on with one."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say
from mislabel.sweeps.errors import ExitCode

if TYPE_CHECKING:
    from mislabel.sweeps.run.driver import Driver
    from mislabel.sweeps.run.launch import Launch, Machine
    from mislabel.sweeps.spec.model import Resources, Spec
    from mislabel.sweeps.store.store import Store


@click.command()
@options.spec_file
@options.store
@options.data
@options.mlflow
@options.sets
@options.quick
@click.option("--inline", is_flag=True, help="Run in this process, without Ray: for debuggers and small sweeps.")
@click.option("--address", envvar="RAY_ADDRESS", metavar="RAY", help="A running Ray cluster. Default: start one here.")
@click.option(
    "--workers", type=click.IntRange(min=1), metavar="N",
    help="Packs to have at once, whatever the cluster has now: an autoscaler then brings machines. "
    "Default: as many as there is room for.",
)  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Also run again what failed before.")
@click.option("--no-mlflow", is_flag=True, help="Write no MLflow view now; `mislabel sync` makes it later.")
@options.as_json
def command(
    spec: str, store: str, tracking_uri: str | None, overrides: tuple[str, ...], quick: bool, inline: bool,
    address: str | None, workers: int | None, retry_failed: bool, no_mlflow: bool, as_json: bool,
) -> int:  # fmt: skip
    """Run the sweep in SPEC.yaml: every run that the store does not have yet.

    Running the same command again continues after an interruption (Ctrl-C lets running packs checkpoint) or a crash,
    and does nothing when all is there. With more values or seeds in the spec, only the new runs are trained.

    \b
      mislabel run noise.yaml
      mislabel run noise.yaml --set seeds=20        # more seeds for every cell
      mislabel run noise.yaml --inline --set seeds=1 --set parameters.steps=10
    """
    from mislabel.sweeps.checks.reader import read_spec
    from mislabel.sweeps.store.store import Store

    read, task = read_spec(spec, overrides, quick)
    venue = Venue(inline, address, workers)
    venue.check()
    at = Store(store)
    uri = None if no_mlflow or read.track.per == "none" else tracking_uri_of(at, tracking_uri)
    code = run_sweep(read, task, at, venue, uri, retry_failed)
    _print_cells(store, read.name, as_json)
    _say_where(store, read.name)
    return code


@dataclass(frozen=True)
class Venue:
    """Where to run: in this process, or on the Ray cluster at the address, or on a Ray of our own."""

    inline: bool = False
    address: str | None = None
    workers: int | None = None
    """How many packs to have at once; by default as many as the cluster has room for."""

    def check(self) -> None:
        """MislabelError where a cluster is named and nothing answers there."""
        if self.address is not None and not self.inline:
            from mislabel.cluster.address import refuse_where_no_ray_answers

            refuse_where_no_ray_answers(self.address)

    def has_gpus(self) -> bool:
        """Whether packs could get a GPU; ask while connected to Ray, see `kept`."""
        if self.inline:
            import torch

            return torch.cuda.is_available()
        from mislabel.cluster.tune.capacity import gpus

        return gpus() > 0

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Stay connected to Ray in the body, whatever number of sweeps run in it."""
        if self.inline or _is_connected():
            yield
            return
        say("starting Ray on this machine …" if self.address is None else f"joining Ray at {self.address} …")
        if self.address is not None:
            _belong_to_the_cluster_here(self.address)
        from mislabel.cluster.tune.runner import connected

        with connected(self.address):
            yield


def _belong_to_the_cluster_here(address: str) -> None:
    """Take on what a driver of the cluster that runs on this machine needs, before Ray is loaded."""
    import os

    from mislabel.cluster.head_state import Folder, read_state

    folder = Folder.here()
    state = read_state(folder)
    if state is not None and state.ray == address:
        os.environ.update(state.environment(folder))


def _is_connected() -> bool:
    """Whether this process has joined a Ray already; asks without importing it."""
    return "ray" in sys.modules and bool(sys.modules["ray"].is_initialized())


def run_sweep(
    spec: "Spec", task: Any, store: "Store", venue: Venue, tracking_uri: str | None, retry_failed: bool = False
) -> ExitCode:
    """Run what is missing of the sweep and say how it went; returns the exit code. StoreError if the store fails."""
    from mislabel.analysis.mlflow_view.view import following
    from mislabel.sweeps.run.launch import prepare

    launch = prepare(spec, task, store, say, retry_failed)
    view = following(launch.files, tracking_uri, say)
    if launch.complete:
        say(f"{_counted(launch)}; nothing to run")
        with view:
            return _exit_code(launch.plan.failed)
    with _machine(venue, spec.resources) as (machine, runner):
        launch.equip(machine)
        _say_plan(launch)
        with view:
            _train(launch, store, runner)
            launch.finish()
    _say_end(launch)
    driver = launch.driver
    if driver.broken:
        raise driver.broken
    if driver.stop_reason and driver.stop_reason.exit_code is not None:
        return driver.stop_reason.exit_code
    failed = sum(count for status, count in driver.progress.statuses.items() if not status.has_result)
    return _exit_code(launch.plan.failed + failed)


Runner = Callable[["Driver", "Store", Callable[[], None]], None]


@contextmanager
def _machine(venue: Venue, resources: "Resources") -> Iterator[tuple["Machine", Runner]]:
    """What to run on, and how: this process, or Ray."""
    import torch

    from mislabel.sweeps.run.launch import Machine

    if venue.inline:
        from mislabel.sweeps.run.inline import run_inline
        from mislabel.tasks.device.memory import memory_of

        device = torch.device("cuda" if resources.gpu and torch.cuda.is_available() else "cpu")
        if resources.gpu and device.type == "cpu":
            say("resources.gpu: torch finds no CUDA here; packs train on the CPU")
        torch.set_num_threads(max(1, int(resources.cpu)))
        machine = Machine(1, free_memory_bytes() if device.type == "cpu" else memory_of(device), device)
        yield machine, lambda driver, store, show: run_inline(driver, driver.files, device, show)
        return
    # Ray prints what its nodes complain of to stdout, which is for data.
    with venue.kept(), redirect_stdout(sys.stderr):
        from mislabel.cluster.tune.machine import machine_on_ray

        with machine_on_ray(resources, venue.workers, say) as machine_and_runner:
            yield machine_and_runner


def _train(launch: "Launch", store: "Store", runner: Runner) -> None:
    from mislabel.sweeps.commands.screen import ProgressLine

    line = ProgressLine(launch.driver, launch.spec)

    def show() -> None:
        launch.heartbeat.beat()
        line.update()

    with line.shown(), _interruptible(launch, line.say, show):
        runner(launch.driver, store, show)


@contextmanager
def _interruptible(launch: "Launch", tell: Callable[[str], None], show: Callable[[], None]) -> Iterator[None]:
    """The first Ctrl-C (or a polite kill) lets packs checkpoint; the second one ends at once."""
    from mislabel.sweeps.store.outcome import INTERRUPTED

    def stop(signum: int, frame: Any) -> None:
        if launch.driver.stop_reason:
            raise KeyboardInterrupt
        launch.driver.stop(INTERRUPTED)
        tell("interrupted: running packs are being checkpointed; press Ctrl-C again to end at once")
        show()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _counted(launch: "Launch") -> str:
    from mislabel.sweeps.formatting import count

    plan = launch.plan
    has = plan.runs - plan.missing
    cells, seeds, runs = count(plan.cells, "cell"), count(launch.spec.seeds.count, "seed"), count(plan.runs, "run")
    text = f"{launch.spec.name}: {cells} × {seeds} = {runs}"
    return f"{text}, {has:,} in the store already" if has else text


def _say_plan(launch: "Launch") -> None:
    from mislabel.sweeps.formatting import count, duration

    plan = launch.plan
    resumed = f", {len(plan.resumed)} of them from a checkpoint" if plan.resumed else ""
    packs = f"{count(plan.packs, 'pack')} on {count(plan.workers, 'worker')}{resumed}"
    say(f"{_counted(launch)}; {packs}, about {duration(plan.expected_seconds)}")


def tracking_uri_of(store: "Store", given: str | None) -> str | None:
    from mislabel.analysis.mlflow_view.view import default_uri

    uri = given or default_uri(store)
    if uri is None:
        say("no MLflow view: this store is not a folder; give --mlflow URI for one")
    return uri


def _exit_code(failed: int) -> ExitCode:
    from mislabel.sweeps.formatting import count

    if failed:
        again = "--retry-failed runs them again, up to budget.failures times"
        say(f"{count(failed, 'run')} failed; `mislabel status` says why, {again}")
    return ExitCode.FAILED if failed else ExitCode.DONE


def _print_cells(address: str, name: str, as_json: bool) -> None:
    """The table of cells, where there are any."""
    from mislabel.sweeps.commands.results import print_cells, table_of_cells
    from mislabel.sweeps.store.store import Store

    if Store(address).sweep(name).parts("curves"):
        table = table_of_cells(address, name)
        if as_json:
            options.put_json(table.to_dict("records"))
        else:
            print_cells(table, most=20)


def _say_end(launch: "Launch") -> None:
    from mislabel.sweeps.formatting import count, duration
    from mislabel.sweeps.store.outcome import StopCause

    driver = launch.driver
    for run, error in list(driver.errors.items())[:5]:
        say(f"run {run} failed: {error.splitlines()[0]}")
    if driver.stop_reason and not driver.broken:
        larger = " with a larger one" if driver.stop_reason.cause is StopCause.RUNS_USED_UP else ""
        say(f"stopped: {driver.stop_reason}; the same command{larger} continues")
    progress = driver.progress
    ended = ", ".join(f"{n:,} {status}" for status, n in sorted(progress.statuses.items())) or "none ended"
    rate = f" ({1e6 * progress.elapsed / progress.steps_done:,.2f} µs per run-step)" if progress.steps_done else ""
    say(f"{count(sum(progress.statuses.values()), 'run')} in {duration(progress.elapsed)}: {ended}{rate}")


def _say_where(address: str, name: str) -> None:
    at = "" if address == "results" else f" --store {address}"
    from mislabel.sweeps.store.filesystem import within

    say(f"tables:  {within(address, name)}: runs and curves (Parquet), `mislabel results {name}{at}`")
    say(f"pandas:  import mislabel; sweep = mislabel.load({address!r}, {name!r}); sweep.runs")
    say(f"browser: mislabel ui{at}")


def free_memory_bytes() -> int:
    import os

    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
