"""The machine of a sweep on Ray: how many packs run at once, their memory, and the profiler of their sizes."""

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
