"""The only module that uses interfaces of Ray that are not public. Tested with Ray 2.60.

Ray is imported inside the functions: clients and jobs on the head use this module without loading Ray.
"""

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from mislabel.cluster.address import Address
from mislabel.sweeps.process import Process

# Ray turns a loopback address into one that others can reach, and then listens on all addresses, unless this is off.
# It was made for systems whose firewall asks about every port; here it keeps a cluster of one machine to itself.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
# Ray's Prometheus servers require no token. Two of them have no switch, but do not start on a port that can't exist.
NO_METRICS = {
    "RAY_enable_metrics_collection": "0",
    "AUTOSCALER_METRIC_PORT": "65536",
    "DASHBOARD_METRIC_PORT": "65536",
}
# Ray ends a process that has not reached the head for a minute. The head of a Ray on one machine does not come back.
IMPATIENT = {"RAY_gcs_rpc_server_reconnect_timeout_s": "25"}
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_NOTES = "mislabel-notes"


def job_metadata(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The metadata of the job that this process runs, and the environment without them.

    A process that is started with that environment joins Ray as a new driver.
    """
    config = json.loads(environment.get(_JOB, "{}"))
    return config.get("metadata", {}), {name: value for name, value in environment.items() if name != _JOB}


def adopt_environment() -> None:
    """Let Ray in this process follow the environment of now. It read some variables when it was imported."""
    from ray._private import ray_constants

    raylet: Any = importlib.import_module("ray._raylet")
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    ray_constants.ENABLE_RAY_CLUSTER = not all(os.environ.get(name) == value for name, value in LOOPBACK.items())


def servers() -> list[Address]:
    """The addresses of the cluster's head and of this machine's node, which this process is connected to."""
    from ray._private import worker

    node = worker._global_node
    head = Address.parse(node.gcs_address, "a Ray cluster")
    return [head, Address(node.node_ip_address, node.node_manager_port)]


def started_processes() -> list[Process]:
    """The processes that `ray.init` of this process started: none if it joined a cluster."""
    from ray._private import worker

    started = [info.process.pid for infos in worker._global_node.all_processes.values() for info in infos]
    return [process for pid in started if (process := Process.of(pid))]


@contextmanager
def credentials_stay_here() -> Iterator[None]:
    """Keep Tune from copying the driver's AWS credentials into its actors' descriptions, which Ray logs as plain text.

    Workers read credentials from the environment of their machine.
    """
    from ray.tune.execution import class_cache

    copied: set[str] = class_cache.ENV_VARS_TO_PROPAGATE
    hidden = {name for name in copied if name.startswith("AWS_")}
    copied -= hidden
    try:
        yield
    finally:
        copied |= hidden


@contextmanager
def errors_to(log: Callable[[str], None]) -> Iterator[None]:
    """Pass the errors of Ray's nodes to the function. Ray itself always prints them to the screen."""
    from ray._private import worker

    before = worker.print_to_stdstream
    worker.print_to_stdstream = lambda data, *more, **options: log("\n".join(data["lines"]))
    try:
        yield
    finally:
        worker.print_to_stdstream = before


def never_start_again() -> None:
    """Keep Ray from starting a new cluster when a thread that has lost the old one calls it."""
    from ray._private import auto_init_hook

    auto_init_hook.enable_auto_connect = False


def is_head(resources: Mapping[str, float]) -> bool:
    """Whether the node with these resources is the cluster's head."""
    return "node:__internal_head__" in resources


def release_idle_actors(tune_controller: Any) -> None:
    """Let Tune end the actors that it keeps for later. Without this interface they stay until the sweep ends."""
    release = getattr(tune_controller, "_cleanup_cached_actors", None)
    if release is not None:
        release(force_all=True)


def write_note(key: str, text: str) -> None:
    """Leave a note that all processes of the cluster can read."""
    store = _key_values()
    if store is not None:
        store._internal_kv_put(key, text)
    else:
        import ray

        ray.get(_own_notes(ray.get_runtime_context().get_job_id()).write.remote(key, text))


def read_note(key: str) -> str | None:
    """The note; None if there is none, or if the head can't be reached."""
    import ray

    store = _key_values()
    with suppress(ray.exceptions.RayError, ValueError):
        if store is None:
            return ray.get(ray.get_actor(_NOTES).read.remote(key))  # type: ignore[no-any-return]
        text = store._internal_kv_get(key)
        return None if text is None else text.decode()
    return None


def remove_note(key: str) -> None:
    store = _key_values()
    if store is not None:
        store._internal_kv_del(key)
    else:
        import ray

        ray.get(_own_notes(ray.get_runtime_context().get_job_id()).remove.remote(key))


def _key_values() -> Any:
    """Ray's own key-value store; None if this Ray has none. Then a public actor, which is slower, takes its place."""
    try:
        from ray.experimental import internal_kv
    except ImportError:
        return None
    return internal_kv if hasattr(internal_kv, "_internal_kv_put") else None


@cache
def _own_notes(job: str) -> Any:
    """The actor of this driver. The handle is kept: without one, Ray ends the actor."""
    import ray

    return ray.remote(_Notes).options(name=_NOTES, num_cpus=0, get_if_exists=True).remote()


class _Notes:
    """The key-value store as an actor."""

    def __init__(self) -> None:
        self._notes: dict[str, str] = {}

    def write(self, key: str, text: str) -> None:
        self._notes[key] = text

    def read(self, key: str) -> str | None:
        return self._notes.get(key)

    def remove(self, key: str) -> None:
        self._notes.pop(key, None)
