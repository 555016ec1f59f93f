"""Run a sweep on Ray: Tune schedules packs as its trials, in actors that are reused; the only module that knows Tune.

Nothing of Tune's own record is kept. Workers write results and checkpoints to the store themselves, and a restarted
actor takes up its pack from there, so Tune's snapshots, loggers and restore are switched off.
"""

import json
import logging
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
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
from ray.experimental import internal_kv
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mislabel.cluster.process import working_directory
from mislabel.cluster.queue.fair_share import Share
from mislabel.cluster.tune.capacity import worker_slots
from mislabel.sweeps.errors import MislabelError, StoreError, UnreachableError
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.lane_stopper import lane_stopper_of
from mislabel.sweeps.run.report import OutOfMemory, Report, StoreBroken
from mislabel.sweeps.run.worker import reports
from mislabel.sweeps.spec.model import Resources, spec_from_stored
from mislabel.sweeps.stopping.stopper import Entry, Stopper, Values
from mislabel.sweeps.store.filesystem import LONG_PATIENCE_SECONDS
from mislabel.sweeps.store.store import Store
from mislabel.tasks.data.folder import choose_folder, chosen_folder

# How often a pack whose worker or machine was lost is taken up again by another.
RESTARTS = 5
# How long a worker waits for the stopper before it goes on without.
_STOPPER_SECONDS = 30.0
# How many packs Tune may have at once; how many it has is decided by the searcher, as machines come and go.
_MOST_PACKS = 10_000
_LOOK_SECONDS = 5.0
# How long more packs may run than the sweep's share before some make room, and actors idle before they are given back.
_PATIENCE_SECONDS = 2.0
_ALL = "all"


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Join the Ray cluster at the address, or start one on this machine for the time being."""
    # Workers import from the driver's working directory first. In an empty one, no file hides a module.
    with tempfile.TemporaryDirectory(prefix="mislabel-", ignore_cleanup_errors=True) as empty:
        try:
            with working_directory(empty):
                ray.init(
                    address=address,
                    include_dashboard=None if address else False,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    configure_logging=True,
                )
        except (ConnectionError, ValueError) as error:
            token = "" if address is None else "; does it ask for a token that is not in RAY_AUTH_TOKEN_PATH?"
            reason = str(error).splitlines()[0]
            raise UnreachableError(f"no Ray cluster answers at {address}: {reason}{token}") from None
        try:
            yield
        finally:
            ray.shutdown()


def run_on_ray(
    driver: Driver,
    store: Store,
    resources: Resources,
    slots: int,
    show: Callable[[], None],
    as_many_as_fit: bool = True,
) -> None:
    """Run until the driver is over or stopping, `slots` packs at once, or as many as fit when machines come and go."""
    with _stopper_actor(driver) as stopper:
        room = _Room(resources, slots, as_many_as_fit)
        try:
            _run(_PackSearcher(driver, store.folder or store.address, resources, stopper, show, room), resources)
        finally:
            room.close()


def _run(searcher: "_PackSearcher", resources: Resources) -> None:
    trainable = tune.with_resources(_PackTrainable, {"cpu": resources.cpu, "gpu": resources.gpu})
    with tempfile.TemporaryDirectory(prefix="mislabel-tune-") as folder:
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=searcher,
                num_samples=-1,
                scheduler=_Returning(searcher),
                max_concurrent_trials=_MOST_PACKS,
                reuse_actors=True,
                trial_dirname_creator=_dirname,
            ),
            run_config=tune.RunConfig(
                # Tune keeps sweeps apart by this name alone.
                name=f"{searcher.sweep}-{uuid.uuid4().hex[:12]}",
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
        self._reports: Iterator[Report] | None = None
        torch.set_num_threads(max(1, int(config["cpu"])))
        choose_folder(config["data"])
        limit_memory(device_from_ray(), config["gpu"])

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self.setup(new_config)
        return True

    def step(self) -> dict[str, Any]:
        if self._reports is None:
            self._reports = self._new_reports()
        report = next(self._reports)
        if report.ends_pack:
            self._reports = None
            if isinstance(report, OutOfMemory) and torch.cuda.is_initialized():
                torch.cuda.empty_cache()  # other packs on this GPU may need the memory
        return {"report": report, "done": report.ends_pack}

    def _new_reports(self) -> Iterator[Report]:
        config = self._config
        order = PackOrder.from_json(config["order"])
        try:
            files = Store(config["store"], LONG_PATIENCE_SECONDS).sweep(order.sweep)
        except StoreError as error:
            return iter([StoreBroken(order.id, error=str(error))])
        stopper = None if config["stopper"] is None else _RemoteStopper(config["stopper"])
        lane_stopper = lane_stopper_of(spec_from_stored(config["spec"]), stopper)
        return reports(
            order, files, device_from_ray(), config["objectives"], lane_stopper,
            lambda: _has_to_halt(config["room"], order.id), config["gpu"] or 1.0,
        )  # fmt: skip


class _RemoteStopper:
    """The sweep's stopper as workers reach it. Where it can't be reached, training goes on and nothing is stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._actor: Any = None

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        answer = self._asked("decide", step, list(runs), list(values))
        return [False] * len(runs) if answer is None else answer

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        self._asked("record", step, list(runs), list(values))

    def _asked(self, method: str, *arguments: Any) -> Any:
        try:
            # Asked for by name: its handle would have to survive the copies that Tune makes of a trial's config.
            self._actor = self._actor or ray.get_actor(self._name)
            return ray.get(getattr(self._actor, method).remote(*arguments), timeout=_STOPPER_SECONDS)
        except (ray.exceptions.RayError, ValueError):
            self._actor = None
            return None


@contextmanager
def _stopper_actor(driver: Driver) -> Iterator[str | None]:
    """The driver's stopper in an actor under a name of its own; None where no rule stops runs."""
    if driver.stopper is None:
        yield None
        return
    name = f"mislabel-stopper-{uuid.uuid4().hex}"
    # Many workers ask, one at a time is answered: what is decided depends on the order alone.
    # It is where the driver is, so that it is not lost with another machine.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options = {"name": name, "num_cpus": 0, "max_concurrency": 1, "scheduling_strategy": here}
    actor = ray.remote(_StopperActor).options(**options).remote(driver.stopper)
    ray.get(actor.ready.remote())
    try:
        yield name
    finally:
        ray.kill(actor)


class _StopperActor:
    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper

    def ready(self) -> bool:
        return True

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        return self._stopper.decide(step, runs, values)

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        self._stopper.record(step, runs, values)


class _Room:
    """How many packs may run at once, as machines and other sweeps come and go; tells packs that are too many."""

    def __init__(self, resources: Resources, slots: int, as_many_as_fit: bool) -> None:
        self.key = f"mislabel-room-{uuid.uuid4().hex}"
        self._resources = resources
        self._slots = slots
        self._as_many_as_fit = as_many_as_fit
        self._share = Share.of_environment()
        self._looked = time.monotonic()
        self._crowded: float | None = None
        self._told: set[str] = set()
        self._halted = False

    def packs(self, running: int, dry: bool) -> int:
        """How many packs may run at once; `dry` says that no more than those running could."""
        if self._as_many_as_fit and time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            with suppress(MislabelError):  # no machine has room now: wait for one
                self._slots = worker_slots(self._resources)
        return self._share.room(self._slots, running if dry else self._slots)

    def make(self, packs: Sequence[str], most: int) -> None:
        """Where more packs run than may, have the last ones checkpoint and come back later."""
        excess = {*packs[most:]}
        now = time.monotonic()
        self._crowded = (self._crowded or now) if excess else None
        patient = self._crowded is not None and now - self._crowded < _PATIENCE_SECONDS
        if excess != self._told and not patient and not self._halted:
            internal_kv._internal_kv_put(self.key, json.dumps(sorted(excess)))
            self._told = excess

    def halt(self) -> None:
        """The sweep is stopping: have all packs checkpoint and end."""
        if not self._halted:
            internal_kv._internal_kv_put(self.key, json.dumps(_ALL))
            self._halted = True

    def close(self) -> None:
        internal_kv._internal_kv_del(self.key)


def _has_to_halt(key: str, pack: str) -> bool:
    """Whether the sweep is stopping, or this pack is to make room for another sweep.

    Asked of Ray, where the driver is heard within a second: of an object store each question would cost something.
    """
    try:
        told = internal_kv._internal_kv_get(key)
    except ray.exceptions.RayError:  # the head is out of reach, which is not this pack's fault
        return False
    halting = [] if told is None else json.loads(told)
    return halting == _ALL or pack in halting


class _Returning(FIFOScheduler):
    """Tune's scheduler: gives back the actor that Tune would keep for later, once no pack is to come for a while."""

    def __init__(self, searcher: "_PackSearcher") -> None:
        super().__init__()
        self._searcher = searcher

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        if self._searcher.idle_seconds > _PATIENCE_SECONDS:
            tune_controller._cleanup_cached_actors(force_all=True)
        return super().choose_trial_to_run(tune_controller)

    def __getstate__(self) -> dict[str, Any]:
        return {}


class _PackSearcher(Searcher):
    """Tune's searcher: passes packs and reports between Tune and the driver."""

    def __init__(
        self, driver: Driver, store: str, resources: Resources, stopper: str | None, show: Callable[[], None],
        room: _Room,
    ) -> None:  # fmt: skip
        super().__init__()
        self.sweep = driver.plan.spec.name
        self._driver = driver
        self._show = show
        self._packs: dict[str, PackOrder] = {}
        self._fixed = {"store": store, "cpu": resources.cpu, "gpu": resources.gpu, "objectives": driver.means.names}
        self._fixed |= {"stopper": stopper, "spec": driver.plan.spec.to_yaml(), "room": room.key}
        self._fixed |= {"data": chosen_folder()}
        self._room = room
        self._dry = False
        self._idle_since: float | None = None

    @property
    def idle_seconds(self) -> float:
        """For how long no further pack could be handed out."""
        return 0.0 if self._idle_since is None else time.monotonic() - self._idle_since

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._driver.stopping:
            self._room.halt()
        most = self._room.packs(len(self._packs), self._dry)
        self._room.make([order.id for order in self._packs.values()], most)
        order = self._driver.next() if len(self._packs) < most else None
        if order is None:
            self._dry = len(self._packs) < most
            self._idle_since = self._idle_since or time.monotonic()
            return Searcher.FINISHED if self._driver.over else None
        self._dry, self._idle_since = False, None
        self._packs[trial_id] = order
        return {"order": order.to_json(), **self._fixed}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._driver.report(result["report"])
        self._show()
        if self._driver.stopping:
            self._room.halt()

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        order = self._packs.pop(trial_id)
        if error:
            self._driver.lost(order.id, f"its worker died {RESTARTS + 1} times")
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


def limit_memory(device: torch.device, share: float) -> None:
    """Have this process take no more than its share of a GPU's memory: to Ray, shares are but numbers."""
    if device.type == "cuda" and share < 1:
        torch.cuda.set_per_process_memory_fraction(share)


def _dirname(trial: Any) -> str:
    return str(trial.trial_id)
