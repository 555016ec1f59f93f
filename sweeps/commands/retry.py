"""`mislabel retry`: submit a sweep to its cluster again."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.argument("name")
@click.option("--failed", "retry_failed", is_flag=True, help="Also repeat failed runs.")
@click.option("--wait", is_flag=True, help="Show the log until the sweep ends; exit with its exit code.")
@options.cluster
@options.token_file
def command(name: str, retry_failed: bool, wait: bool, cluster: str | None, token_file: str | None) -> int:
    """Submit a sweep to its cluster again, with the spec that was submitted last. It continues with the missing runs.

    Runs lost with their machine are always repeated; failed runs only with --failed.
    """
    from mislabel.cluster.jobs.client import Jobs
    from mislabel.cluster.jobs.remote_command import job_of
    from mislabel.cluster.jobs.request import SweepRequest, request_from_metadata
    from mislabel.sweeps.commands.submit import send

    jobs = Jobs.reached(cluster, token_file)
    last = request_from_metadata(job_of(jobs, name).metadata)
    assert isinstance(last, SweepRequest)
    return send(jobs, last.name, last.spec, last.owner, last.priority, retry_failed, wait)
