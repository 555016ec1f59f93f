"""A real cluster on this machine, on loopback ports, with its own state folder and store."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mislabel.cluster.head_state import Folder, State, read_state
from mislabel.cluster.jobs.client import Jobs
from mislabel.cluster.process import descendants, end
from mislabel.sweeps.process import Process
from mislabel.sweeps.store.store import Store
from tests.pace import VARIABLE, Pace

MISLABEL = str(Path(sys.executable).parent / "mislabel")
DRIFT = ("RAY_", "MLFLOW_", "MISLABEL_")


@dataclass(frozen=True)
class Head:
    """A cluster's head, and the folder that commands are called in."""

    folder: Folder
    work: Path

    @property
    def state(self) -> State:
        state = read_state(self.folder)
        assert state is not None
        return state

    @property
    def jobs(self) -> Jobs:
        return Jobs.of_folder(self.folder)

    def environment(self) -> dict[str, str]:
        plain = {name: value for name, value in os.environ.items() if not name.startswith(DRIFT)}
        return {**plain, "MISLABEL_CLUSTER_DIR": str(self.folder.path), VARIABLE: str(self.pace.path)}

    @property
    def pace(self) -> Pace:
        """The speed of the bowls on this cluster."""
        return Pace(self.work.parent / "pause")

    def mislabel(self, *words: str, code: int | None = 0, **environment: str) -> "subprocess.CompletedProcess[str]":
        """A command as it is typed on the head's machine."""
        done = subprocess.run(
            [MISLABEL, *words], cwd=self.work, env={**self.environment(), **environment}, capture_output=True,
            text=True, check=False, timeout=240,
        )  # fmt: skip
        assert code is None or done.returncode == code, done.stdout + done.stderr
        return done

    def client(self, *words: str, code: int | None = 0) -> "subprocess.CompletedProcess[str]":
        """A command as it is typed on a laptop that has the address and the token, and nothing else."""
        nothing = {"MISLABEL_CLUSTER_DIR": str(self.work / "nothing")}
        named = ["--cluster", self.state.jobs, "--token-file", str(self.folder.token)]
        return self.mislabel(*words, *named, code=code, **nothing)

    def write_spec(self, **values: Any) -> str:
        path = self.work / f"{values['name']}.yaml"
        path.write_text(yaml.safe_dump(values, sort_keys=False))
        return path.name

    def submit(self, *words: str) -> str:
        """Returns the job's id."""
        return self.mislabel("submit", *words).stdout.strip()

    def wait(self, job: str, seconds: float = 150) -> int | None:
        """Until the job has ended; returns its exit code."""
        until(lambda: self.jobs.get(job).ended, seconds, lambda: self.jobs.logs(job))
        return self.jobs.get(job).code

    def progress(self, sweep: str) -> dict[str, Any]:
        return Store(self.state.store).sweep(sweep).progress()


def until(holds: Callable[[], Any], seconds: float, otherwise: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {otherwise()}"
        time.sleep(0.2)


def title_of(process: Process) -> str:
    """The process's command line. Ray's actors put the names of their class and method there."""
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_text(errors="replace").replace("\0", " ").strip()
    except OSError:
        return ""


@contextmanager
def head(path: Path, *words: str) -> Iterator[Head]:
    """A cluster that is up in the body; whatever becomes of it, nothing of it is left afterwards."""
    (path / "work").mkdir(parents=True, exist_ok=True)
    made = Head(Folder(path / "head"), path / "work")
    family: list[Process] = []
    try:
        made.mislabel("cluster", "up", *words)
        family = list(made.state.processes.values())
        yield made
    finally:
        family += descendants(family)
        made.mislabel("cluster", "down", code=None)
        end(family, 5)
