"""The database behind MLflow, where several sweeps that start at once find it empty.

Each would make MLflow's tables, and all but one would fail: MLflow's own lock comes too late for PostgreSQL.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

# Any number that nobody else locks in the same database.
_LOCK = 0x6D69736C


@contextmanager
def only_one(uri: str) -> Iterator[None]:
    """Of all processes that use this database, only one at a time is in the body. A server sees to that by itself."""
    if uri.startswith("postgresql"):
        with _locked_database(uri):
            yield
    elif uri.startswith("sqlite:///"):
        with _locked_folder(os.path.dirname(uri.removeprefix("sqlite:///"))):
            yield
    else:
        yield


@contextmanager
def _locked_database(uri: str) -> Iterator[None]:
    from sqlalchemy import NullPool, create_engine, text

    with create_engine(uri, poolclass=NullPool).connect() as connection:  # the lock is held as long as this lasts
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
        yield


@contextmanager
def _locked_folder(folder: str) -> Iterator[None]:
    os.makedirs(folder, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
