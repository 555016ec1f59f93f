"""How many packs a sweep may run at once, and how packs learn that they have to halt."""

import json
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress

from mislabel.cluster.queue.fair_share import Share
from mislabel.cluster.ray_private import read_note, remove_note, write_note
from mislabel.cluster.tune.capacity import worker_slots
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.spec.model import Resources

# How long more packs may run than the sweep's share before some halt.
PATIENCE_SECONDS = 2.0
_LOOK_SECONDS = 5.0
_ALL = "all"


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
