"""`mislabel list`: list the sweeps of a store."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.screen import columns

if TYPE_CHECKING:
    from mislabel.sweeps.store.store import Store


@click.command(cls=options.Query)
@options.store
@options.as_json
def command(store: str, as_json: bool) -> None:
    """List the sweeps of a store with their state and progress."""
    from mislabel.cluster.jobs.queue_view import entries_of_store
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    waiting = {entry.ticket.sweep: entry.text for entry in entries_of_store(store) if entry.before is not None}
    progress = {name: at.sweep(name).progress() for name in at.names() if name not in waiting}
    states = states_of(at, progress) | waiting
    keys = ("done", "runs", "updated_at")
    rows = [
        {"name": name, "state": state, **{key: progress.get(name, {}).get(key) for key in keys}}
        for name, state in states.items()
    ]
    if as_json:
        options.put_json(rows)
        return
    if not rows:
        options.say(f"no sweeps in {store}; `mislabel run SPEC` starts one")
        return
    shown = [(r["name"], r["state"], f"{r['done'] or 0:,}", f"{r['runs'] or 0:,}", r["updated_at"] or "") for r in rows]
    click.echo(columns(shown, ("sweep", "state", "done", "runs", "last update")))


def states_of(store: "Store", progress: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The states of sweeps: running, done, stopped, or died if the driver ended without recording its end."""
    from mislabel.sweeps.run.lease import running_among

    states = {name: str(values.get("state", "not started")) for name, values in progress.items()}
    begun = [name for name, state in states.items() if state == "running"]
    running = running_among([store.sweep(name) for name in begun])
    return states | {name: "died" for name in begun if name not in running}
