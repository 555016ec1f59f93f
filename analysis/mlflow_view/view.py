"""Show sweeps in MLflow: an experiment per sweep, one parent run, and nested runs for its cells.

The store is the record. This is a view that one process writes from it, so it can be deleted and written again at any
time. Each nested run has a digest of what it was made from as a tag, which is written last. A sync compares digests:
it writes what is new, replaces what has changed or is unfinished, and deletes what the store no longer has.

All requests use MLflow's client with run ids, in batches. Its fluent interface keeps the active run in hidden global
state, and a request per metric takes minutes where a batch takes a second. MLflow takes seconds to import, so the
functions that need it import it.
"""

import logging
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mislabel.analysis.mlflow_view.artifacts import making
from mislabel.analysis.mlflow_view.database import (
    DamagedDatabaseError,
    create,
    file_of,
    forced_to_disk_at_the_end,
    is_damaged,
    only_one,
)
from mislabel.analysis.mlflow_view.pages import Pages, Progress
from mislabel.analysis.mlflow_view.removed import remove_absent
from mislabel.analysis.mlflow_view.results import FORM, Results, digest_of
from mislabel.analysis.mlflow_view.saved_view import EXPERIMENTS, MIGRATION_LOGGERS, address
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.redaction import has_secret, redacted
from mislabel.sweeps.store.store import Store, SweepFiles

_log = logging.getLogger(__name__)
# What the last complete sync wrote.
_SHOWN = "mlflow.json"
_SHOWN_SHAPE = TypeAdapter(dict[str, str])
# How long the end of a sweep waits for MLflow before it says so, and how long it waits after an error or Ctrl-C.
_SILENT_SECONDS = 3.0
_AFTER_ERROR_SECONDS = 10.0
DAMAGED = 3
"""The follower's exit code if MLflow can't use its database."""
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # the default is 7, with growing pauses: minutes if the server is down
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def default_uri(store: Store) -> str | None:
    """A SQLite database in the store's folder; None if the store is not a folder."""
    return None if store.folder is None else f"sqlite:///{store.folder}/mlflow.db"


def page_of(files: SweepFiles) -> str | None:
    """The address of the sweep's table of cells, relative to the server's; None before the first sync."""
    shown = files.read_value(_SHOWN, _SHOWN_SHAPE) or {}
    return address(shown["experiment"]) if "experiment" in shown else None


def newest_page(store: Store) -> tuple[str, str] | None:
    """The sweep that was launched last, of those that MLflow shows, and the address of its page; None if there is none.

    The address is relative to the server's.
    """
    found = []
    for name in store.names():
        files = store.sweep(name)
        if page := page_of(files):
            launches = files.names("launches")
            found.append((launches[-1] if launches else "", name, page))
    return max(found)[1:] if found else None


def start_page(store: Store) -> str:
    """Where to start: the table of cells of the newest sweep, or the list of sweeps. MLflow's root shows neither."""
    newest = newest_page(store)
    return newest[1] if newest else EXPERIMENTS


def remove_absent_sweeps(store: Store, uri: str) -> list[str]:
    """Remove sweeps from MLflow that the store no longer has; returns their names."""
    with _environment(), as_mislabel_errors(uri):
        return remove_absent(_client_of(uri), store)


@contextmanager
def following(
    files: SweepFiles, uri: str | None, every_seconds: float = 4.0, last_seconds: float = 60.0
) -> Iterator[None]:
    """Keep MLflow up to date while a sweep runs in the body. Without a uri, do nothing.

    The first failure of MLflow is reported; later ones are retried silently. The last sync, after the body, takes at
    most `last_seconds`.
    """
    if uri is None:
        yield
        return
    follower = _Follower(View(files, uri), every_seconds)
    try:
        yield
        follower.finish(last_seconds)
    except BaseException:
        follower.finish(min(last_seconds, _AFTER_ERROR_SECONDS))
        raise
    finally:
        follower.end()


class _Follower:
    """The process that writes the view of a running sweep; see `mislabel.analysis.mlflow_view.follower`.

    A thread would not do. MLflow is pure Python: while it writes, training in this process, or Ray Tune's loop, would
    get the interpreter a quarter of the time.
    """

    def __init__(self, view: "View", every_seconds: float) -> None:
        self._view = view
        files = view.files
        command = [sys.executable, "-P", "-m", "mislabel.analysis.mlflow_view.follower"]
        self._process = subprocess.Popen(
            [*command, files.store, files.name, str(every_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            # All users of a machine can see command lines, and the address may contain a password.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MLFLOW_TRACKING_URI": view.uri},
            start_new_session=True,  # Ctrl-C must reach the sweep only
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            _log.warning(line.strip())

    def finish(self, last_seconds: float) -> None:
        """Give it this long to write the rest."""
        if self._view.is_complete():
            return
        name = self._view.files.name
        silent_seconds = min(last_seconds, _SILENT_SECONDS)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.write("final\n")
            self._process.stdin.flush()
        if not self._ends_within(silent_seconds) and silent_seconds < last_seconds:
            _log.info("writing the rest of %s to MLflow", name)
        ended = self._ends_within(last_seconds - silent_seconds)
        if not ended or self._process.returncode not in (0, DAMAGED):  # it has reported damage itself
            _log.warning("MLflow does not show all of %s yet; `%s` completes it", name, self._view.command(name))

    def _ends_within(self, seconds: float) -> bool:
        try:
            self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> None:
        """Kill it. The next sync replaces what it leaves unfinished."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()


class View:
    """One sweep in MLflow, which can be synced repeatedly. Only one process should write it at a time."""

    def __init__(self, files: SweepFiles, uri: str) -> None:
        self.files = files
        self.uri = uri
        self._client: Any = None
        self._pages: Pages | None = None
        self._last = ""

    def is_complete(self) -> bool:
        """Whether the sweep has been synced completely, according to the store. MLflow is not asked."""
        database = file_of(self.uri)
        lost = database is not None and not database.exists()
        return not lost and (self.files.read_value(_SHOWN, _SHOWN_SHAPE) or {}).get("state") == self._state(final=True)

    def _state(self, final: bool) -> str:
        running = self.files.running()
        steps = [running[name].to_pylist() for name in ("run_id", "trained_steps")] if running.num_rows else []
        spec = self.files.read_text("spec.yaml")
        return digest_of([FORM, self.uri, final, self.files.parts("runs"), steps, spec])

    def sync(
        self, final: bool = True, progress: Progress | None = None, cancelled: Callable[[], bool] = lambda: False,
        report: bool = False,
    ) -> int:  # fmt: skip
        """Make MLflow show the sweep as it is in the store; returns the number of nested runs written.

        `final` means that no run trains any more. Otherwise cells are open until all their seeds have ended.
        `report` makes the sweep's report and figures, unless MLflow has them: the end of a sweep needs them once.
        Can be cancelled between two nested runs. Raises MislabelError if MLflow can't be reached or refuses, and
        DamagedDatabaseError if its database must be written again.
        """
        state = self._state(final)
        if self._last == state:
            return 0
        results = Results(self.files)
        try:
            with _environment(), as_mislabel_errors(self.uri, self.command("--rebuild")), self._fast():
                if self._client is None:
                    with only_one(self.uri), _quiet(*MIGRATION_LOGGERS):
                        create(self.uri, _client_of)
                        self._client = _client_of(self.uri)
                if self._pages is None:
                    self._pages = Pages(self._client, self.files, self.uri)
                with making(self.files) if report and self._pages.reported != state else nullcontext() as artifacts:
                    written = self._pages.update(results, final, progress, cancelled)
                    if artifacts is not None and artifacts.are_made(cancelled):
                        self._pages.add_report(results, artifacts, state)
        except BaseException:
            self._pages = None  # MLflow's contents must be read again
            raise
        self._last = state
        shown = {"state": state if final else "", "experiment": self._pages.experiment}
        if self.files.read_value(_SHOWN, _SHOWN_SHAPE) != shown:
            self.files.write_json(_SHOWN, shown)
        return written

    def _fast(self) -> AbstractContextManager[None]:
        """The store's own database can be written again. Another one may have runs of other programs."""
        return forced_to_disk_at_the_end(self.uri) if self._is_own() else nullcontext()

    def _is_own(self) -> bool:
        store = self.files.store
        return "://" not in store and file_of(self.uri) == Path(os.path.abspath(store), "mlflow.db")

    def command(self, *words: str) -> str:
        """The command that syncs this store and database."""
        store = self.files.store
        named = [] if store == "results" else ["--store", store]
        named += [] if self._is_own() or has_secret(self.uri) else ["--mlflow", self.uri]
        return shlex.join(["mislabel", "sync", *words, *named])


@contextmanager
def as_mislabel_errors(uri: str, rebuild: str = "mislabel sync --rebuild") -> Iterator[None]:
    """Raise MislabelError for errors of MLflow at this address. `rebuild` is the command that rebuilds its database."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except MislabelError:
        raise
    except ModuleNotFoundError as error:  # SQLAlchemy imports the driver that the address names
        raise MislabelError(redacted(f"MLflow at {uri}: {error}; pip install 'mislabel[postgres]'")) from error
    except Exception as error:
        text = redacted(f"MLflow at {uri}: {_short(error)}")
        if is_damaged(uri, error):
            advice = f"`{rebuild}` moves the database aside and writes a new one"
            raise DamagedDatabaseError(f"{text}; {advice}") from error
        if isinstance(error, MlflowException | SQLAlchemyError | OSError):
            raise MislabelError(text) from error
        raise


def _client_of(uri: str) -> Any:
    """A client of MLflow. MLflow's tables are created if there are none."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    client.search_experiments(max_results=1)
    return client


@contextmanager
def _environment() -> Iterator[None]:
    """Set MLflow's variables, unless the user has, and restore the environment afterwards."""
    added = {name: value for name, value in _ENVIRONMENT.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """Log only warnings and errors of these loggers."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _short(error: BaseException) -> str:
    text = str(error)
    if "Max retries exceeded" in text or "Read timed out" in text:
        return "can't be reached"
    text = text.partition(". Response body: ")[0]  # of a server that refuses
    lines = [line for line in text.splitlines() if "Query-invoked autoflush" not in line]
    return lines[0][:200] if lines else type(error).__name__
