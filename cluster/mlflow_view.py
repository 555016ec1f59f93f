"""Show sweeps in MLflow: an experiment per sweep, one parent run, and nested runs for its cells.

The store is the record; this is a view that one process writes from it, so it can be deleted and written again at any
time. Each nested run carries a digest of what it was made from, written last: a sync compares digests, writes what is
new, replaces what changed or was left unfinished, and deletes what the store no longer has.

Everything goes through MLflow's client with run ids, in batches: its fluent interface keeps an active run in hidden
global state, and a request per metric takes minutes where a batch takes a second. MLflow takes seconds to import, which
therefore happens in the functions that need it.
"""

import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cluster.mlflow_pages import Pages, Progress
from cluster.mlflow_runs import Results
from sweeps.errors import MislabelError
from sweeps.store import Store, SweepFiles

Say = Callable[[str], None]
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # 7 by default, with growing pauses: minutes where a server is dead
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def default_uri(store: Store) -> str | None:
    """A database in the store's folder; None where the store is not a folder, as SQLite needs one."""
    return None if store.folder is None else f"sqlite:///{store.folder}/mlflow.db"


def sync(files: SweepFiles, uri: str, final: bool = True, progress: Progress | None = None) -> int:
    """Make MLflow show what the store holds of the sweep; returns how many nested runs were written.

    A cell is shown once all its seeds have ended; `final` says that no more will come, and shows what there is.
    MislabelError where MLflow can't be reached or refuses.
    """
    return View(files, uri).sync(final, progress)


@contextmanager
def following(
    files: SweepFiles, uri: str | None, say: Say, every_seconds: float = 10.0, last_seconds: float = 60.0
) -> Iterator[None]:
    """Keep MLflow up to date while a sweep runs in the body; without a uri, do nothing.

    A thread does it, off the way of the training. Where MLflow fails it is said once, and tried again in silence; the
    last sync, when the body has ended, takes `last_seconds` at most.
    """
    if uri is None:
        yield
        return
    follower = _Follower(View(files, uri), say, every_seconds)
    follower.start()
    try:
        yield
    finally:
        follower.finish(last_seconds)


class _Follower(threading.Thread):
    """Syncs every few seconds until told to finish, then once more."""

    def __init__(self, view: "View", say: Say, every_seconds: float) -> None:
        super().__init__(name=f"mlflow-view-{view.files.name}", daemon=True)
        self._view = view
        self._say = say
        self._every_seconds = every_seconds
        self._over = threading.Event()
        self._given_up = threading.Event()
        self._complained = False
        self._complete = False

    def run(self) -> None:
        while not self._over.wait(self._every_seconds):
            self._sync(final=False)
        self._complete = self._sync(final=True)

    def finish(self, last_seconds: float) -> None:
        self._over.set()
        self.join(last_seconds)
        self._given_up.set()
        if not self._complete:
            name = self._view.files.name
            self._say(f"MLflow does not show all of {name} yet; `mislabel sync {name}` completes it")

    def _sync(self, final: bool) -> bool:
        try:
            self._view.sync(final, cancelled=self._given_up.is_set)
        except Exception as error:  # whatever it is, a view is not worth a sweep
            if not self._complained and not self._given_up.is_set():
                self._complained = True
                self._say(f"{error}; the sweep goes on without it, and its results are in {self._view.files.address}")
            return False
        return True


class View:
    """One sweep in MLflow, synced as often as wanted. Two processes should not write it at the same time."""

    def __init__(self, files: SweepFiles, uri: str) -> None:
        self.files = files
        self.uri = uri
        self._client: Any = None
        self._pages: Pages | None = None
        self._last: object = None

    def sync(self, final: bool, progress: Progress | None = None, cancelled: Callable[[], bool] = lambda: False) -> int:
        state = (final, self.files.parts("runs"), self.files.read_text("spec.yaml"))
        if self._last == state:
            return 0
        results = Results(self.files)
        try:
            with _as_mislabel_errors(self.uri):
                if self._client is None:
                    self._client = _connected(self.uri)
                if self._pages is None:
                    self._pages = Pages(self._client, self.files, self.uri)
                written = self._pages.update(results, final, progress, cancelled)
        except BaseException:
            self._pages = None  # what MLflow now holds has to be read again
            raise
        self._last = state
        return written


def _connected(uri: str) -> Any:
    """A client of MLflow, whose tables exist."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    with _quiet("mlflow.store.db.utils", "alembic"):
        client = MlflowClient(uri)
        client.search_experiments(max_results=1)
    return client


@contextmanager
def _quiet(*loggers: str) -> Iterator[None]:
    """Without the lines on every migration that making the tables goes through."""
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in loggers:
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _as_mislabel_errors(uri: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        shown = re.sub(r"//[^/@]*@", "//…@", uri)
        raise MislabelError(f"MLflow at {shown}: {_short(error)}") from error


def _short(error: BaseException) -> str:
    text = str(error)
    if "Max retries exceeded" in text or "Read timed out" in text:
        return "can't be reached"
    return text.splitlines()[0][:200] if text else type(error).__name__
