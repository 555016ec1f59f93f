"""`mislabel cancel`: end a sweep on a cluster at once."""

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say


@click.command()
@click.argument("name")
@options.cluster
@options.token_file
def command(name: str, cluster: str | None, token_file: str | None) -> None:
    """End a sweep on a cluster at once, or take it out of the queue.

    Its processes have three seconds. Runs that have ended are in the store; what packs have trained since their last
    checkpoint is trained again when the sweep is sent again. `mislabel stop` loses nothing.
    """
    from mislabel.cluster.jobs.client import Jobs
    from mislabel.cluster.jobs.remote_command import job_of

    jobs = Jobs.reached(cluster, token_file)
    job = job_of(jobs, name, live=True)
    jobs.stop(job.id)
    say(f"{job.metadata['sweep']}: cancelled ({job.id})")
