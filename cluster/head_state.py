"""What `mislabel cluster up` started on this machine, in one file, and the folder that holds it and its secrets.

<folder>/state.json      addresses, ports, processes with the time of their start, versions
<folder>/token           Ray's token; mlflow-password beside it: both for their owner alone
<folder>/queue/…         tickets of sweeps that run or wait, see cluster.queue
<folder>/jobs/…          the specs that were sent
<folder>/logs/…          what the servers say
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from filelock import Timeout

from mislabel.cluster.address import Address
from mislabel.cluster.process import Process
from mislabel.cluster.ray_private import LOOPBACK
from mislabel.cluster.secret import read_secret
from mislabel.sweeps.errors import MislabelError
from mislabel.tasks.files import locked, write_atomically

FOLDER = "MISLABEL_CLUSTER_DIR"
_FORM = 1


@dataclass(frozen=True)
class Folder:
    """Where everything of a cluster's head is."""

    path: Path

    @classmethod
    def here(cls) -> "Folder":
        given = os.environ.get(FOLDER)
        home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        return cls(Path(given) if given else Path(home) / "mislabel" / "cluster")

    @property
    def state(self) -> Path:
        return self.path / "state.json"

    @property
    def token(self) -> Path:
        return self.path / "token"

    @property
    def mlflow_password(self) -> Path:
        return self.path / "mlflow-password"

    @property
    def queue(self) -> Path:
        return self.path / "queue"

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Let no other process start or end a cluster here meanwhile."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as held:
            try:
                held.enter_context(locked(self.path / "lock", wait=False))
            except Timeout:
                raise MislabelError(f"{self.path}: another `mislabel cluster` is using it; wait for it") from None
            yield

    def clear(self) -> None:
        """Remove what belonged to a cluster that is gone; logs stay."""
        for name in ("state.json", "token", "mlflow-password", "mlflow-auth.ini", "mlflow-auth.db"):
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.queue, self.jobs):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class State:
    """A cluster's head as it was started."""

    host: str
    ray: str
    """Address of Ray's own server, host:port: what drivers and nodes connect to."""
    jobs: str
    """Address of the job server, http://host:port: what clients connect to."""
    mlflow: str
    store: str
    at_once: int
    """How many sweeps run at once."""
    ray_folder: str
    """Sessions, sockets and logs of Ray; its path must be short."""
    versions: dict[str, str] = field(default_factory=dict)
    processes: dict[str, Process] = field(default_factory=dict)

    @property
    def lives(self) -> bool:
        return any(process.lives for process in self.processes.values())

    @property
    def is_foreign(self) -> bool:
        """Whether it was started by other means than ours."""
        return not self.jobs

    @property
    def is_loopback(self) -> bool:
        return not self.is_foreign and Address.parse(self.jobs, "a job server").is_loopback

    def dead(self) -> list[str]:
        """What was started and is no more."""
        return [name for name, process in self.processes.items() if not process.lives]

    def write(self, folder: Folder) -> None:
        values = {"form": _FORM, **asdict(self)}
        write_atomically(folder.state, json.dumps(values, indent=1).encode())

    def environment(self, folder: Folder) -> dict[str, str]:
        """What a process of this machine has in its environment to belong to the cluster; no secret is in it."""
        if self.is_foreign:
            return {}  # it is there already
        return {**ray_environment(folder.token, self.is_loopback), FOLDER: str(folder.path)}

    def mlflow_environment(self, folder: Folder) -> dict[str, str]:
        """What MLflow's client has in its environment to be let in."""
        if not folder.mlflow_password.exists():
            return {}
        return {"MLFLOW_TRACKING_USERNAME": "admin", "MLFLOW_TRACKING_PASSWORD": read_secret(folder.mlflow_password)}


def ray_environment(token: Path, loopback: bool) -> dict[str, str]:
    """How Ray's processes are told that a token is asked for, and where it is."""
    own = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
    return {**own, **(LOOPBACK if loopback else {})}


def read_state(folder: Folder) -> State | None:
    """The cluster that was started here, alive or not; None where none was."""
    try:
        values: dict[str, Any] = json.loads(folder.state.read_text())
        if values.pop("form") != _FORM:
            raise MislabelError(f"{folder.state}: written by another version of Mislabel; end its cluster with that")
        processes = {name: Process.from_json(process) for name, process in values.pop("processes").items()}
        return State(**values, processes=processes)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise MislabelError(f"{folder.state}: is damaged; remove it once no cluster runs here") from None


def head_state(folder: Folder) -> State | None:
    """The cluster whose head this machine is: started by `cluster up`, or by other means.

    A head that was started by other means says in its environment where its store is; Ray tells its jobs where it is.
    """
    state = read_state(folder)
    store, ray = os.environ.get("MISLABEL_STORE"), os.environ.get("RAY_ADDRESS")
    if state is not None or not store or not ray:
        return state
    at_once = os.environ.get("MISLABEL_SWEEPS", "2")
    if not re.fullmatch(r"[1-9]\d{0,3}", at_once):
        raise MislabelError(f"MISLABEL_SWEEPS: {at_once!r} is not a number of sweeps that run at once")
    store = store if "://" in store else os.path.abspath(store)
    return State("", ray, "", os.environ.get("MLFLOW_TRACKING_URI", ""), store, int(at_once), "", versions())


def running_state(folder: Folder) -> State:
    """The cluster that runs here; MislabelError where none does."""
    state = head_state(folder)
    if state is None or not (state.lives or state.is_foreign):
        raise MislabelError("no cluster runs on this machine; `mislabel cluster up` starts one")
    return state


def versions() -> dict[str, str]:
    """What must agree between the machines of a cluster."""
    return {"python": python_version(), "ray": version("ray"), "mislabel": version("mislabel")}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    """Where versions differ so that a sweep would fail or come out otherwise: Ray asks for equal ones."""
    return [f"{name} {ours.get(name)}, not {theirs[name]}" for name in theirs if ours.get(name) != theirs[name]]
