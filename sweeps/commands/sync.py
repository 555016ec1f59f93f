"""`mislabel sync`: make the MLflow view complete."""

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.options import say


@click.command()
@click.argument("names", nargs=-1)
@options.store
@options.mlflow
def command(names: tuple[str, ...], store: str, tracking_uri: str | None) -> None:
    """Bring the MLflow view of sweeps up to date with the store, or build it anew where it was deleted.

    Without NAMES, all sweeps of the store. Syncing twice changes nothing.
    """
    from mislabel.analysis.mlflow_view.view import default_uri, sync
    from mislabel.sweeps.commands.screen import count, counting
    from mislabel.sweeps.errors import MislabelError
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    uri = tracking_uri or default_uri(at)
    if uri is None:
        raise MislabelError(f"{store} is not a folder, so its MLflow view needs an address: --mlflow URI")
    for files in [at.existing(name) for name in names or at.names()]:
        with counting(files.name) as counted:
            written = sync(files, uri, progress=counted)
        say(
            f"{files.name}: {count(written, 'nested run')} written to {uri}" if written else f"{files.name}: up to date"
        )
