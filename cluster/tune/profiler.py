"""Measure pack sizes with the resources of a worker, on a machine that may differ from the driver's.

The profiler occupies the slot of a worker while it measures, and releases it before the first pack runs.
"""

import logging
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray
import torch

from mislabel.cluster.tune.trainable import prepared_device
from mislabel.cluster.tune.watch import watched
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.plan.pack_size import Profiler, ProfilerGone, Speed, measure_speed
from mislabel.sweeps.spec.model import Resources
from mislabel.tasks.data.folder import chosen_folder
from mislabel.tasks.device.memory import device_name, memory_of
from mislabel.tasks.parameters import Value
from mislabel.tasks.registry import find_task
from mislabel.tasks.task import Task

_log = logging.getLogger(__name__)

# An autoscaler takes minutes to add a machine.
_READY_SECONDS = 900.0
_SAY_SECONDS = 10.0
_PROFILE_SECONDS = 300.0


class RayProfiler(Profiler):
    def __init__(self, actor: Any, device: str, memory_bytes: int | None) -> None:
        super().__init__(None)
        self._actor: Any = actor
        self.device = device
        self.memory_bytes = memory_bytes
        """A worker's share of the GPU's memory; None on a CPU, where workers share the machine's memory."""

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        if self._actor is None:
            raise ProfilerGone
        asked = self._actor.profile.remote(task.name, dict(values), memory_bytes, most)
        return watched(lambda: ray.get(asked, timeout=_PROFILE_SECONDS))  # type: ignore[no-any-return]

    def leave(self) -> None:
        """Release the slot for a worker."""
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None


def is_elsewhere(resources: Resources) -> bool:
    """Whether packs may run on other hardware than the driver: on a GPU, or on another machine."""
    own = ray.get_runtime_context().get_node_id()
    others = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU") and node["NodeID"] != own]
    return resources.gpu > 0 or bool(others)


@contextmanager
def ray_profiler(resources: Resources) -> Iterator[RayProfiler]:
    """A profiler with the resources of a worker; MislabelError if no machine has room for it."""
    # If its machine is lost, Ray restarts it on another.
    options = {"num_cpus": resources.cpu, "num_gpus": resources.gpu, "max_restarts": 3, "max_task_retries": 3}
    actor = ray.remote(_Profiler).options(**options).remote(resources.cpu, resources.gpu, chosen_folder())
    try:
        place = actor.place.remote()
        if not ray.wait([place], timeout=_SAY_SECONDS)[0]:
            _log.info("waiting for a free worker, to measure how many runs fit into a pack")
        try:
            host, device, memory_bytes = watched(lambda: ray.get(place, timeout=_READY_SECONDS))
        except ray.exceptions.RayError as error:
            raise MislabelError(
                f"no machine of the cluster had room for a pack within {_READY_SECONDS / 60:.0f} minutes "
                f"({str(error).splitlines()[0]}); is another sweep using it all?"
            ) from None
        if resources.gpu and device == "cpu":
            _log.warning("resources.gpu: torch finds no CUDA on %s; packs train on its CPU", host)
        yield RayProfiler(actor, device, memory_bytes)
    finally:
        ray.kill(actor)


class _Profiler:
    def __init__(self, cpu: float, gpu: float, data: str | None) -> None:
        self._device = prepared_device(cpu, gpu, data)
        self._share = min(1.0, gpu)

    def place(self) -> tuple[str, str, int | None]:
        """Where it runs: host, device, and a worker's share of the device's memory."""
        memory_bytes = int(self._share * memory_of(self._device)) if self._device.type == "cuda" else None
        return platform.node(), device_name(self._device), memory_bytes

    def profile(self, task: str, values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        speed = measure_speed(find_task(task), values, self._device, memory_bytes, most)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return speed
