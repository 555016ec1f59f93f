"""How many packs fit on a Ray cluster, how many of them a sweep may run, and how packs learn that they have to halt."""

import json
import logging
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress

from mislabel.cluster.queue.fair_share import Share
from mislabel.cluster.ray_private import read_note, remove_note, write_note
from mislabel.sweeps.errors import TICKET, MislabelError
from mislabel.sweeps.spec.model import Resources

_log = logging.getLogger(__name__)

Machines = Sequence[Mapping[str, float]]
"""The resources of each machine, under Ray's names."""
# How long a submitted sweep waits for a machine on which it can run.
_LONGEST_WAIT_SECONDS = 900.0
_POLL_SECONDS = 2.0
# How long more packs may run than the sweep's share before some halt.
PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 5.0
_ALL = "all"
# Tolerance for shares of a CPU or GPU, which are sums of decimals.
_ROUNDING = 1e-6


def worker_slots_in_time(resources: Resources) -> int:
    """`worker_slots`, but a sweep that the queue started waits for machines that have not joined yet or were lost."""
    deadline = time.monotonic() + (_LONGEST_WAIT_SECONDS if TICKET in os.environ else 0.0)
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
        needs = f"a pack needs {resources.cpu:g} CPU and {resources.gpu:g} GPU"
        kinds = sorted({(machine.get("CPU", 0), machine.get("GPU", 0)) for machine in found})
        has = " and ".join(f"machines with {cpu:g} CPU, {gpu:g} GPU" for cpu, gpu in kinds) or "no machines"
        raise MislabelError(f"resources: {needs}, but the cluster has {has}; ask for less, or add a machine")
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


class PackLimit:
    """The number of packs that may run at once, which changes as machines and other sweeps come and go.

    Packs that exceed the limit are told to halt. They checkpoint and continue later.
    """

    def __init__(self, resources: Resources, slots: int, as_many_as_fit: bool) -> None:
        self.key = f"mislabel-halt-{uuid.uuid4().hex}"
        """The key of the note that tells packs to halt."""
        self._resources = resources
        self._slots = slots
        self._as_many_as_fit = as_many_as_fit
        self._share = Share.of_environment()
        self._looked = time.monotonic()
        self._exceeded_since: float | None = None
        self._halting: set[str] = set()
        self._all_halt = False

    def packs(self, running: int, dry: bool) -> int:
        """How many packs may run at once; `dry` says that the sweep has no more packs than those running."""
        if self._as_many_as_fit and time.monotonic() - self._looked > _LOOK_SECONDS:
            self._looked = time.monotonic()
            with suppress(MislabelError):  # no machine has room now: wait for one
                self._slots = worker_slots(self._resources)
        return self._share.room(self._slots, running if dry else self._slots)

    def enforce(self, packs: Sequence[str], most: int) -> None:
        """If more packs run than may, let the last ones halt."""
        excess = {*packs[most:]}
        now = time.monotonic()
        self._exceeded_since = (self._exceeded_since or now) if excess else None
        waits = self._exceeded_since is not None and now - self._exceeded_since < PATIENCE_SECONDS
        if excess != self._halting and not waits and not self._all_halt:
            write_note(self.key, json.dumps(sorted(excess)))
            self._halting = excess

    def halt(self) -> None:
        """The sweep stops: let all packs halt."""
        if not self._all_halt:
            write_note(self.key, json.dumps(_ALL))
            self._all_halt = True

    def close(self) -> None:
        remove_note(self.key)


def has_to_halt(key: str, pack: str) -> bool:
    """Whether the sweep stops, or this pack has to make room for another sweep.

    The note is in Ray, not in the store: workers read it every second, and each read of an object store costs money.
    """
    note = read_note(key)
    halting = [] if note is None else json.loads(note)
    return halting == _ALL or pack in halting
