"""Divide a cluster's slots fairly among its running sweeps.

Each driver computes its own share from the tickets of the queue. Slots are given out in rounds, one to each sweep that
could use another, so that no slot stays free while a sweep needs it.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from mislabel.cluster.queue.queue import Queue
from mislabel.sweeps.errors import TICKET

_LOOK_SECONDS = 1.0


def shares(demands: Mapping[str, int | None], slots: int) -> dict[str, int]:
    """Split the slots between sweeps by demand (None: no limit); each gets at least one."""
    share = dict.fromkeys(demands, 1)
    left = slots - len(share)
    while left > 0:
        hungry = [who for who, wants in demands.items() if wants is None or wants > share[who]]
        if not hungry:
            break
        for who in hungry[:left]:
            share[who] += 1
        left -= len(hungry)
    return share


class Share:
    """The share of one sweep; all slots if no queue started it."""

    def __init__(self, queue: Queue | None = None, ticket: str = "") -> None:
        self._queue = queue
        self._ticket = ticket
        self._looked = 0.0
        self._share = 0
        self._said: int | None = None

    @classmethod
    def of_environment(cls) -> "Share":
        """The share of the sweep that this process runs."""
        path = os.environ.get(TICKET)
        return cls(Queue(Path(path).parent), Path(path).stem) if path else cls()

    def room(self, slots: int, wants: int) -> int:
        """How many of the cluster's slots this sweep may use, if it could use `wants`."""
        if self._queue is None:
            return slots
        now = time.monotonic()
        if wants != self._said or now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._share = self._found(self._queue, slots, wants)
        return self._share

    def _found(self, queue: Queue, slots: int, wants: int) -> int:
        if wants != self._said:
            queue.say_demand(self._ticket, wants)
            self._said = wants
        running = [ticket.id for ticket in queue.tickets() if ticket.runs]
        demands = {id: wants if id == self._ticket else queue.demand(id) for id in running}
        return shares(demands, slots).get(self._ticket, slots)
