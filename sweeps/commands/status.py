"""`mislabel status`: show the progress of a sweep."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mislabel.sweeps import statistics
from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.list import states_of
from mislabel.sweeps.commands.screen import columns, pairs
from mislabel.sweeps.formatting import count, duration, estimated, value_text

if TYPE_CHECKING:
    from mislabel.sweeps.spec.model import Spec

# Running cells that are shown without --all.
_SHOWN = 20


@click.command(cls=options.Query)
@click.argument("name")
@options.store
@options.as_json
@click.option("--all", "all_cells", is_flag=True, help=f"Show all running cells, not only the first {_SHOWN}.")
def command(name: str, store: str, as_json: bool, all_cells: bool) -> None:
    """Show the progress of a sweep: runs by status, time left, and failures with their errors.

    Each running cell is shown with its step, the mean of its metrics at its last frame, and its expected end.
    """
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
    spec = files.spec()
    cells = running_cells(files.running().to_pylist(), spec) if spec else []
    if as_json:
        keys = ("cells", "runs", "running", "seconds_left", "updated_at", "stopped_because")
        shown = {key: progress.get(key) for key in keys}
        options.put_json(
            {
                "name": name,
                "state": state,
                **shown,
                "statuses": dict(statuses),
                "errors": errors,
                "running_cells": cells,
            }
        )
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
    if cells and spec:
        click.echo(f"\n{_table(cells if all_cells else cells[:_SHOWN], spec, state == 'running')}")
        if len(cells) > _SHOWN and not all_cells:
            options.say(f"{count(len(cells) - _SHOWN, 'more cell')}; show all with --all")
    for run, error in list(errors.items())[:10]:
        options.say(f"run {run} failed: {error}")
    if state in ("died", "stopped"):
        options.say("run `mislabel run` or `mislabel submit` with its spec to continue")


def running_cells(runs: Sequence[dict[str, Any]], spec: "Spec") -> list[dict[str, Any]]:
    """The cells of these running runs: varying parameters, seeds, steps, mean metrics and expected end.

    A cell's step is that of the seed that is furthest behind, and it ends when its last seed does.
    """
    by_cell: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_cell.setdefault(run["cell_id"], []).append(run)
    cells = []
    for cell, own in by_cell.items():
        ends = [run["expected_end"] for run in own]
        cells.append(
            {
                "cell_id": cell,
                "parameters": {axis: own[0][axis] for axis in spec.axes()},
                "seeds": len(own),
                "step": min(run["trained_steps"] for run in own),
                "steps": own[0]["steps"],
                "metrics": {metric.name: statistics.mean(run[metric.name] for run in own) for metric in spec.metric},
                "expected_end": None if None in ends else max(ends).isoformat(timespec="seconds"),
            }
        )
    return sorted(cells, key=lambda cell: (-cell["step"] / cell["steps"], cell["cell_id"]))


def _table(cells: Sequence[dict[str, Any]], spec: "Spec", is_running: bool) -> str:
    metrics = [metric.name for metric in spec.metric]
    rows = [
        [
            *(value_text(cell["parameters"][axis]) for axis in spec.axes()),
            str(cell["seeds"]),
            f"{cell['step']:,} of {cell['steps']:,}",
            *(value_text(cell["metrics"][name]) for name in metrics),
            _time_left(cell["expected_end"]) if is_running else "–",
        ]
        for cell in cells
    ]
    return columns(rows, [*spec.axes(), "seeds", "step", *metrics, "ends in"])


def _time_left(expected_end: str | None) -> str:
    if expected_end is None:
        return "–"
    return estimated(max(0.0, (datetime.fromisoformat(expected_end) - datetime.now(UTC)).total_seconds()))
