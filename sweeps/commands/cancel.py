"""`mislabel cancel`: kill a sweep on a cluster."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.argument("name")
@options.cluster
@options.token_file
def command(name: str, cluster: str | None, token_file: str | None) -> None:
    """Kill a sweep on a cluster, or remove it from the queue.

    Its processes get three seconds to end. Ended runs stay in the store. Training since the last checkpoints is lost,
    and is repeated if you submit the sweep again; `mislabel stop` saves checkpoints first and loses nothing.
    """
    from mislabel.cluster.jobs.client import Jobs
    from mislabel.cluster.jobs.remote_command import job_of

    jobs = Jobs.reached(cluster, token_file)
    job = job_of(jobs, name, live=True)
    jobs.stop(job.id)
    options.say(f"{job.metadata['sweep']}: cancelled ({job.id})")
