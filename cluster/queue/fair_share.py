"""How much of a cluster one of the sweeps on it takes.

Each driver finds out for itself from the tickets of the queue: places go round, one to each sweep that could use
another, so that none waits while another has more than its part, and none is left empty.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from mislabel.cluster.queue.queue import Queue

TICKET = "MISLABEL_TICKET"
"""In a driver's environment, the path of its ticket."""
_LOOK_SECONDS = 1.0


def shares(demands: Mapping[str, int | None], places: int) -> dict[str, int]:
    """Of so many places, how many each gets, who wants so many (None: as many as may be); one at least."""
    share = dict.fromkeys(demands, 1)
    left = places - len(share)
    while left > 0:
        hungry = [who for who, wants in demands.items() if wants is None or wants > share[who]]
        if not hungry:
            break
        for who in hungry[:left]:
            share[who] += 1
        left -= len(hungry)
    return share


class Share:
    """The share of a sweep that runs beside others; all of it where it runs alone."""

    def __init__(self, queue: Queue | None = None, ticket: str = "") -> None:
        self._queue = queue
        self._ticket = ticket
        self._looked = 0.0
        self._share = 0
        self._said: int | None = None

    @classmethod
    def of_environment(cls) -> "Share":
        """That of the sweep which the queue let this process run; all, where it was not run by a queue."""
        path = os.environ.get(TICKET)
        return cls(Queue(Path(path).parent), Path(path).stem) if path else cls()

    def room(self, places: int, wants: int) -> int:
        """Of so many places of the cluster, how many this sweep may take that could use `wants`."""
        if self._queue is None:
            return places
        now = time.monotonic()
        if wants != self._said or now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._share = self._found(self._queue, places, wants)
        return self._share

    def _found(self, queue: Queue, places: int, wants: int) -> int:
        if wants != self._said:
            queue.say_demand(self._ticket, wants)
            self._said = wants
        running = [ticket.id for ticket in queue.tickets() if ticket.runs]
        demands = {id: wants if id == self._ticket else queue.demand(id) for id in running}
        return shares(demands, places).get(self._ticket, places)
