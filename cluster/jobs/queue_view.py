"""The queue of the cluster on this machine, for commands that list the sweeps of its store."""

import os
import time
from dataclasses import dataclass

from mislabel.cluster.head_state import Folder, State, head_state
from mislabel.cluster.jobs.client import Jobs
from mislabel.cluster.queue.queue import Queue, Ticket
from mislabel.sweeps.errors import MislabelError


@dataclass(frozen=True)
class Entry:
    """A running or waiting sweep."""

    ticket: Ticket
    before: int | None
    """How many are ahead of it; None if it runs."""

    @property
    def text(self) -> str:
        return "running" if self.before is None else f"queued, {self.before} ahead of it"

    def to_json(self) -> dict[str, object]:
        ticket = self.ticket
        since = time.time() - (ticket.began or ticket.since)
        told = {"job": ticket.id, "owner": ticket.owner, "priority": ticket.priority, "seconds": round(since, 1)}
        return {"name": ticket.sweep, "state": self.text.split(",")[0], "before": self.before, **told}


def entries(folder: Folder, state: State) -> list[Entry]:
    """Running sweeps first, then waiting ones in order."""
    queue = Queue(folder.queue)
    places = queue.places(state.at_once)
    found = [Entry(ticket, places.get(ticket.id)) for ticket in queue.tickets()]
    return sorted(found, key=lambda entry: -1 if entry.before is None else entry.before)


def entries_of_store(store: str) -> list[Entry]:
    """The queue of the cluster on this machine with this store; empty if there is no such cluster."""
    folder = Folder.here()
    state = head_state(folder)
    return entries(folder, state) if state is not None and state.store == _full(store) else []


def is_starting(store: str, name: str) -> bool:
    """Whether a sweep that is not in the store yet was submitted to the cluster on this machine."""
    if any(entry.ticket.sweep == name for entry in entries_of_store(store)):
        return True
    folder = Folder.here()
    state = head_state(folder)
    if state is None or state.is_foreign or not state.lives or state.store != _full(store):
        return False
    try:
        sent = Jobs.of_folder(folder).list()
    except MislabelError:  # the job server does not answer, so nothing is starting
        return False
    return any(job.metadata.get("sweep") == name and not job.ended for job in sent)


def _full(store: str) -> str:
    return store if "://" in store else os.path.abspath(store)
