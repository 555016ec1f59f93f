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

    Without NAMES, update all sweeps of the store. Syncing again changes nothing. --rebuild deletes nothing: the old
    database stays beside the new one, and may contain runs of other programs.
    """
    from mislabel.analysis.mlflow_view.database import set_aside
    from mislabel.analysis.mlflow_view.view import View, default_uri
    from mislabel.sweeps.commands.screen import counting
    from mislabel.sweeps.errors import MislabelError
    from mislabel.sweeps.formatting import count
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
        with counting(files.name) as counted:
            written = View(files, uri).sync(progress=counted)
        done = f"{count(written, 'nested run')} written to {uri}" if written else "up to date"
        options.say(f"{files.name}: {done}")
