"""Lock: only one process at a time creates MLflow's tables.

Without it, several sweeps that start with an empty database would all create the tables, and all but one would fail:
MLflow's own lock comes too late for PostgreSQL.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mislabel.tasks.files import locked

# An arbitrary number that no other program locks in the same database.
_LOCK = 0x6D69736C


@contextmanager
def only_one(uri: str) -> Iterator[None]:
    """Hold the database's lock. An MLflow server needs none: it alone creates its tables."""
    if uri.startswith("postgresql"):
        from sqlalchemy import NullPool, create_engine, text

        # The lock lasts as long as the connection.
        with create_engine(uri, poolclass=NullPool).connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            yield
    elif uri.startswith("sqlite:///"):
        database = Path(uri.removeprefix("sqlite:///"))
        database.parent.mkdir(parents=True, exist_ok=True)
        with locked(database.with_name(f".{database.name}.lock")):
            yield
    else:
        yield
