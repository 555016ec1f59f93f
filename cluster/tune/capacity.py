"""How many packs fit on the machines of a Ray cluster, and how much memory each has."""

import logging
import os
import time
from collections.abc import Mapping, Sequence

from mislabel.cluster.queue.fair_share import TICKET
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.spec.model import Resources

_log = logging.getLogger(__name__)

Machines = Sequence[Mapping[str, float]]
"""The resources of each machine, under Ray's names."""
# How long a submitted sweep waits for a machine on which it can run.
PATIENCE_SECONDS = 900.0
_POLL_SECONDS = 2.0
# Tolerance for shares of a CPU or GPU, which are sums of decimals.
_ROUNDING = 1e-6


def worker_slots_in_time(resources: Resources, seconds: float = PATIENCE_SECONDS) -> int:
    """The same, but a sweep that the queue started waits for machines that have not joined yet or were lost."""
    deadline = time.monotonic() + (seconds if TICKET in os.environ else 0.0)
    said = None
    while True:
        try:
            return worker_slots(resources)
        except MislabelError as error:
            if time.monotonic() >= deadline:
                raise
            if str(error) != said:
                _log.warning("%s. Waiting for a machine", error)
                said = str(error)
        time.sleep(_POLL_SECONDS)


def worker_slots(resources: Resources, given: Machines | None = None) -> int:
    """How many packs can run at once on the given machines, by default the cluster's; MislabelError if none can."""
    found = machines() if given is None else given
    slots = sum(_slots(machine, resources) for machine in found)
    if slots < 1:
        needs = f"{resources.cpu:g} CPU and {resources.gpu:g} GPU"
        raise MislabelError(
            f"resources: a pack needs {needs}, but the cluster has {_kinds(found)}; ask for less, or add a machine"
        )
    return slots


def worker_memory_bytes(resources: Resources, given: Machines | None = None) -> int:
    """The memory that one worker has on every one of the given machines, by default the cluster's."""
    found = machines() if given is None else given
    usable = [(slots, m["memory"]) for m in found if (slots := _slots(m, resources)) and "memory" in m]
    return min((int(memory) // slots for slots, memory in usable), default=4 << 30)


def machines() -> Machines:
    """The machines of the cluster that this process is connected to."""
    import ray  # late: Ray reads its settings from the environment when it is imported

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _slots(machine: Mapping[str, float], resources: Resources) -> int:
    """How many packs fit on one machine. A pack can't be spread over several."""
    slots = _times(machine.get("CPU", 0), resources.cpu)
    gpus = machine.get("GPU", 0)
    if resources.gpu >= 1:
        slots = min(slots, _times(gpus, resources.gpu))
    elif resources.gpu > 0:  # a share is part of a single GPU
        slots = min(slots, _times(gpus, 1) * _times(1, resources.gpu))
    return slots


def _times(whole: float, part: float) -> int:
    return int(whole / part + _ROUNDING)


def _kinds(machines: Machines) -> str:
    kinds = {(machine.get("CPU", 0), machine.get("GPU", 0)) for machine in machines}
    return " and ".join(f"machines with {cpu:g} CPU, {gpu:g} GPU" for cpu, gpu in sorted(kinds)) or "no machines"
