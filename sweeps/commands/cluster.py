"""`mislabel cluster`: start, join, show and shut down a cluster."""

import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say
from mislabel.sweeps.commands.screen import columns, pairs
from mislabel.sweeps.formatting import duration
from mislabel.sweeps.redaction import redacted


@click.group()
def command() -> None:
    """Start a cluster on this machine, add machines to it, show its state, or shut it down.

    \b
      mislabel cluster up                              # only this machine can connect
      mislabel cluster up --host 10.0.0.1 --store /shared/results
      mislabel cluster join http://10.0.0.1:8265 --token-file token     # on another machine
    """


@command.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True,
    help="Address to listen on. By default only this machine can connect.",
)  # fmt: skip
@options.store
@options.data
@click.option(
    "--mlflow-backend", envvar="MISLABEL_MLFLOW_BACKEND", show_envvar=True, metavar="URI",
    help="MLflow's database, such as postgresql://…; with a password, use the variable. Default: a SQLite file in the "
    "store.",
)  # fmt: skip
@click.option("--sweeps", type=click.IntRange(1), default=2, show_default=True, help="Sweeps to run at the same time.")
@click.option("--cpus", type=click.IntRange(0), help="CPU cores of this machine to use. Default: all.")
@click.option("--gpus", type=click.IntRange(0), help="GPUs of this machine to use. Default: all.")
def up(host: str, store: str, mlflow_backend: str | None, sweeps: int, cpus: int | None, gpus: int | None) -> None:
    """Start the head of a cluster: Ray with its job server, and an MLflow server.

    The command chooses free ports and creates a token that every request needs. Anyone with the token can run anything
    on the cluster, so keep it secret. If --host lets other machines connect, use a network that you trust: the traffic
    is not encrypted.
    """
    from mislabel.analysis.mlflow_view.view import start_page
    from mislabel.cluster.head.head import Wanted, up
    from mislabel.cluster.head_state import Folder
    from mislabel.sweeps.store.store import Store
    from mislabel.tasks.data.folder import data_folder, shown

    folder = Folder.here()
    state = up(Wanted(host, store, mlflow_backend, sweeps, cpus, gpus), folder, say)
    say(f"jobs:    {state.jobs}  (MISLABEL_CLUSTER)")
    say(f"token:   {folder.token}  (MISLABEL_TOKEN_FILE)")
    protected = f"  (user admin, password in {folder.mlflow_password})" if folder.mlflow_password.exists() else ""
    options.say_page("MLflow:  ", state.mlflow, start_page(Store(state.store)), protected)
    say(f"Ray:     {state.ray}")
    say(f"store:   {state.store}")
    say(f"data:    {shown(data_folder())}")
    if not state.is_loopback:
        say(f"to add a machine, run there: mislabel cluster join {state.jobs} --token-file FILE")
    say("`mislabel submit SPEC` submits a sweep, `mislabel cluster down` shuts the cluster down")


@command.command()
def down() -> None:
    """Shut down what `cluster up` started on this machine. Running sweeps save checkpoints first."""
    from mislabel.cluster.head.head import down
    from mislabel.cluster.head_state import Folder

    say("the cluster is down" if down(Folder.here(), say) else "no cluster runs on this machine")


@command.command()
@click.argument("address")
@click.option("--token-file", **options.TOKEN_FILE, required=True, help="File with the cluster's token.")
@click.option("--cpus", type=click.IntRange(0), help="CPU cores to contribute. Default: all.")
@click.option("--gpus", type=click.IntRange(0), help="GPUs to contribute. Default: all.")
@click.option("--host", help="Address at which the other machines reach this one. Default: Ray detects it.")
def join(address: str, token_file: str, cpus: int | None, gpus: int | None, host: str | None) -> int:
    """Add this machine to the cluster whose job server is at ADDRESS, until Ctrl-C.

    It rejoins automatically after a network failure. Python, Ray and Mislabel must have the head's versions.
    """
    from pathlib import Path

    from mislabel.cluster.head.node import Joining, join
    from mislabel.cluster.jobs.client import Jobs

    return join(Jobs.reached(address, token_file), Path(token_file), Joining(cpus, gpus, host), say)


@command.command(cls=options.Query)
@options.as_json
def status(as_json: bool) -> None:
    """Show a cluster: machines, running and queued sweeps, store, MLflow, and differing versions."""
    from mislabel.cluster.head import mlflow_server
    from mislabel.cluster.head.machines import nodes
    from mislabel.cluster.head_state import Folder, running_state
    from mislabel.cluster.jobs.queue_view import entries

    folder = Folder.here()
    state = running_state(folder)
    with redirect_stdout(sys.stderr):  # Ray prints its nodes' warnings to stdout
        found = nodes(state, folder)
    mlflow = bool(state.mlflow) and mlflow_server.answers(state.mlflow)
    queue = [entry.to_json() for entry in entries(folder, state)]
    if as_json:
        addresses = {"jobs": state.jobs, "ray": state.ray, "mlflow": redacted(state.mlflow), "mlflow_answers": mlflow}
        shown = {**addresses, "store": state.store, "at_once": state.at_once, "versions": state.versions}
        differing = {node.host: other for node in found if (other := node.differing(state.versions))}
        options.put_json({**shown, "nodes": [asdict(node) for node in found], "sweeps": queue, "differing": differing})
    else:
        _show(state, found, queue, mlflow)


def _show(state: Any, found: list[Any], queue: list[dict[str, Any]], mlflow: bool) -> None:
    rows = [
        (
            f"{node.host}{' (head)' if node.head else ''}", "alive" if node.alive else "dead", f"{node.cpus:g}",
            f"{node.gpus:g}", f"{node.memory_bytes / 2**30:.1f} GiB", "; ".join(node.differing(state.versions)),
        )
        for node in found
    ]  # fmt: skip
    click.echo(columns(rows, ("machine", "state", "CPUs", "GPUs", "memory", "differs")))
    if queue:
        shown = [(q["name"], q["state"], q["owner"], str(q["priority"]), duration(q["seconds"])) for q in queue]
        click.echo("\n" + columns(shown, ("sweep", "state", "owner", "priority", "since")))
    facts = [
        ("jobs", state.jobs),
        ("MLflow", redacted(state.mlflow) + ("" if mlflow else "  (does not answer)")),
        ("store", state.store),
        ("sweeps at once", str(state.at_once)),
        ("versions", ", ".join(f"{name} {number}" for name, number in state.versions.items())),
    ]
    click.echo("\n" + pairs(facts))
    for name in state.dead():
        say(f"{name} has ended; run `mislabel cluster down`, then `mislabel cluster up`, to restart it")
