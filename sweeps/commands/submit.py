"""`mislabel submit`: submit a sweep to a cluster."""

import getpass
import re
from typing import TYPE_CHECKING

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.errors import ExitCode

if TYPE_CHECKING:
    from mislabel.cluster.jobs.client import Jobs


@click.command()
@options.spec_file
@options.sets
@options.quick
@click.option(
    "--priority", type=click.IntRange(-100, 100), default=0, show_default=True, help="Higher priorities run first."
)
@click.option("--owner", metavar="NAME", help="Owners share the cluster fairly. Default: your login.")
@click.option("--retry-failed", is_flag=True, help="Also repeat runs that failed before.")
@click.option("--wait", is_flag=True, help="Show the log until the sweep ends; exit with its exit code.")
@options.cluster
@options.token_file
def command(
    spec: str, overrides: tuple[str, ...], quick: bool, priority: int, owner: str | None, retry_failed: bool,
    wait: bool, cluster: str | None, token_file: str | None,
) -> int:  # fmt: skip
    """Submit the sweep of a spec to a cluster, which queues and runs it.

    The cluster runs what its store does not have yet, so submitting a spec again continues the sweep. This machine may
    disconnect at any time. Only the text of the spec is sent; its task must be installed on the cluster.

    \b
      mislabel submit noise.yaml
      mislabel submit noise.yaml --set seeds=20 --priority 10 --wait
      mislabel submit noise.yaml --cluster http://10.0.0.1:8265 --token-file ~/token
    """
    from mislabel.cluster.jobs.client import Jobs

    name, text = _read(spec, overrides, quick)
    return send(Jobs.reached(cluster, token_file), name, text, owner, priority, retry_failed, wait)


def _read(path: str, overrides: tuple[str, ...], quick: bool) -> tuple[str, str]:
    """The sweep's name and its spec, with defaults filled in if its task is installed on this machine."""
    from mislabel.sweeps.checks.reader import checked_spec, opened_spec
    from mislabel.sweeps.errors import nearest
    from mislabel.sweeps.spec.document import text_from_value
    from mislabel.tasks.registry import task_names

    document = opened_spec(path, overrides, quick)
    task, name = document.values.get("task"), document.values.get("name")
    if isinstance(task, str) and isinstance(name, str) and not (task in task_names() or nearest(task, task_names())):
        options.say(f"{task} is not installed on this machine; the cluster will check the spec")
        return name, text_from_value(document.values)
    spec, _ = checked_spec(document)
    return spec.name, spec.to_yaml()


def send(jobs: "Jobs", name: str, spec: str, owner: str | None, priority: int, retry_failed: bool, wait: bool) -> int:
    """Submit a checked spec and print its job's id; returns the exit code."""
    from mislabel.cluster.jobs.request import SweepRequest, new_id
    from mislabel.sweeps.commands.logs import follow
    from mislabel.sweeps.errors import SweepBusyError

    for job in jobs.list():
        if job.metadata.get("sweep") == name and not job.ended:
            raise SweepBusyError(f"{name} is already on this cluster, as {job.id}; wait until it ends, or stop it")
    id = new_id(name)
    jobs.submit(id, SweepRequest(name, spec, owner or login(), priority, retry_failed).metadata())
    click.echo(id)
    if wait:
        return follow(jobs, id)
    options.say(f"submitted {name} to {jobs.address.url}")
    options.say(f"`mislabel logs -f {name}` follows its log, `mislabel status {name}` shows its progress")
    return ExitCode.DONE


def login() -> str:
    return re.sub(r"[^A-Za-z0-9_.@-]", "_", getpass.getuser())[:64]
