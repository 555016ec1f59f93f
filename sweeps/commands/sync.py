"""`mislabel sync`: update the MLflow view."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.argument("names", nargs=-1)
@options.store
@options.mlflow
@click.option(
    "--rebuild", is_flag=True,
    help="Move MLflow's SQLite database aside, for example because it is damaged, and write a new one.",
)  # fmt: skip
def command(names: tuple[str, ...], store: str, tracking_uri: str | None, rebuild: bool) -> None:
    """Update the MLflow view of the sweeps NAMES from the store, or rebuild it if it was deleted.

    Without NAMES, update all sweeps of the store, and remove those from MLflow that the store no longer has. Syncing
    again changes nothing. --rebuild deletes nothing: the old
    database stays beside the new one, and may contain runs of other programs.
    """
    from mislabel.analysis.mlflow_view.database import set_aside
    from mislabel.analysis.mlflow_view.view import View, default_uri, remove_absent_sweeps
    from mislabel.sweeps.commands.screen import counting
    from mislabel.sweeps.errors import MislabelError
    from mislabel.sweeps.formatting import count
    from mislabel.sweeps.run.lease import running_among
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    uri = tracking_uri or default_uri(at)
    if uri is None:
        raise MislabelError(f"{store} is not a folder; give the address of its MLflow view with --mlflow URI")
    if rebuild and names:
        raise click.UsageError("--rebuild writes the view of all sweeps of the store; leave out NAMES")
    if rebuild and (aside := set_aside(uri)):
        options.say(f"the old database is {aside}")
    for files in [at.existing(name) for name in names or at.names()]:
        has_ended = not running_among([files])
        with counting(files.name) as counted:
            written = View(files, uri).sync(final=has_ended, progress=counted, report=has_ended)
        done = f"{count(written, 'nested run')} written to {uri}" if written else "up to date"
        options.say(f"{files.name}: {done}")
    for name in () if names else remove_absent_sweeps(at, uri):
        options.say(f"{name}: removed from MLflow, because it is no longer in the store")
