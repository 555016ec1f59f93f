"""`mislabel stop`: let a sweep checkpoint and finish."""

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say


@click.command(cls=options.Query)
@click.argument("name")
@options.store
def command(name: str, store: str) -> None:
    """Let a running sweep checkpoint its packs and finish; a queued one leaves the queue.

    Works on a sweep that runs on this machine or on another one with the same store, and with --cluster on a
    cluster's. `run` or `submit` with its spec continues it.
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
            say(f"{name}: " + ("leaves the queue" if entry.before is not None else "stops; its packs checkpoint"))
            return
    at = Store(store)
    if name not in at.names() and is_starting(store, name):
        raise MislabelError(f"{name} is just being started; stop it in a moment, or `mislabel cancel` it")
    ask_to_stop(at.existing(name))
    say(f"{name}: stops; its packs checkpoint")
