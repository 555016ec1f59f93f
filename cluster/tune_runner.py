"""Run a sweep on Ray: Tune schedules packs as its trials, in actors that are reused; the only module that knows Tune.

Nothing of Tune's own record is kept. Workers write results and checkpoints to the store themselves, and a restarted
actor takes up its pack from there, so Tune's snapshots, loggers and restore are switched off.
"""

import logging
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

# Read by Tune when it is imported.
os.environ |= {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_WARN_SLOW_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "1000000000",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray
import torch
from ray import tune
from ray.tune.search import Searcher

from sweeps.errors import MislabelError, StoreError
from sweeps.feed import Feed
from sweeps.inline import reason
from sweeps.order import PackOrder
from sweeps.referee import Entry, Referee, Values, Watch, watch_of
from sweeps.spec import Resources, spec_from_stored
from sweeps.store import Store
from sweeps.worker import Report, Worker

STRETCH_SECONDS = 1.0
# How often a pack whose worker or machine was lost is taken up again by another.
RESTARTS = 5
# How long a worker waits for the referee before it goes on without.
_REFEREE_SECONDS = 30.0


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join the Ray cluster at the address, or start one on this machine for the time being."""
    try:
        ray.init(
            address=address,
            include_dashboard=None if address else False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=True,
        )
    except (ConnectionError, ValueError) as error:
        raise MislabelError(f"no Ray cluster answers at {address}: {str(error).splitlines()[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


def worker_slots(resources: Resources) -> int:
    """How many packs can run at once on the cluster."""
    available = ray.cluster_resources()
    slots = int(available.get("CPU", 0) // resources.cpu)
    if resources.gpu > 0:
        slots = min(slots, int(available.get("GPU", 0) // resources.gpu))
    if slots < 1:
        has = ", ".join(f"{available.get(kind, 0):g} {kind}" for kind in ("CPU", "GPU"))
        wants = f"{resources.cpu:g} CPU and {resources.gpu:g} GPU"
        raise MislabelError(f"resources: a pack wants {wants}, but the cluster has {has}; ask for less")
    return slots


def worker_memory_bytes(slots: int) -> int:
    """The memory that one worker may count on."""
    return int(ray.cluster_resources().get("memory", 4 << 30)) // slots


def run_on_ray(feed: Feed, store: Store, resources: Resources, slots: int, show: Callable[[], None]) -> None:
    """Run until the feed is over or stopping."""
    with _referee_actor(feed) as referee:
        _run(_PackSearcher(feed, store.folder or store.address, resources, referee, show), resources, slots)


def _run(searcher: "_PackSearcher", resources: Resources, slots: int) -> None:
    trainable = tune.with_resources(_PackTrainable, {"cpu": resources.cpu, "gpu": resources.gpu})
    with tempfile.TemporaryDirectory(prefix="mislabel-tune-") as folder:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,
                max_concurrent_trials=slots,
                reuse_actors=True,
                trial_dirname_creator=_dirname,
            ),
            run_config=tune.RunConfig(
                name=searcher.sweep,
                storage_path=folder,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=RESTARTS),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        logging.getLogger("ray.tune").setLevel(logging.ERROR)
        tuner.fit()


class _PackTrainable(tune.Trainable):
    """Tune's trial: one pack. The actor is handed the next pack when this one ends."""

    def setup(self, config: dict[str, Any]) -> None:
        self._config = config
        self._worker: Worker | None = None
        torch.set_num_threads(max(1, int(config["cpu"])))

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        order = PackOrder.from_json(self._config["order"])
        report, broken = self._worked(order)
        ended = report.finished or report.halted or report.parked
        done = ended or report.error is not None or broken is not None
        if done:
            self._worker = None
        return {"report": report, "broken": broken, "done": done}

    def _worked(self, order: PackOrder) -> tuple[Report, str | None]:
        try:
            if self._worker is None:
                files = Store(self._config["store"]).sweep(order.sweep)
                self._worker = Worker(order, files, device_from_ray(), self._config["objectives"], self._watch())
            report = self._worker.work(STRETCH_SECONDS)
            if not (report.finished or report.parked) and self._worker.files.read_text("stop") is not None:
                self._worker.save()
                return replace(report, halted=True), None
            return report, None
        except StoreError as error:
            return Report(order.id, halted=True), str(error)
        except Exception as error:
            return Report(order.id, error=reason(error)), None

    def _watch(self) -> Watch | None:
        name = self._config["referee"]
        return None if name is None else watch_of(spec_from_stored(self._config["spec"]), _FarReferee(name))


class _FarReferee:
    """The sweep's referee as workers reach it. Where it can't be reached, training goes on and nothing is stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._actor: Any = None

    def judge(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        answer = self._asked("judge", step, list(runs), list(values))
        return [False] * len(runs) if answer is None else answer

    def tell(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        self._asked("tell", step, list(runs), list(values))

    def _asked(self, method: str, *arguments: Any) -> Any:
        try:
            # Asked for by name: its handle would have to survive the copies that Tune makes of a trial's config.
            self._actor = self._actor or ray.get_actor(self._name)
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=_REFEREE_SECONDS)
        except (ray.exceptions.RayError, ValueError):
            self._actor = None
            return None


@contextmanager
def _referee_actor(feed: Feed) -> Iterator[str | None]:
    """The feed's referee in an actor under a name of its own; None where no rule stops runs."""
    if feed.referee is None:
        yield None
        return
    name = f"mislabel-referee-{uuid.uuid4().hex}"
    # Many workers ask, one at a time is answered: what is decided depends on the order alone.
    actor = ray.remote(num_cpus=0, max_concurrency=1)(_RefereeActor).options(name=name).remote(feed.referee)
    ray.get(actor.ready.remote())
    try:
        yield name
    finally:
        ray.kill(actor)


class _RefereeActor:
    def __init__(self, referee: Referee) -> None:
        self._referee = referee

    def ready(self) -> bool:
        return True

    def judge(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        return self._referee.judge(step, runs, values)

    def tell(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        self._referee.tell(step, runs, values)


class _PackSearcher(Searcher):
    """Tune's searcher: passes packs and reports between Tune and the feed."""

    def __init__(
        self, feed: Feed, store: str, resources: Resources, referee: str | None, show: Callable[[], None]
    ) -> None:
        super().__init__()
        self.sweep = feed.plan.spec.name
        self._feed = feed
        self._show = show
        self._packs: dict[str, PackOrder] = {}
        self._fixed = {"store": store, "cpu": resources.cpu, "objectives": feed.means.names}
        self._fixed |= {"referee": referee, "spec": feed.plan.spec.to_yaml()}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        order = self._feed.next()
        if order is None:
            return Searcher.FINISHED if self._feed.over else None
        self._packs[trial_id] = order
        return {"order": order.to_json(), **self._fixed}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if result["broken"]:
            self._feed.break_off(StoreError(result["broken"]))
        self._feed.report(result["report"])
        self._show()

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        order = self._packs.pop(trial_id)
        if error:
            self._feed.lost(order.id, f"its worker died {RESTARTS + 1} times")
        elif result is not None:
            self.on_trial_result(trial_id, result)

    # Tune pickles the searcher and has it saved, for a restore that is never made: the store has it all.

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def save(self, checkpoint_path: str) -> None:
        pass

    def restore(self, checkpoint_path: str) -> None:
        pass


def device_from_ray() -> torch.device:
    """The GPU that Ray gave this actor, else the CPU."""
    return torch.device("cuda" if ray.get_gpu_ids() and torch.cuda.is_available() else "cpu")


def _dirname(trial: Any) -> str:
    return str(trial.trial_id)
