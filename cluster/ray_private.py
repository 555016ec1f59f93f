"""The only module that uses interfaces of Ray that are not public. Tested with Ray 2.60.

Ray is imported inside the functions: clients and jobs on the head use this module without loading Ray.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any

# Ray turns a loopback address into one that others can reach, and then listens on all addresses, unless this is off.
# It was made for systems whose firewall asks about every port; here it keeps a cluster of one machine to itself.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
_NOTES = "mislabel-notes"


def job_metadata(environment: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The metadata of the job that this process runs, and the environment without them.

    A process that is started with that environment joins Ray as a new driver.
    """
    config = json.loads(environment.get(_JOB, "{}"))
    return config.get("metadata", {}), {name: value for name, value in environment.items() if name != _JOB}


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
