"""`mislabel sync`: update the MLflow view."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.argument("names", nargs=-1)
@options.store
@options.mlflow
def command(names: tuple[str, ...], store: str, tracking_uri: str | None) -> None:
    """Update the MLflow view of the sweeps NAMES from the store, or rebuild it if it was deleted.

    Without NAMES, update all sweeps of the store. Syncing again changes nothing.
    """
    from mislabel.analysis.mlflow_view.view import View, default_uri
    from mislabel.sweeps.commands.screen import counting
    from mislabel.sweeps.errors import MislabelError
    from mislabel.sweeps.formatting import count
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    uri = tracking_uri or default_uri(at)
    if uri is None:
        raise MislabelError(f"{store} is not a folder; give the address of its MLflow view with --mlflow URI")
    for files in [at.existing(name) for name in names or at.names()]:
        with counting(files.name) as counted:
            written = View(files, uri).sync(progress=counted)
        done = f"{count(written, 'nested run')} written to {uri}" if written else "up to date"
        options.say(f"{files.name}: {done}")
