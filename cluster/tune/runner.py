"""Run a sweep on Ray: Tune schedules packs as its trials, in actors that are reused.

Tune keeps no record of its own. Workers write results and checkpoints to the store themselves, and a restarted actor
resumes its pack from there, so Tune's snapshots, loggers and restore are switched off.
"""

import logging
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import ray
import torch
from ray import tune

from mislabel.cluster.process import working_directory
from mislabel.cluster.tune.capacity import PackLimit, worker_memory_bytes, worker_slots_in_time
from mislabel.cluster.tune.profiler import is_elsewhere, ray_profiler
from mislabel.cluster.tune.searcher import RESTARTS, PackScheduler, PackSearcher
from mislabel.cluster.tune.stopper_actor import remote_stopper
from mislabel.cluster.tune.trainable import PackTrainable
from mislabel.sweeps.errors import UnreachableError
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.lane_stopper import lane_stopper_of
from mislabel.sweeps.run.launch import Machine, Runner, Show
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


@contextmanager
def configured() -> Iterator[None]:
    """Set the environment variables that configure Ray and Tune in the body.

    They are restored afterwards: the process may be a notebook that uses Ray for something else.
    """
    names = {*_VARIABLES, *_DEFAULTS}
    before = {name: os.environ[name] for name in names & os.environ.keys()}
    os.environ.update(_DEFAULTS | before | _VARIABLES)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join the Ray cluster at the address, or start one on this machine for the time of the body."""
    # Workers import from the driver's working directory first. In an empty one, no file hides a module.
    empty_folder = tempfile.TemporaryDirectory(prefix="mislabel-", ignore_cleanup_errors=True)
    with configured(), empty_folder as empty:
        try:
            with working_directory(empty):
                dashboard = None if address else False
                ray.init(address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
        except Exception as error:  # Ray raises a plain Exception if it takes too long to start
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise UnreachableError(_unreachable(address, reason)) from error
        try:
            yield
        finally:
            ray.shutdown()


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
    slots = workers or worker_slots_in_time(resources)
    with ExitStack() as stack:
        profiler = None
        if workers is not None or is_elsewhere(resources):
            profiler = stack.enter_context(ray_profiler(resources))
        else:  # there is only the driver's machine: measuring in this process starts sooner
            torch.set_num_threads(max(1, int(resources.cpu)))
        memory_bytes = (profiler and profiler.memory_bytes) or worker_memory_bytes(resources)

        def run(driver: Driver, store: Store, show: Show) -> None:
            if profiler is not None:
                profiler.leave()
            run_on_ray(driver, store, resources, slots, show, as_many_as_fit=workers is None)

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
        config = {
            "store": store.folder or store.address,
            "cpu": resources.cpu,
            "gpu": resources.gpu,
            "objectives": driver.means.names,
            "lane_stopper": lane_stopper_of(driver.plan.spec, stopper),
            "data": chosen_folder(),
        }
        _fit(PackSearcher(driver, pack_limit, config, show), driver.plan.spec.name, resources)


def _fit(searcher: PackSearcher, sweep: str, resources: Resources) -> None:
    with tempfile.TemporaryDirectory(prefix="mislabel-tune-") as folder:
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
                storage_path=folder,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=RESTARTS),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        tuner.fit()
