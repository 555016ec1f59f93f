"""`mislabel run`: run a sweep on this machine or on a Ray cluster, or continue one."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say
from mislabel.sweeps.commands.screen import progress_line
from mislabel.sweeps.errors import ExitCode
from mislabel.sweeps.formatting import count, duration, estimated

if TYPE_CHECKING:
    from mislabel.sweeps.plan.plan import Plan
    from mislabel.sweeps.run.driver import Driver
    from mislabel.sweeps.run.launch import Machine, Runner
    from mislabel.sweeps.spec.model import Resources, Spec
    from mislabel.sweeps.store.store import Store, SweepFiles

_log = logging.getLogger(__name__)


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
    help="How many packs to run at once, even if the cluster has no room for them yet: an autoscaler then adds "
    "machines. Default: as many as there is room for.",
)  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Also run the runs that failed before.")
@click.option(
    "--take-over", is_flag=True,
    help="Run the sweep even if another driver seems to run it. That driver stops at its next write. What it has "
    "finished is kept; what it is training is lost.",
)  # fmt: skip
@click.option("--no-mlflow", is_flag=True, help="Write no MLflow view now; `mislabel sync` writes it later.")
@options.as_json
def command(
    spec: str, store: str, tracking_uri: str | None, overrides: tuple[str, ...], quick: bool, inline: bool,
    address: str | None, workers: int | None, retry_failed: bool, take_over: bool, no_mlflow: bool,
    as_json: bool,
) -> int:  # fmt: skip
    """Run the sweep of a spec: every run that the store does not have yet.

    The same command continues after an interruption (Ctrl-C lets running packs checkpoint) or a crash, and does nothing
    if the store has all runs. With more values or seeds in the spec, only the new runs are trained. The sweep's folder
    in the store has the messages of every launch in log.txt.

    \b
      mislabel run noise.yaml
      mislabel run noise.yaml --set seeds=20        # more seeds for every cell
      mislabel run noise.yaml --inline --set seeds=1 --set parameters.steps=10
    """
    from mislabel.cluster.address import refuse_where_no_ray_answers
    from mislabel.sweeps.checks.reader import read_spec
    from mislabel.sweeps.commands.results import print_cells
    from mislabel.sweeps.store.filesystem import within
    from mislabel.sweeps.store.store import Store

    read, task = read_spec(spec, overrides, quick)
    if address is not None and not inline:
        refuse_where_no_ray_answers(address)
    at = Store(store)
    uri = None if no_mlflow or read.track.per == "none" else tracking_uri_of(at, tracking_uri)
    code = run_and_report(read, task, at, Venue(inline, address, workers), uri, retry_failed, take_over)
    if at.sweep(read.name).parts("curves"):
        import mislabel
        from mislabel.analysis.statistics.ranking import ranked

        table = ranked(mislabel.load(store, read.name))
        if as_json:
            options.put_json(table.to_dict("records"))
        else:
            print_cells(table, most=20)
    option = "" if store == "results" else f" --store {store}"
    say(f"tables:  {within(store, read.name)}: runs and curves (Parquet), `mislabel results {read.name}{option}`")
    say(f"pandas:  import mislabel; sweep = mislabel.load({store!r}, {read.name!r}); sweep.runs")
    say(f"browser: mislabel ui{option}")
    return code


def run_and_report(
    spec: "Spec", task: Any, store: "Store", venue: "Venue", tracking_uri: str | None, retry_failed: bool = False,
    take_over: bool = False,
) -> ExitCode:  # fmt: skip
    """Run the sweep with a progress bar and an MLflow view; returns the exit code."""
    from mislabel.sweeps.run.launch import run_sweep

    show = partial(_showing, tracking_uri)
    result = run_sweep(spec, task, store, venue.host, retry_failed, show, take_over, _rules(spec.name))
    reason = result.driver.stop_reason if result.driver else None
    if reason and reason.exit_code is not None:
        return reason.exit_code
    if not result.failed:
        return ExitCode.DONE
    again = "--retry-failed runs them again, up to budget.failures times"
    say(f"{count(result.failed, 'run')} failed; `mislabel status` says why, {again}")
    return ExitCode.FAILED


def _rules(name: str) -> dict[str, Any]:
    """For the sweep of a paper's experiment, the hashes of the rules that will decide its claims."""
    from mislabel.sweeps.papers.bundled import experiment_of

    experiment = experiment_of(name)
    if experiment is None:
        return {}
    from mislabel.analysis.claims.claim import rule_hashes

    return {"rules": rule_hashes(experiment.partition("/")[0])}


@dataclass(frozen=True)
class Venue:
    """Where to run: in this process, on the Ray cluster at the address, or on a Ray that we start here."""

    inline: bool = False
    address: str | None = None
    workers: int | None = None
    """How many packs to run at once; by default as many as the cluster has room for."""

    def has_gpus(self) -> bool:
        """Whether packs can get a GPU. Call this while connected to Ray: see `connected`."""
        if self.inline:
            import torch

            return torch.cuda.is_available()
        from mislabel.cluster.tune.capacity import machines

        return any(machine.get("GPU") for machine in machines())

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Stay connected to Ray in the body, in which any number of sweeps may run."""
        if self.inline or ("ray" in sys.modules and sys.modules["ray"].is_initialized()):
            yield
            return
        say("starting Ray on this machine …" if self.address is None else f"joining Ray at {self.address} …")
        from mislabel.cluster.tune.runner import connected

        with connected(self.address):
            yield

    @contextmanager
    def host(self, resources: "Resources") -> Iterator[tuple["Machine", "Runner"]]:
        """The machine for a sweep, and what trains its packs there."""
        if self.inline:
            from mislabel.sweeps.run.launch import inline_host

            with inline_host(resources) as found:
                yield found
            return
        # Ray prints messages of its nodes to stdout, which is for data.
        with self.connected(), redirect_stdout(sys.stderr):
            from mislabel.cluster.tune.runner import machine_on_ray

            with machine_on_ray(resources, self.workers) as found:
                yield found


@contextmanager
def _showing(
    tracking_uri: str | None, plan: "Plan", files: "SweepFiles", driver: "Driver | None"
) -> Iterator[Callable[[], None]]:
    """Show a launch to people and keep its MLflow view up to date; see `sweeps.run.launch.Observer`."""
    from mislabel.analysis.mlflow_view.view import following

    _say_plan(plan, complete=driver is None)
    with following(files, tracking_uri):
        if driver is None:
            yield lambda: None
            return
        with progress_line(driver) as update:
            yield update
    _say_end(driver)


def _say_plan(plan: "Plan", complete: bool) -> None:
    cells, seeds, runs = count(plan.cells, "cell"), count(plan.spec.seeds.count, "seed"), count(plan.runs, "run")
    has = plan.runs - plan.missing
    text = f"{plan.spec.name}: {cells} × {seeds} = {runs}" + (f", {has:,} in the store already" if has else "")
    if complete:
        _log.info("%s; nothing to run", text)
        return
    resumed = f", {len(plan.resumed)} of them from a checkpoint" if plan.resumed else ""
    packs = f"{count(plan.packs, 'pack')} on {count(plan.workers, 'worker')}{resumed}"
    time = f", {estimated(*plan.expected.seconds_left)}" if plan.expected else ""
    _log.info("%s; %s%s", text, packs, time)


def _say_end(driver: "Driver") -> None:
    from mislabel.sweeps.store.outcome import StopCause

    for run, error in list(driver.errors.items())[:5]:
        _log.warning("run %s failed: %s", run, error.splitlines()[0])
    if driver.stop_reason and not driver.broken:
        larger = " with a larger one" if driver.stop_reason.cause is StopCause.RUNS_USED_UP else ""
        _log.info("stopped: %s; the same command%s continues", driver.stop_reason.text, larger)
    progress = driver.progress
    ended = ", ".join(f"{n:,} {status}" for status, n in sorted(progress.statuses.items())) or "none ended"
    rate = f" ({1e6 * progress.elapsed / progress.steps_done:,.2f} µs per run-step)" if progress.steps_done else ""
    runs = count(sum(progress.statuses.values()), "run")
    _log.info("%s in %s: %s%s", runs, duration(progress.elapsed), ended, rate)


def tracking_uri_of(store: "Store", given: str | None) -> str | None:
    """The MLflow server that was given, or the store's own database; None if the store can't have one."""
    from mislabel.analysis.mlflow_view.view import default_uri

    uri = given or default_uri(store)
    if uri is None:
        say("no MLflow view: this store is not a folder; give --mlflow URI for one")
    return uri
