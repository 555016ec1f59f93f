"""`mislabel retry`: send a sweep to its cluster again."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.argument("name")
@click.option("--failed", "retry_failed", is_flag=True, help="Also run again what failed.")
@click.option("--wait", is_flag=True, help="Show what the sweep says until it ends; its exit code is this one's.")
@options.cluster
@options.token_file
def command(name: str, retry_failed: bool, wait: bool, cluster: str | None, token_file: str | None) -> int:
    """Send a sweep to its cluster again, as it was last sent: it goes on with what is missing.

    With --failed, runs that failed are tried again too. Runs that were lost with their machine are missing, and
    always run again.
    """
    from mislabel.cluster.jobs.client import Jobs
    from mislabel.cluster.jobs.remote_command import job_of
    from mislabel.cluster.jobs.request import SweepRequest, request_from_metadata
    from mislabel.sweeps.commands.submit import send

    jobs = Jobs.reached(cluster, token_file)
    last = request_from_metadata(job_of(jobs, name).metadata)
    assert isinstance(last, SweepRequest)
    return send(jobs, last.name, last.spec, last.owner, last.priority, retry_failed, wait)
