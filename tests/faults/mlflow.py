"""MLflow is down, slow or refuses, or its database is locked, restarted or damaged while a sweep runs.

The sweep's tables are those of an undisturbed sweep, and `sync` then completes the view.
"""

import http.client
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from mislabel.analysis.mlflow_view.database import file_of
from mislabel.analysis.mlflow_view.view import View, following
from mislabel.cluster.address import Address, free_ports
from mislabel.cluster.head import mlflow_server
from mislabel.cluster.process import end, start
from mislabel.sweeps.run.launch import run_inline
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.analysis.mlflow_view.shown import client_of
from tests.analysis.mlflow_view.test_database import DAMAGES
from tests.bowls import CPU, curves_of, prepared, run, runs_of
from tests.cluster.heads import until
from tests.cluster.postgres import postgres
from tests.faults.suite import Case

MARKS = ("server",)
MISLABEL = str(Path(sys.executable).parent / "mislabel")
CELLS = 6
SWEEP: dict[str, Any] = {
    "name": "bowls", "parameters": {"x": {"values": [float(x) for x in range(CELLS)]}}, "resources": {"pack": 2},
}  # fmt: skip
SLOW_SECONDS = 5.0
# How long the view may delay the end of a sweep.
LAST_SECONDS = 10.0
DURING = "during a sweep"
Answer = Callable[[BaseHTTPRequestHandler], None]


def cases(full: bool) -> Iterator[Case]:
    for name in ("does not answer", "answers with 500", "answers with 403", "is slow", "hangs up")[: 5 if full else 2]:
        yield Case(f"MLflow {name}", DURING, partial(broken_server, name))
    yield Case("MLflow's database is locked", DURING, locked_database)
    yield Case("the process that writes the view is killed", DURING, killed_writer)
    for damage in DAMAGES if full else ["cut in half"]:
        yield Case("MLflow's database is damaged", damage, partial(damaged_database, damage))
    if full:
        yield Case("PostgreSQL restarts", DURING, restarted_postgres)


def broken_server(how: str, folder: Path) -> None:
    with mlflow_behind_proxy(folder) as (proxy, server):
        files = disturbed(folder, proxy.url, proxy.broken(how))
        assert shown(server) < CELLS, "the fault came too late"
        completed(files, server)


def locked_database(folder: Path) -> None:
    uri = f"sqlite:///{folder}/store/mlflow.db"

    @contextmanager
    def fault() -> Iterator[None]:
        with closing(sqlite3.connect(f"{folder}/store/mlflow.db", timeout=60)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            yield

    completed(disturbed(folder, uri, fault()), uri)


def killed_writer(folder: Path) -> None:
    uri = f"sqlite:///{folder}/store/mlflow.db"

    @contextmanager
    def fault() -> Iterator[None]:
        for child in psutil.Process().children():
            with suppress(psutil.ZombieProcess):
                if "mislabel.analysis.mlflow_view.follower" in child.cmdline():
                    child.kill()
        yield

    completed(disturbed(folder, uri, fault()), uri)


def damaged_database(damage: str, folder: Path) -> None:
    database = folder / "store" / "mlflow.db"

    @contextmanager
    def fault() -> Iterator[None]:
        DAMAGES[damage](database)
        yield

    disturbed(folder, f"sqlite:///{database}", fault())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_")}
    command = [MISLABEL, "sync", "--rebuild", "--store", str(folder / "store")]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    assert shown(f"sqlite:///{database}") == CELLS
    assert len(list(database.parent.glob("mlflow.db.set-aside-*"))) == 1


def restarted_postgres(folder: Path) -> None:
    with postgres() as server:

        @contextmanager
        def fault() -> Iterator[None]:
            server.stop()
            time.sleep(2)
            server.start()
            yield

        completed(disturbed(folder, server.uri, fault()), server.uri)


def disturbed(folder: Path, uri: str, fault: AbstractContextManager[None]) -> SweepFiles:
    """Run a sweep, and let the fault begin when a part of it is shown. Its tables must be complete afterwards."""
    launch = prepared(Store(str(folder / "store")), **SWEEP)
    began = False
    with ExitStack() as stack:

        def show() -> None:
            nonlocal began
            if not began and launch.driver.progress.done >= CELLS:
                until(lambda: shown(uri) > 0, 300)
                stack.enter_context(fault)
                began = True

        with following(launch.files, uri, every_seconds=0.2, last_seconds=LAST_SECONDS):
            run_inline(launch.driver, launch.files, CPU, show)
            launch.finish()
            ended = time.monotonic()
        assert time.monotonic() - ended < LAST_SECONDS + 10
    assert began
    undisturbed = run(Store(str(folder / "undisturbed")), **SWEEP).files
    pd.testing.assert_frame_equal(runs_of(launch.files), runs_of(undisturbed), check_exact=True)
    pd.testing.assert_frame_equal(curves_of(launch.files), curves_of(undisturbed), check_exact=True)
    return launch.files


def shown(uri: str) -> int:
    """The number of nested runs in MLflow. A SQLite database is read without MLflow, which keeps files open."""
    file = file_of(uri)
    if file is None:
        client = client_of(uri)
        experiment = client.get_experiment_by_name("bowls")
        runs = client.search_runs([experiment.experiment_id]) if experiment else []
        return len(
            [run for run in runs if "mislabel.digest" in run.data.tags and "mlflow.parentRunId" in run.data.tags]
        )
    if not file.exists():
        return 0
    query = (
        "SELECT count(DISTINCT runs.run_uuid) FROM runs JOIN tags a USING (run_uuid) JOIN tags b USING (run_uuid) "
        "WHERE a.key = 'mislabel.digest' AND b.key = 'mlflow.parentRunId' AND lifecycle_stage = 'active'"
    )
    with closing(sqlite3.connect(file, timeout=60)) as connection:
        return int(connection.execute(query).fetchone()[0])


def completed(files: SweepFiles, uri: str) -> None:
    """Sync, and check that the view then shows every cell once."""
    View(files, uri).sync()
    assert shown(uri) == CELLS
    assert View(files, uri).sync() == 0


class Proxy:
    """Passes requests on to an MLflow server, or does something worse."""

    def __init__(self, server: Address) -> None:
        self._server = server
        self._port = free_ports("127.0.0.1", 1)[0]
        self._answer: Answer = self._pass_on
        self.url = f"http://127.0.0.1:{self._port}"
        self._listen()

    def _listen(self) -> None:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _handle(self) -> None:
                proxy._answer(self)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _handle

            def log_message(self, format: str, *values: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """The client hung up."""

        self._http = Server(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _pass_on(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        with closing(http.client.HTTPConnection(self._server.host, self._server.port, timeout=60)) as connection:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "host"}
            connection.request(request.command, request.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            request.send_response(answer.status)
            request.send_header("Content-Type", answer.headers.get("Content-Type", "application/json"))
            request.send_header("Content-Length", str(len(content)))
            request.end_headers()
            request.wfile.write(content)

    def _slowly(self, request: BaseHTTPRequestHandler) -> None:
        time.sleep(SLOW_SECONDS)
        self._pass_on(request)

    @contextmanager
    def broken(self, how: str) -> Iterator[None]:
        def hang_up(request: BaseHTTPRequestHandler) -> None:
            request.connection.close()
            request.close_connection = True

        answers: dict[str, Answer] = {
            "answers with 500": lambda request: request.send_error(500),
            "answers with 403": lambda request: request.send_error(403),
            "is slow": self._slowly,
            "hangs up": hang_up,
        }
        self._answer = answers.get(how, hang_up)
        if how not in answers:
            self.close()
        yield
        self._answer = self._pass_on
        if how not in answers:
            self._listen()


@contextmanager
def mlflow_behind_proxy(folder: Path) -> Iterator[tuple[Proxy, str]]:
    address = Address("127.0.0.1", free_ports("127.0.0.1", 1)[0])
    storage = mlflow_server.environment(f"sqlite:///{folder}/mlflow.db", str(folder / "artifacts"))
    process = start(mlflow_server.command(address), {**os.environ, **storage}, folder / "log")
    try:
        until(lambda: mlflow_server.answers(address.url), 300, (folder / "log").read_text)
        with closing(Proxy(address)) as proxy:
            yield proxy, address.url
    finally:
        end([process], 10)
        shutil.rmtree(folder / "artifacts", ignore_errors=True)
