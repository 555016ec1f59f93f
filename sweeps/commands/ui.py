"""`mislabel ui`: open the MLflow UI on a store."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click

from mislabel.sweeps.commands import options

_POLL_SECONDS = 0.2


@click.command()
@options.store
@options.mlflow
@click.option("--port", type=int, default=5000, show_default=True, help="Port; if it is taken, the next free one.")
@click.option("--no-browser", is_flag=True, help="Open no browser. None is opened anyway without a screen.")
def command(store: str, tracking_uri: str | None, port: int, no_browser: bool) -> int:
    """Serve the MLflow UI of a store on this machine (127.0.0.1) until Ctrl-C, and open the newest sweep in a browser.

    The command prints the address of the table of cells of each sweep. MLflow's own start page does not show them.
    """
    from mislabel.analysis.mlflow_view.view import default_uri, newest_page, page_of, start_page
    from mislabel.sweeps.errors import MislabelError
    from mislabel.sweeps.store.store import Store

    at = Store(store)
    uri = tracking_uri or default_uri(at)
    if uri is None:
        raise MislabelError(f"{store} is not a folder; give the address of its MLflow view with --mlflow URI")
    if uri.startswith("sqlite:///") and not os.path.exists(uri.removeprefix("sqlite:///")):
        raise MislabelError(f"no MLflow view in {store} yet; `mislabel run SPEC` or `mislabel sync` creates it")
    serve = not uri.startswith("http")
    address = f"http://127.0.0.1:{_free_port(port)}" if serve else uri.rstrip("/")
    pages = {name: page for name in at.names() if (page := page_of(at.sweep(name)))}
    newest = newest_page(at)
    with _serving(address, uri) if serve else _served() as server:
        _wait(address, server)
        options.say_page("MLflow UI: ", address, start_page(at), "  (Ctrl-C ends it)" if serve else "")
        for name, page in pages.items():
            if newest is not None and name != newest[0]:
                options.say_page(f"  {name}: ", address, page)
        if not no_browser and _has_screen():
            import webbrowser

            webbrowser.open(f"{address}/{start_page(at)}")
        if server is None:
            return 0
        server.wait()
    raise MislabelError(f"the MLflow server has ended with exit code {server.returncode}")


@contextmanager
def _served() -> Iterator[None]:
    """Another process serves MLflow."""
    yield None


@contextmanager
def _serving(address: str, uri: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run an MLflow server, and end it with this process."""
    # One worker: MLflow's default of four takes a minute to start on a small machine.
    words = ["ui", "--host", "127.0.0.1", "--port", address.rsplit(":", 1)[1], "--workers", "1"]
    # All users can see command lines, and the address may contain a password.
    environment = {
        **os.environ,
        "MLFLOW_BACKEND_STORE_URI": uri,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONSAFEPATH": "1",
    }
    server = subprocess.Popen([sys.executable, "-P", "-m", "mlflow", *words], env=environment, start_new_session=True)

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield server
    finally:
        # The server has processes of its own.
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(server.pid, sign)
                server.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        signal.signal(signal.SIGTERM, before)


def _wait(address: str, server: "subprocess.Popen[bytes] | None") -> None:
    """Return when the server answers."""
    from mislabel.cluster.head.mlflow_server import answers
    from mislabel.sweeps.errors import MislabelError

    if server is None:
        return
    options.say("starting MLflow …")
    while not answers(address):
        if server.poll() is not None:
            raise MislabelError(f"the MLflow server has ended with exit code {server.returncode}")
        time.sleep(_POLL_SECONDS)


def _has_screen() -> bool:
    """Whether a person is at this terminal, and a browser can open a window."""
    return sys.stderr.isatty() and (
        sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())
    )


def _free_port(wanted: int) -> int:
    for port in range(wanted, wanted + 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    return wanted
