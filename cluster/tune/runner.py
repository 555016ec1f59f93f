"""Run a sweep on Ray: Tune schedules packs as its trials, in actors that are reused.

Tune keeps no record of its own. Workers write results and checkpoints to the store themselves, and a restarted actor
resumes its pack from there, so Tune's snapshots, loggers and restore are switched off.
"""

import logging
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import ray
import torch
from ray import tune

from mislabel.cluster.head_state import Folder, ray_environment, read_state
from mislabel.cluster.private_folder import SHORT, private_folder
from mislabel.cluster.process import descendants, end, working_directory
from mislabel.cluster.ray_private import (
    IMPATIENT,
    NO_METRICS,
    adopt_environment,
    credentials_stay_here,
    errors_to,
    started_processes,
)
from mislabel.cluster.secret import make_secret
from mislabel.cluster.tune.capacity import PackLimit, worker_memory_bytes, worker_slots_in_time
from mislabel.cluster.tune.profiler import is_elsewhere, ray_profiler
from mislabel.cluster.tune.searcher import RESTARTS, PackScheduler, PackSearcher, WorkerDeaths
from mislabel.cluster.tune.stopper_actor import remote_stopper
from mislabel.cluster.tune.trainable import PackTrainable
from mislabel.cluster.tune.watch import watched
from mislabel.sweeps.errors import RayLostError, UnreachableError
from mislabel.sweeps.process import Process
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.lane_stopper import lane_stopper_of
from mislabel.sweeps.run.launch import Machine, Runner, Show
from mislabel.sweeps.run.sweep_log import DETAILS
from mislabel.sweeps.spec.model import Resources
from mislabel.sweeps.store.store import Store
from mislabel.tasks.data.folder import chosen_folder

# Tune's own limit. The searcher decides how many packs run, as machines come and go.
_MOST_PACKS = 10_000
_VARIABLES = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "1000000000",
    # Our own handler lets packs checkpoint.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # Our own progress line is shown.
    "RAY_AIR_NEW_OUTPUT": "0",
    # Ray does not hide GPUs from actors that asked for none.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_DEFAULTS = {"RAY_USAGE_STATS_ENABLED": "0"}
_details = logging.getLogger(DETAILS)


# The token as text, which would count more than the file with the token.
_TOKEN = "RAY_AUTH_TOKEN"
# Ray sets it, and would keep the user's debugger from starting.
_BREAKPOINT = "PYTHONBREAKPOINT"
_SHUTDOWN_SECONDS = 30.0
_LOST_SHUTDOWN_SECONDS = 5.0
_END_SECONDS = 3.0


@contextmanager
def configured(variables: Mapping[str, str] | None = None) -> Iterator[None]:
    """Set the environment variables that configure Ray and Tune in the body, and these.

    They are restored afterwards: the process may be a notebook that uses Ray for something else.
    """
    before = dict(os.environ)
    changed = {**_VARIABLES, **(variables or {})}
    os.environ.update({**_DEFAULTS, **before, **changed})
    if "RAY_AUTH_TOKEN_PATH" in changed:
        os.environ.pop(_TOKEN, None)
    try:
        yield
    finally:
        for name in {*changed, *_DEFAULTS, _TOKEN, _BREAKPOINT}:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join the Ray cluster at the address, or start one on this machine for the time of the body.

    Nobody else can use a Ray that is started here: it requires a token, listens only on this machine, and its files are
    in a folder that other users can't enter.
    """
    local = address in (None, "local")
    with ExitStack() as stack:
        folder = stack.enter_context(private_folder(SHORT if local else None))
        stack.callback(adopt_environment)
        stack.enter_context(configured(_own_environment(folder) if local else _cluster_environment(address)))
        adopt_environment()
        # Workers import from the driver's working directory first. In an empty one, no file hides a module.
        empty = folder / "empty"
        empty.mkdir()
        own = {"include_dashboard": False, "_temp_dir": str(folder / "ray")} if local else {}
        try:
            with working_directory(str(empty)):
                ray.init("local" if local else address, log_to_driver=False, logging_level=logging.ERROR, **own)
        except Exception as error:  # Ray raises a plain Exception if it takes too long to start
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise UnreachableError(_unreachable(None if local else address, reason)) from error
        started, seconds = started_processes(), _SHUTDOWN_SECONDS
        try:
            with errors_to(lambda text: _details.info(text.splitlines()[0])):
                yield
        except RayLostError:
            seconds = _LOST_SHUTDOWN_SECONDS
            raise
        finally:
            _shut_down(started, seconds)


def _own_environment(folder: Path) -> dict[str, str]:
    """Environment variables of a Ray that nobody but this process and its workers can use."""
    token = folder / "token"
    make_secret(token)
    return {**ray_environment(token, loopback=True), **NO_METRICS, **IMPATIENT}


def _cluster_environment(address: str | None) -> dict[str, str]:
    """Environment variables for the cluster at the address, if its head is this machine."""
    folder = Folder.here()
    state = read_state(folder)
    return state.environment(folder) if state is not None and state.ray == address else {}


def _shut_down(started: list[Process], seconds: float) -> None:
    """Disconnect from Ray, and end the processes that were started. Ray can hang if some of them have died."""
    family = [*started, *descendants(started)]
    thread = threading.Thread(target=ray.shutdown, name="mislabel-ray-shutdown", daemon=True)
    thread.start()
    thread.join(seconds)
    end(family, _END_SECONDS)


def _unreachable(address: str | None, reason: str) -> str:
    if address is None:
        return f"Ray did not start on this machine: {reason}; try again when it is less busy, or run with --inline"
    token = "does it ask for a token that is not in RAY_AUTH_TOKEN_PATH?"
    return f"no Ray cluster answers at {address}: {reason}; {token}"


@contextmanager
def machine_on_ray(resources: Resources, workers: int | None) -> Iterator[tuple[Machine, Runner]]:
    """The machine, and the function that runs a driver on it.

    Without `workers`, as many packs run at once as fit on the cluster. With it, Ray is asked for the resources of that
    many packs, so that an autoscaler adds machines.
    """
    slots = workers or watched(partial(worker_slots_in_time, resources))
    with ExitStack() as stack:
        profiler = None
        if workers is not None or watched(partial(is_elsewhere, resources)):
            profiler = stack.enter_context(ray_profiler(resources))
        else:  # there is only the driver's machine: measuring in this process starts sooner
            torch.set_num_threads(max(1, int(resources.cpu)))
        memory_bytes = (profiler and profiler.memory_bytes) or watched(partial(worker_memory_bytes, resources))

        def run(driver: Driver, store: Store, show: Show) -> None:
            if profiler is not None:
                profiler.leave()
            watched(partial(run_on_ray, driver, store, resources, slots, show, as_many_as_fit=workers is None))

        yield Machine(slots, memory_bytes, torch.device("cpu"), ahead=True, profiler=profiler), run


def run_on_ray(
    driver: Driver, store: Store, resources: Resources, slots: int, show: Show, as_many_as_fit: bool = True
) -> None:
    """Run the driver with `slots` packs at once. With `as_many_as_fit`, their number follows the machines."""
    with (
        configured(),
        remote_stopper(driver.stopper) as stopper,
        closing(PackLimit(resources, slots, as_many_as_fit)) as pack_limit,
    ):
        driver.stop_learner = stopper
        config = {
            "store": store.folder or store.address,
            "generation": driver.files.generation,
            "cpu": resources.cpu,
            "gpu": resources.gpu,
            "objectives": driver.means.names,
            "lane_stopper": lane_stopper_of(driver.plan.spec, stopper),
            "data": chosen_folder(),
        }
        _fit(PackSearcher(driver, pack_limit, config, show), driver.plan.spec.name, resources)


def _fit(searcher: PackSearcher, sweep: str, resources: Resources) -> None:
    with private_folder() as folder, credentials_stay_here():
        tuner = tune.Tuner(
            tune.with_resources(PackTrainable, {"cpu": resources.cpu, "gpu": resources.gpu}),
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,
                scheduler=PackScheduler(searcher),
                max_concurrent_trials=_MOST_PACKS,
                reuse_actors=True,
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                # Tune tells sweeps apart by this name alone.
                name=f"{sweep}-{uuid.uuid4().hex[:12]}",
                storage_path=str(folder),
                callbacks=[WorkerDeaths()],
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=RESTARTS),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # it logs a traceback for each death of a worker
        tuner.fit()
