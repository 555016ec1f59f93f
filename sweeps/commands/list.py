"""`mislabel list`: list the sweeps of a store."""

from typing import Any

import click

from mislabel.sweeps.commands import options

_SHOWN = ("done", "runs", "updated_at")


@click.command(cls=options.Query)
@options.store
@options.as_json
def command(store: str, as_json: bool) -> None:
    """List the sweeps of a store with their state and progress."""
    from mislabel.cluster.jobs.queue_view import entries_of_store
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    rows = [_row(at.sweep(name)) for name in at.names()]
    for entry in entries_of_store(store):
        if entry.before is not None:
            rows = [row for row in rows if row["name"] != entry.ticket.sweep]
            rows.append(
                {"name": entry.ticket.sweep, "state": entry.text, "done": None, "runs": None, "updated_at": None}
            )
    if as_json:
        options.put_json(rows)
        return
    if not rows:
        options.say(f"no sweeps in {store}; `mislabel run SPEC.yaml` starts one")
        return
    from mislabel.sweeps.commands.screen import columns

    shown = [(r["name"], r["state"], f"{r['done'] or 0:,}", f"{r['runs'] or 0:,}", r["updated_at"] or "") for r in rows]
    click.echo(columns(shown, ("sweep", "state", "done", "runs", "last update")))


def _row(files: Any) -> dict[str, Any]:
    progress = files.read_json("progress.json") or {}
    row = {key: progress.get(key) for key in _SHOWN}
    return {"name": files.name, "state": state_of(progress), **row}


def state_of(progress: dict[str, Any]) -> str:
    """The sweep's state: running, done, stopped, or died if the driver ended without recording its end."""
    from mislabel.sweeps.run.heartbeat import alive

    state = str(progress.get("state", "not started"))
    return "died" if state == "running" and not alive(progress) else state
