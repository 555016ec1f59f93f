"""`mislabel logs`: show the log of a sweep on a cluster."""

import re
import time
from typing import TYPE_CHECKING

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.errors import ExitCode

if TYPE_CHECKING:
    from mislabel.cluster.jobs.client import Jobs

# Lines that Ray writes at the beginning of a job's log.
_NOISE = re.compile(r"^(\d{4}-\d\d-\d\d .* Runtime env is setting up\.|Running entrypoint for job .*)\n", re.MULTILINE)


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
    """Show the job's log until it ends; returns its exit code."""
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
