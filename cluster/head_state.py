"""The state of the cluster that `mislabel cluster up` started on this machine, and the folder with its files.

<folder>/state.json      addresses, ports, processes, versions
<folder>/token           Ray's token; mlflow-password beside it. Only their owner can read them
<folder>/queue/…         tickets of running and waiting sweeps, see cluster.queue
<folder>/jobs/…          the submitted specs
<folder>/logs/…          the logs of the servers
"""

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from filelock import Timeout

from mislabel.cluster.address import Address
from mislabel.cluster.ray_private import LOOPBACK
from mislabel.cluster.secret import read_secret
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.process import Process
from mislabel.tasks.files import locked, write_atomically

FOLDER = "MISLABEL_CLUSTER_DIR"
_FORM = 1


class Folder:
    """The folder of a cluster's head."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = path / "state.json"
        self.token = path / "token"
        self.mlflow_password = path / "mlflow-password"
        self.queue = path / "queue"
        self.jobs = path / "jobs"
        self.logs = path / "logs"

    @classmethod
    def here(cls) -> "Folder":
        given = os.environ.get(FOLDER)
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        return cls(Path(given) if given else Path(home) / "mislabel" / "cluster")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process start or stop a cluster here in the meantime."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise MislabelError(f"{self.path}: other users can write here; protect it with chmod 700 {self.path}")
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.path / "lock", wait=False))
            except Timeout:
                raise MislabelError(f"{self.path}: another `mislabel cluster` is using it; wait for it") from None
            yield

    def clear(self) -> None:
        """Remove the files of a cluster that has ended; logs stay."""
        for name in ("state.json", "token", "mlflow-password", "mlflow-auth.ini", "mlflow-auth.db"):
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.queue, self.jobs):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class State:
    """A cluster's head."""

    host: str
    ray: str
    """Address of Ray, host:port, for drivers and nodes."""
    jobs: str
    """Address of the job server, http://host:port, for clients."""
    mlflow: str
    store: str
    at_once: int
    """How many sweeps run at once."""
    ray_folder: str
    """The folder with Ray's sessions, sockets and logs, which only its owner can enter. Its path must be short."""
    versions: dict[str, str] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def lives(self) -> bool:
        return any(process.lives for process in self.processes.values())

    @property
    def is_foreign(self) -> bool:
        """Whether it was not started by `mislabel cluster up`."""
        return not self.jobs

    @property
    def is_loopback(self) -> bool:
        return not self.is_foreign and Address.parse(self.jobs, "a job server").is_loopback

    def dead(self) -> list[str]:
        """Names of the servers that have ended."""
        return [name for name, process in self.processes.items() if not process.lives]

    def write(self, folder: Folder) -> None:
        write_atomically(folder.state, json.dumps({"form": _FORM, **asdict(self)}, indent=1).encode())

    def environment(self, folder: Folder) -> dict[str, str]:
        """Environment variables for processes of this machine that use the cluster. They contain no secret."""
        if self.is_foreign:
            return {}  # already set
        return {**ray_environment(folder.token, self.is_loopback), FOLDER: str(folder.path)}

    def mlflow_environment(self, folder: Folder) -> dict[str, str]:
        """Environment variables with the password for MLflow's client."""
        if not folder.mlflow_password.exists():
            return {}
        return {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": read_secret(folder.mlflow_password)}


def ray_environment(token: Path, loopback: bool) -> dict[str, str]:
    """Environment variables that make Ray require the token in this file."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    return {**own, **(LOOPBACK if loopback else {})}


def read_state(folder: Folder) -> State | None:
    """The cluster that was started here, running or not; None if there is none."""
    try:
        values: dict[str, Any] = json.loads(folder.state.read_text())
        if values.pop("form") != _FORM:
            raise MislabelError(
                f"{folder.state}: written by another version of Mislabel; stop the cluster with that version"
            )
        processes = {name: Process.from_json(process) for name, process in values.pop("processes").items()}
        return State(**values, processes=processes)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MislabelError(f"{folder.state}: is damaged; remove it when no cluster runs here") from None


def head_state(folder: Folder) -> State | None:
    """The cluster whose head is this machine, started by `cluster up` or otherwise.

    In a cluster that was started otherwise, the environment names the store, and Ray sets its address in jobs.
    """
    state = read_state(folder)
    store, ray = os.environ.get("MISLABEL_STORE"), os.environ.get("RAY_ADDRESS")
    if state is not None or not store or not ray:
        return state
    at_once = os.environ.get("MISLABEL_SWEEPS", "2")
    if not re.fullmatch(r"[1-9]\d{0,3}", at_once):
        raise MislabelError(f"MISLABEL_SWEEPS: {at_once!r} is not a number of sweeps from 1 to 9999")
    store = store if "://" in store else os.path.abspath(store)
    return State("", ray, "", os.environ.get("MLFLOW_TRACKING_URI", ""), store, int(at_once), "", versions())


def running_state(folder: Folder) -> State:
    """The cluster that runs here; MislabelError if there is none."""
    state = head_state(folder)
    if state is None or not (state.lives or state.is_foreign):
        raise MislabelError("no cluster runs on this machine; `mislabel cluster up` starts one")
    return state


def versions() -> dict[str, str]:
    """The versions that must be equal on all machines of a cluster."""
    return {"python": python_version(), "ray": version("ray"), "mislabel": version("mislabel")}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """The versions that differ. Ray requires equal versions; otherwise sweeps fail or give other results."""
    return [f"{name} {ours.get(name)}, not {theirs[name]}" for name in theirs if ours.get(name) != theirs[name]]
