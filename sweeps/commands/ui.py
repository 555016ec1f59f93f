"""`mislabel ui`: open the MLflow UI on a store."""

import os
import socket
import sys

import click

from mislabel.sweeps.commands import options


@click.command()
@options.store
@options.mlflow
@click.option("--port", type=int, default=5000, show_default=True, help="Port; if it is taken, the next free one.")
def command(store: str, tracking_uri: str | None, port: int) -> None:
    """Serve the MLflow UI of a store on this machine (127.0.0.1) until Ctrl-C, and print the address of each sweep."""
    from mislabel.analysis.mlflow_view.view import default_uri, page_of
    from mislabel.sweeps.errors import MislabelError
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    uri = tracking_uri or default_uri(at)
    if uri is None:
        raise MislabelError(f"{store} is not a folder; give the address of its MLflow view with --mlflow URI")
    if uri.startswith("sqlite:///") and not os.path.exists(uri.removeprefix("sqlite:///")):
        raise MislabelError(f"no MLflow view in {store} yet; `mislabel run SPEC` or `mislabel sync` creates it")
    serve = not uri.startswith("http")
    server = f"http://127.0.0.1:{_free_port(port)}" if serve else uri.rstrip("/")
    options.say(f"MLflow UI: {server}" + ("  (Ctrl-C ends it)" if serve else ""))
    for name in at.names():
        if page := page_of(at.sweep(name)):
            options.say(f"  {name}: {server}/{page}")
    if serve:
        # One worker: MLflow's default of four takes a minute to start on a small machine.
        words = ["ui", "--host", "127.0.0.1", "--port", server.rsplit(":", 1)[1], "--workers", "1"]
        # All users can see command lines, and the address may contain a password.
        environment = {**os.environ, "MLFLOW_BACKEND_STORE_URI": uri, "PYTHONSAFEPATH": "1"}
        os.execve(sys.executable, [sys.executable, "-P", "-m", "mlflow", *words], environment)


def _free_port(wanted: int) -> int:
    for port in range(wanted, wanted + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    return wanted
