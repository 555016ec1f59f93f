"""The queue of submitted sweeps.

There is no server. Each sweep's process has a ticket, a file in the queue's folder, and checks whether the sweep may
run. A ticket is valid while its process runs.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mislabel.sweeps.errors import MislabelError, SweepBusyError
from mislabel.sweeps.process import Process
from mislabel.tasks.files import locked, write_atomically

_USED = "used"


@dataclass(frozen=True)
class Ticket:
    id: str
    sweep: str
    owner: str
    priority: int = 0
    since: float = 0.0
    """When the sweep entered the queue, in seconds since 1970."""
    began: float | None = None
    """When the sweep started to run; None while it waits."""
    process: Process | None = None

    @property
    def runs(self) -> bool:
        return self.began is not None


def admitted(tickets: Sequence[Ticket], at_once: int, used: Mapping[str, float] | None = None) -> set[str]:
    """Ids of the tickets whose sweeps may run.

    Running sweeps continue. Free slots go to the highest priority, then to the owner with the fewest running sweeps,
    then to the owner who has used the least time, then to the oldest ticket.
    """
    used = used or {}
    running = Counter(ticket.owner for ticket in tickets if ticket.runs)
    chosen = {ticket.id for ticket in tickets if ticket.runs}
    waiting = [ticket for ticket in tickets if not ticket.runs]
    while waiting and len(chosen) < at_once:
        best = min(waiting, key=lambda t: (-t.priority, running[t.owner], used.get(t.owner, 0.0), t.since, t.id))
        waiting.remove(best)
        running[best.owner] += 1
        chosen.add(best.id)
    return chosen


class Queue:
    """The tickets in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def enter(self, ticket: Ticket) -> None:
        """Add a ticket; SweepBusyError if the sweep already runs or waits."""
        with self._locked():
            for other in self._live():
                if other.sweep == ticket.sweep:
                    what = "is running" if other.runs else "waits in the queue"
                    raise SweepBusyError(f"{ticket.sweep} {what} already, as {other.id}; wait for it, or stop it first")
            self._write(ticket)

    def turn(self, ticket: Ticket, at_once: int) -> Ticket | None:
        """Start the sweep if it may run, and return its new ticket; None if it must wait."""
        with self._locked():
            tickets = self._live()
            if ticket.id not in admitted(tickets, at_once, self._used(tickets)):
                return None
            now = replace(ticket, began=time.time())
            self._write(now)
            return now

    def leave(self, ticket: Ticket) -> None:
        with self._locked():
            self._remove(ticket)

    def tickets(self) -> list[Ticket]:
        """The valid tickets, oldest first."""
        return self._live(clean=False)

    def places(self, at_once: int) -> dict[str, int]:
        """By waiting ticket, how many are ahead of it."""
        tickets = self.tickets()
        places: dict[str, int] = {}
        used = self._used(tickets)
        for room in range(at_once, at_once + len(tickets) + 1):
            for id in admitted(tickets, room, used) - places.keys():
                places[id] = room - at_once
        return {ticket.id: max(0, places[ticket.id] - 1) for ticket in tickets if not ticket.runs}

    def ask_to_stop(self, ticket: Ticket) -> None:
        self._beside(ticket.id, "stop").touch()

    def is_asked_to_stop(self, ticket: Ticket) -> bool:
        return self._beside(ticket.id, "stop").exists()

    def say_demand(self, id: str, packs: int) -> None:
        write_atomically(self._beside(id, "demand"), str(packs).encode())

    def demand(self, id: str) -> int | None:
        """How many packs the sweep has or could start. None if unknown: no limit."""
        try:
            return int(self._beside(id, "demand").read_text())
        except (OSError, ValueError):
            return None

    def _used(self, tickets: Sequence[Ticket]) -> dict[str, float]:
        """How many seconds each owner's sweeps have run."""
        try:
            used: dict[str, float] = json.loads((self.folder / _USED).read_text())
        except (OSError, ValueError):
            used = {}
        for ticket in tickets:
            if ticket.began is not None:
                used[ticket.owner] = used.get(ticket.owner, 0.0) + max(0.0, time.time() - ticket.began)
        return used

    def _live(self, clean: bool = True) -> list[Ticket]:
        tickets = [ticket for path in self.folder.glob("*.json") if (ticket := _read(path))]
        live = [ticket for ticket in tickets if ticket.process is not None and ticket.process.lives]
        if clean:
            for ticket in tickets:
                if ticket not in live:
                    self._remove(ticket)
        return sorted(live, key=lambda ticket: (ticket.since, ticket.id))

    def _write(self, ticket: Ticket) -> None:
        write_atomically(self.folder / f"{ticket.id}.json", json.dumps(asdict(ticket)).encode())

    def _remove(self, ticket: Ticket) -> None:
        if ticket.began is not None:
            write_atomically(self.folder / _USED, json.dumps(self._used([ticket])).encode())
        for end in ("json", "stop", "demand", "crash"):
            self._beside(ticket.id, end).unlink(missing_ok=True)

    def _beside(self, id: str, end: str) -> Path:
        return self.folder / f"{id}.{end}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if not self.folder.is_dir():
            raise MislabelError(f"{self.folder}: the cluster's queue does not exist; was the cluster stopped?")
        with locked(self.folder / "lock"):
            yield


def _read(path: Path) -> Ticket | None:
    try:
        values: dict[str, Any] = json.loads(path.read_text())
        return Ticket(**{**values, "process": Process.from_json(values["process"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # removed in the meantime
