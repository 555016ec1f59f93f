"""What a sweep on Ray runs on: how many packs at once, in how much memory, and who tries their sizes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from mislabel.cluster.tune.capacity import worker_memory_bytes, worker_slots_in_time
from mislabel.cluster.tune.profiler import is_elsewhere, ray_profiler
from mislabel.cluster.tune.runner import run_on_ray
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.run.launch import Machine, Runner, Show
from mislabel.sweeps.spec.model import Resources
from mislabel.sweeps.store.store import Store


@contextmanager
def machine_on_ray(resources: Resources, workers: int | None) -> Iterator[tuple[Machine, Runner]]:
    """The machine, and what runs a feed on it. `workers` packs at once, or as many as the cluster has room for.

    With a number given, Ray is asked for what so many packs take, which has an autoscaler bring machines.
    """
    slots = workers or worker_slots_in_time(resources)
    with ExitStack() as stack:
        profiler = None
        if workers is not None or is_elsewhere(resources):
            profiler = stack.enter_context(ray_profiler(resources))
        else:  # the driver is on the one machine there is, and starts sooner than a worker
            torch.set_num_threads(max(1, int(resources.cpu)))
        memory_bytes = profiler.place.memory_bytes if profiler is not None else None
        memory_bytes = worker_memory_bytes(resources) if memory_bytes is None else memory_bytes

        def run(driver: Driver, store: Store, show: Show) -> None:
            if profiler is not None:
                profiler.leave()
            run_on_ray(driver, store, resources, slots, show, as_many_as_fit=workers is None)

        yield Machine(slots, memory_bytes, torch.device("cpu"), ahead=True, profiler=profiler), run
