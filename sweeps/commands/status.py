"""`mislabel status`: show the progress of a sweep."""

from collections import Counter

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.list import states_of
from mislabel.sweeps.commands.screen import pairs
from mislabel.sweeps.formatting import duration


@click.command(cls=options.Query)
@click.argument("name")
@options.store
@options.as_json
def command(name: str, store: str, as_json: bool) -> None:
    """Show the progress of a sweep: runs by status, running runs, time left, and failures with their errors."""
    from mislabel.cluster.jobs.queue_view import entries_of_store, is_starting
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    waiting = {entry.ticket.sweep: entry.text for entry in entries_of_store(store) if entry.before is not None}
    if name not in waiting and name not in at.names() and is_starting(store, name):
        waiting[name] = "starting"
    if name in waiting:
        if as_json:
            options.put_json({"name": name, "state": waiting[name], "statuses": {}, "errors": {}})
        else:
            click.echo(pairs([("sweep", name), ("state", waiting[name])]))
        return
    files = at.existing(name)
    progress = files.progress()
    runs = files.read("runs", ["run_id", "status", "error"]).to_pylist() if files.parts("runs") else []
    statuses = Counter(run["status"] for run in runs)
    errors = {run["run_id"]: run["error"].splitlines()[0] for run in runs if run["error"]}
    state = states_of(at, {name: progress})[name]
    if as_json:
        keys = ("cells", "runs", "running", "seconds_left", "updated_at", "stopped_because")
        shown = {key: progress.get(key) for key in keys}
        options.put_json({"name": name, "state": state, **shown, "statuses": dict(statuses), "errors": errors})
        return
    rows = [("state", state), ("cells", f"{progress.get('cells') or 0:,}"), ("runs", f"{progress.get('runs') or 0:,}")]
    rows += [(status, f"{number:,}") for status, number in sorted(statuses.items())]
    if state == "running":
        rows.append(("running", f"{progress.get('running') or 0:,}"))
        if progress.get("seconds_left") is not None:
            rows.append(("time left", duration(progress["seconds_left"])))
    if progress.get("stopped_because"):
        rows.append(("because", progress["stopped_because"]))
    rows.append(("updated", str(progress.get("updated_at", "never"))))
    click.echo(pairs([("sweep", name), *rows]))
    for run, error in list(errors.items())[:10]:
        options.say(f"run {run} failed: {error}")
    if state in ("died", "stopped"):
        options.say("run `mislabel run` or `mislabel submit` with its spec to continue")
