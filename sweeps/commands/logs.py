"""`mislabel logs`: what a sweep on a cluster says."""

import re
import time
from typing import TYPE_CHECKING

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.errors import ExitCode

if TYPE_CHECKING:
    from mislabel.cluster.jobs.client import Jobs

# Ray's own lines at the head of a job's log.
_NOISE = re.compile(r"^(\d{4}-\d\d-\d\d .* Runtime env is setting up\.|Running entrypoint for job .*)\n", re.MULTILINE)


@click.command()
@click.argument("name")
@click.option("--follow", "-f", "following", is_flag=True, help="Go on until the sweep ends.")
@options.cluster
@options.token_file
def command(name: str, following: bool, cluster: str | None, token_file: str | None) -> int:
    """Show what a sweep that was sent to a cluster says: the last job of NAME, or the job of that id.

    With -f, until it ends; Ctrl-C leaves the sweep alone.
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
    """Show what the job says until it ends; returns its exit code."""
    for text in jobs.follow(id):
        click.echo(_NOISE.sub("", text), nl=False)
    for _ in range(50):
        job = jobs.get(id)
        if job.ended:
            break
        time.sleep(0.2)
    if job.status == "STOPPED":
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED if job.code is None and job.status == "FAILED" else job.code or ExitCode.DONE
