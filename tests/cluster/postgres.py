"""A PostgreSQL on this machine that a test starts."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.objects import free_ports

PASSWORD = "of-this-test-alone"


@dataclass(frozen=True)
class Postgres:
    folder: Path
    port: int
    user: dict[str, Any]
    """How to start a process as the user of the server."""

    @property
    def uri(self) -> str:
        """The address of an empty database."""
        return f"postgresql://mislabel:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def call(self, *words: str | Path) -> None:
        command = [str(word) for word in words]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, **self.user)

    def start(self) -> None:
        settings = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c fsync=off"
        self.call("pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-o", settings, "-w", "start")

    def stop(self) -> None:
        """End it as a crash would."""
        self.call("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "stop")


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A server with an empty database. Skips the test where PostgreSQL is not installed."""
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("needs PostgreSQL: initdb and pg_ctl")
    user = _unprivileged()
    # Folders of tests are closed to other users; a socket's path may have no more than 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mislabel-postgres-"))
    try:
        server = Postgres(folder, free_ports(1)[0], user)
        (folder / "password").write_text(f"{PASSWORD}\n")
        if user:
            for path in (folder, folder / "password"):
                os.chown(path, user["user"], user["group"])
        words: list[str | Path] = ["-U", "mislabel", "-A", "scram-sha-256", "--pwfile", folder / "password", "-N"]
        server.call("initdb", "-D", folder / "data", *words)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


def _unprivileged() -> dict[str, Any]:
    """How to start PostgreSQL, which refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
    pytest.skip("needs a user other than root to run PostgreSQL as")
