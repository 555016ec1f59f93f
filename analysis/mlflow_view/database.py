"""MLflow's database: create its tables so that a crash leaves none half made, and move a damaged file aside.

MLflow needs seconds to create its tables, in some fifty migrations. If it is killed on the way, it can neither use the
database nor continue. So a SQLite file gets its name only when it is complete.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.redaction import redacted
from mislabel.tasks.files import locked

_SQLITE = "sqlite:///"
# SQLite keeps what is not committed yet beside a database.
_COMPANIONS = ("", "-journal", "-wal", "-shm")
# An arbitrary number that no other program locks in the same PostgreSQL database.
_LOCK = 0x6D69736C
# How SQLite and MLflow say that tables are missing, half made or of another version.
_WRONG_TABLES = ("out-of-date database schema", "no such table", "no such column", "already exists", "no column named")


class DamagedDatabaseError(MislabelError):
    """MLflow can't use its SQLite database."""


def file_of(uri: str) -> Path | None:
    """The file of a SQLite database; None if the address is of a server."""
    return Path(uri.removeprefix(_SQLITE).partition("?")[0]) if uri.startswith(_SQLITE) else None


@contextmanager
def only_one(uri: str) -> Iterator[None]:
    """Let one process at a time create MLflow's tables. An MLflow server needs no lock: it alone creates its tables.

    Several sweeps that start with an empty database would all create the tables, and all but one would fail: MLflow's
    own lock comes too late for PostgreSQL.
    """
    file = file_of(uri)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        with locked(file.with_name(f".{file.name}.lock")):
            yield
    elif uri.startswith("postgresql"):
        from sqlalchemy import NullPool, create_engine, text

        # The lock lasts as long as the connection.
        with create_engine(uri, poolclass=NullPool).connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            yield
    else:
        yield


def create(uri: str, make_tables: Callable[[str], object]) -> None:
    """Call the function with an address where it creates MLflow's tables; nothing happens if there is a database.

    Call this within `only_one`.
    """
    file = file_of(uri)
    if file is not None and file.is_dir():  # MLflow would try to open it for 100 seconds
        raise MislabelError(f"{file}: is a folder where MLflow's database should be; remove it, or use --mlflow")
    if file is None or file.exists():
        return
    unfinished = file.with_name(f".{file.name}.new")
    _remove(unfinished)  # of a process that was killed
    try:
        make_tables(f"{_SQLITE}{unfinished}")
        os.rename(unfinished, file)
    finally:
        _remove(unfinished)


@contextmanager
def forced_to_disk_at_the_end(uri: str) -> Iterator[None]:
    """Within the body, don't wait for the disk after every change of a SQLite database, but once at the end.

    MLflow makes four changes for each cell, and a disk needs milliseconds for each. A power cut meanwhile, or a crash
    of the operating system, can damage the database, so use this only for a database that can be written again. The end
    of a process damages nothing.
    """
    from sqlalchemy import Engine, event

    file = file_of(uri)
    if file is None:
        yield
        return

    def connected(connection: Any, _: object) -> None:
        # An error here looks like a server that does not answer, and MLflow repeats it for 100 seconds. MLflow itself
        # reports what is wrong with the file, or that it is locked.
        with suppress(sqlite3.Error):
            if isinstance(connection, sqlite3.Connection) and _path_of(connection) == os.path.realpath(file):
                connection.execute("PRAGMA busy_timeout = 0")
                with suppress(sqlite3.OperationalError):
                    connection.execute("PRAGMA synchronous = OFF")
                connection.execute("PRAGMA busy_timeout = 5000")

    event.listen(Engine, "connect", connected)
    try:
        yield
    finally:
        event.remove(Engine, "connect", connected)
        with suppress(FileNotFoundError), file.open("rb") as opened:
            os.fsync(opened.fileno())


def _path_of(connection: sqlite3.Connection) -> str:
    paths = [str(path) for _, name, path in connection.execute("PRAGMA database_list") if name == "main"]
    return os.path.realpath(paths[0])


def _remove(file: Path) -> None:
    for end in _COMPANIONS:
        file.with_name(file.name + end).unlink(missing_ok=True)


def is_damaged(uri: str, error: BaseException) -> bool:
    """Whether this error of MLflow means that its SQLite database must be written again.

    A database that is locked, or on a full or read-only disk, is not damaged.
    """
    file = file_of(uri)
    if file is None or not file.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            sound = connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.OperationalError:
        return False
    except sqlite3.DatabaseError:
        return True
    texts = [str(error), str(error.__cause__), str(error.__context__)]
    return not sound or any(wrong in text for wrong in _WRONG_TABLES for text in texts)


def set_aside(uri: str) -> Path | None:
    """Give a SQLite database another name, so that a new one can be written; returns its new path.

    None if there is no database yet. MislabelError if a process uses it, or if it is a server's: other programs may
    have data there.
    """
    file = file_of(uri)
    if file is None:
        _refuse_server(uri)
        return None
    with only_one(uri):
        if not file.exists():
            return None
        if users := _users_of(file):
            raise MislabelError(
                f"{file}: in use by {', '.join(users)}; end that first, then run the same command again"
            )
        aside = file.with_name(f"{file.name}.set-aside-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
        for end in _COMPANIONS[::-1]:
            with suppress(FileNotFoundError):
                os.rename(file.with_name(file.name + end), aside.with_name(aside.name + end))
        return aside


def _refuse_server(uri: str) -> None:
    if uri.startswith("http"):
        raise MislabelError(
            redacted(f"MLflow at {uri} is a server: stop it, and run `mislabel sync --rebuild --mlflow URI` with ")
            + "the address of its database"
        )
    from sqlalchemy import NullPool, create_engine, inspect
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with create_engine(uri, poolclass=NullPool).connect() as connection:
            tables = inspect(connection).get_table_names()
    except SQLAlchemyError as error:
        raise MislabelError(redacted(f"MLflow at {uri}: {next(iter(str(error).splitlines()))}")) from error
    if tables:
        raise MislabelError(
            redacted(f"MLflow at {uri}: has {len(tables)} tables, and Mislabel moves no tables of a database server; ")
            + "create an empty database, set MLFLOW_TRACKING_URI to its address, and run `mislabel sync`"
        )


def _users_of(file: Path) -> list[str]:
    """The other processes that have opened the file, as far as this user can see."""
    users = []
    for process in psutil.process_iter(["pid", "name"]):
        with suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and any(
                os.path.samefile(opened.path, file) for opened in process.open_files()
            ):
                users.append(f"process {process.pid} ({process.info['name']})")
    return users
