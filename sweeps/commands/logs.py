"""`mislabel logs`: show the log of a sweep on a cluster."""

import re
import time
from typing import TYPE_CHECKING

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.errors import ExitCode, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mislabel.cluster.jobs.client import Jobs

# Lines that Ray writes at the beginning of a job's log.
_NOISE = re.compile(r"^(\d{4}-\d\d-\d\d .* Runtime env is setting up\.|Running entrypoint for job .*)\n", re.MULTILINE)

_PAUSE_SECONDS = 0.5
# Give up after the cluster has not answered for this long.
_PATIENCE_SECONDS = 120.0


@click.command()
@click.argument("name")
@click.option("--follow", "-f", "following", is_flag=True, help="Show new lines until the sweep ends.")
@options.cluster
@options.token_file
def command(name: str, following: bool, cluster: str | None, token_file: str | None) -> int:
    """Show the log of a submitted sweep. NAME is the sweep, for its last job, or a job's id.

    With -f, Ctrl-C ends the display; the sweep continues.
    """
    from mislabel.cluster.jobs.client import Jobs
    from mislabel.cluster.jobs.remote_command import job_of

    jobs = Jobs.reached(cluster, token_file)
    job = job_of(jobs, name)
    if following:
        return follow(jobs, job.id)
    click.echo(_NOISE.sub("", jobs.logs(job.id)), nl=False)
    return ExitCode.DONE


def follow(jobs: "Jobs", id: str) -> int:
    """Show the job's log until it ends; returns its exit code. Reconnects if the connection is lost."""
    display, reached = _Display(), time.monotonic()
    while True:
        try:
            display.show(jobs.follow(id))
            job = jobs.get(id)
            reached = time.monotonic()
        except UnreachableError:
            if time.monotonic() - reached > _PATIENCE_SECONDS:
                raise
        else:
            if job.ended:
                break
        time.sleep(_PAUSE_SECONDS)
    if job.status == "STOPPED":
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if job.code is None and job.status == "FAILED" else job.code or ExitCode.DONE


class _Display:
    """Prints a log that every connection sends from its start, each character once."""

    def __init__(self) -> None:
        self._shown = 0

    def show(self, texts: "Iterator[str]") -> None:
        received = 0
        for text in texts:
            received += len(text)
            if received > self._shown:
                click.echo(_NOISE.sub("", text[max(0, len(text) - received + self._shown) :]), nl=False)
                self._shown = received
