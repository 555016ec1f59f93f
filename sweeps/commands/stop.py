"""`mislabel stop`: stop a sweep after it has saved checkpoints."""

import click

from mislabel.sweeps.commands import options


@click.command(cls=options.Query)
@click.argument("name")
@options.store
def command(name: str, store: str) -> None:
    """Stop a running sweep after it has saved checkpoints, or remove a queued sweep from the queue.

    The sweep may run on this machine, on another machine with the same store, or, with --cluster, on a cluster. `run`
    or `submit` with its spec continues it.
    """
    from mislabel.cluster.head_state import Folder
    from mislabel.cluster.jobs.queue_view import entries_of_store, is_starting
    from mislabel.cluster.queue.queue import Queue
    from mislabel.sweeps.errors import MislabelError
    from mislabel.sweeps.run.heartbeat import ask_to_stop
    from mislabel.sweeps.store.store import Store

    for entry in entries_of_store(store):
        if entry.ticket.sweep == name:
            Queue(Folder.here().queue).ask_to_stop(entry.ticket)
            waits = entry.before is not None
            options.say(f"{name}: " + ("removed from the queue" if waits else "stopping; saving checkpoints"))
            return
    at = Store(store)
    if name not in at.names() and is_starting(store, name):
        raise MislabelError(f"{name} is still starting; try again in a moment, or use `mislabel cancel {name}`")
    ask_to_stop(at.existing(name))
    options.say(f"{name}: stopping; saving checkpoints")
