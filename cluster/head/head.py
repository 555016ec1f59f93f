"""Start and stop the servers of a cluster's head: Ray with its job server, and MLflow.

Both listen only on this machine unless a host is given. Ray requires a token, and MLflow a password: other users of
this machine can connect to its ports. Both secrets are created here, in files that only their owner can read.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mislabel.cluster.address import Address, free_ports
from mislabel.cluster.head import mlflow_server
from mislabel.cluster.head_state import Folder, State, read_state, versions
from mislabel.cluster.jobs.client import Jobs
from mislabel.cluster.private_folder import make_private_folder
from mislabel.cluster.process import descendants, end, start
from mislabel.cluster.queue.queue import Queue
from mislabel.cluster.ray_private import NO_METRICS
from mislabel.cluster.secret import make_secret
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.process import Process
from mislabel.sweeps.store.store import Store

Say = Callable[[str], None]
START_SECONDS = 180.0
# Servers and sweeps that have not ended after this time are killed.
END_SECONDS = 20.0
RAY = [sys.executable, "-P", "-m", "ray.scripts.scripts"]
"""Ray's command line."""
# Packs go through the store, so Ray transfers little data.
OBJECT_STORE_BYTES = 256 << 20
_POLL_SECONDS = 0.3
# How many lines of its log are shown for a server that did not start.
_LINES = 8


@dataclass(frozen=True)
class Wanted:
    """The options of `mislabel cluster up`."""

    host: str = "127.0.0.1"
    store: str = "results"
    mlflow_backend: str | None = None
    at_once: int = 2
    cpus: int | None = None
    gpus: int | None = None


def up(wanted: Wanted, folder: Folder, say: Say) -> State:
    """Start all servers or none; MislabelError if a cluster already runs here."""
    with folder.locked():
        _refuse_if_running(folder, say)
        state = _state(wanted)
        folder.clear()
        for path in (folder.queue, folder.jobs, folder.logs):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_secret(folder.token)
        try:
            state.processes["ray"] = _start_ray(wanted, state, folder)
            state.processes["mlflow"] = _start_mlflow(wanted, state, folder)
            state.write(folder)
            _wait(state, folder, say)
        except BaseException:
            say("stopping what was started")
            _end(state)
            folder.clear()
            raise
        return state


def _refuse_if_running(folder: Folder, say: Say) -> None:
    state = read_state(folder)
    if state is None:
        return
    if not state.dead():
        raise MislabelError(
            f"a cluster already runs on this machine, at {state.jobs}; `mislabel cluster status` shows it, "
            "`mislabel cluster down` stops it"
        )
    say(f"removing an earlier cluster ({', '.join(state.dead())} ended without `cluster down`)")
    _end(state)


def _state(wanted: Wanted) -> State:
    store = Store(wanted.store)
    store.prepare()
    ray, jobs, mlflow = (Address(wanted.host, port) for port in free_ports(wanted.host, 3))
    ray_folder = str(make_private_folder())  # not in the cluster's folder, whose path may be too long for sockets
    address = store.folder or store.address
    return State(wanted.host, str(ray), jobs.url, mlflow.url, address, wanted.at_once, ray_folder, versions())


def _start_ray(wanted: Wanted, state: State, folder: Folder) -> Process:
    ray, jobs = (Address.parse(address, "Ray") for address in (state.ray, state.jobs))
    client, agent = free_ports(wanted.host, 2)
    command = [
        *RAY, "start", "--head", "--block", "--disable-usage-stats",
        f"--node-ip-address={wanted.host}", f"--port={ray.port}", "--include-dashboard=true",
        f"--dashboard-host={wanted.host}", f"--dashboard-port={jobs.port}", f"--ray-client-server-port={client}",
        f"--dashboard-agent-listen-port={agent}",
        f"--temp-dir={state.ray_folder}/ray", f"--object-store-memory={OBJECT_STORE_BYTES}",
    ]  # fmt: skip
    for name, count in (("cpus", wanted.cpus), ("gpus", wanted.gpus)):
        command += [] if count is None else [f"--num-{name}={count}"]
    environment = {**_plain_environment(), **state.environment(folder), **NO_METRICS}
    # Jobs start `python -P -m mislabel.cluster.jobs.head_job`: this Python must come first.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    return start(command, environment, folder.logs / "ray.log")


def _plain_environment() -> dict[str, str]:
    """This process's environment without addresses of other clusters and without secrets."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_AUTH_", "MLFLOW_"))}
    return {name: value for name, value in own.items() if name not in ("RAY_ADDRESS", "MISLABEL_CLUSTER")}


def _start_mlflow(wanted: Wanted, state: State, folder: Folder) -> Process:
    address = Address.parse(state.mlflow, "MLflow")
    local = os.path.isdir(state.store)
    at = state.store if local else str(folder.path)
    backend = wanted.mlflow_backend or f"sqlite:///{at}/mlflow.db"
    path, _, _ = state.store.partition("?")  # MLflow can't read the options of an object store's address
    artifacts = f"{path.rstrip('/')}/mlartifacts"
    environment = {**_plain_environment(), **mlflow_server.environment(backend, artifacts)}
    environment |= mlflow_server.protection(folder)
    command = mlflow_server.command(address, protected=True)
    return start(command, environment, folder.logs / "mlflow.log")


def _wait(state: State, folder: Folder, say: Say) -> None:
    """Wait until both servers answer; MislabelError if one ends or takes too long."""
    say("starting Ray and MLflow …")
    jobs = Jobs.of_folder(folder)
    waiting = {"ray": jobs.is_ready, "mlflow": lambda: mlflow_server.answers(state.mlflow)}
    deadline = time.monotonic() + START_SECONDS
    while waiting:
        for name in state.dead():
            log = folder.logs / f"{name}.log"
            end_of_log = "\n  ".join([f"the end of {log}:", *last_lines(log)])
            raise MislabelError(f"{name} ended right after it started; {end_of_log}")
        if time.monotonic() > deadline:
            late = " and ".join(waiting)
            raise MislabelError(f"{late} did not answer within {START_SECONDS:g} s; see {folder.logs}")
        waiting = {name: ready for name, ready in waiting.items() if not ready()}
        time.sleep(_POLL_SECONDS)


def last_lines(log: Path) -> list[str]:
    """The last lines of a server's log that are not empty."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return [line for line in text.splitlines() if line.strip()][-_LINES:]


def down(folder: Folder, say: Say) -> bool:
    """Stop what `up` started, and nothing else. Return whether there was a cluster."""
    with folder.locked():
        state = read_state(folder)
        if state is None:
            return False
        tickets = Queue(folder.queue).tickets() if folder.queue.is_dir() else []
        if tickets:
            names = ", ".join(ticket.sweep for ticket in tickets)
            say(f"stopping {names}: saving checkpoints; submit them again to continue")
            end([ticket.process for ticket in tickets if ticket.process is not None], END_SECONDS)
        _end(state)
        folder.clear()
        return True


def _end(state: State) -> None:
    family = descendants(state.processes.values())
    end(state.processes.values(), END_SECONDS)
    # Processes that Ray left behind.
    end(family, END_SECONDS)
    shutil.rmtree(state.ray_folder, ignore_errors=True)
