"""Add this machine to a cluster: run Ray's node as long as we are asked to, and start it again where it was cut off.

A node that its head has not heard of for a while is declared dead, and ends itself when it hears of that. The machine
is still there, so it comes back as a new node.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mislabel.cluster.head.head import END_SECONDS, OBJECT_STORE_BYTES
from mislabel.cluster.head_state import differences, ray_environment, versions
from mislabel.cluster.jobs.client import Jobs
from mislabel.cluster.jobs.remote_command import facts
from mislabel.cluster.process import Process, end
from mislabel.sweeps.errors import ExitCode, MislabelError

Say = Callable[[str], None]
_POLL_SECONDS = 0.5
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
# A node that has lived for so long was not turned away.
_SETTLED_SECONDS = 60.0
# How often in a row a node may be turned away before we say what is wrong.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Joining:
    """What this machine brings; None lets Ray count."""

    cpus: int | None = None
    gpus: int | None = None
    host: str | None = None
    """Under which address the others reach this machine; None lets Ray find out."""


def join(jobs: Jobs, token: Path, joining: Joining, say: Say) -> int:
    """Be a node of the cluster until Ctrl-C or a polite kill; MislabelError where versions differ."""
    if jobs.address.is_loopback:
        raise MislabelError(
            f"{jobs.address.url} is a cluster that only its own machine can reach; "
            "`mislabel cluster up --host` with an address that others can reach starts one that can be joined"
        )
    told = facts(jobs)
    other = differences(versions(), told["versions"])
    if other:
        raise MislabelError(f"this machine can't join {jobs.address.url}: it has {'; '.join(other)}. Install the same")
    return _Membership(jobs, told["ray"], token, joining, say).keep()


class _Membership:
    def __init__(self, jobs: Jobs, ray: str, token: Path, joining: Joining, say: Say) -> None:
        self._jobs = jobs
        self._ray = ray
        self._joining = joining
        self._say = say
        self._leaving = False
        self._environment = {**os.environ, **ray_environment(token.absolute(), loopback=False)}
        self._environment.pop("RAY_ADDRESS", None)

    def keep(self) -> int:
        before = {number: signal.signal(number, self._leave) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with tempfile.TemporaryDirectory(prefix="mislabel-", dir="/tmp", ignore_cleanup_errors=True) as folder:
                self._keep(folder)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self._say("left the cluster")
        return ExitCode.DONE

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._leaving = True

    def _keep(self, folder: str) -> None:
        turned_away = 0
        while not self._leaving:
            self._wait_for_head()
            if self._leaving:
                return
            began = time.monotonic()
            self._say(f"joining {self._ray}; Ctrl-C leaves")
            log = Path(folder) / "node.log"
            self._live(folder, log)
            if self._leaving:
                return
            turned_away = 0 if time.monotonic() - began > _SETTLED_SECONDS else turned_away + 1
            if turned_away >= _ATTEMPTS:
                raise MislabelError(f"Ray's node ended {turned_away} times right after its start: {_last_line(log)}")
            self._say("cut off from the cluster: its head took this machine for dead, or went away; coming back")
            self._pause(min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2**turned_away))

    def _wait_for_head(self) -> None:
        said = False
        while not self._leaving:
            try:
                self._jobs.check()
            except MislabelError as error:
                if not error.retry:
                    raise
                if not said:
                    self._say(f"{error} Waiting for it")
                    said = True
                self._pause(_SHORTEST_PAUSE)
            else:
                return

    def _live(self, folder: str, log: Path) -> None:
        """Run the node until it ends or we leave."""
        command = [
            str(Path(sys.executable).with_name("ray")), "start", "--block", f"--address={self._ray}",
            "--disable-usage-stats", f"--temp-dir={folder}", f"--object-store-memory={OBJECT_STORE_BYTES}",
        ]  # fmt: skip
        given = {"num-cpus": self._joining.cpus, "num-gpus": self._joining.gpus, "node-ip-address": self._joining.host}
        command += [f"--{name}={value}" for name, value in given.items() if value is not None]
        with log.open("wb") as output:
            # In a session of its own: Ctrl-C is for us, who then end it in good order.
            child = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, cwd=folder,
            )  # fmt: skip
        node = Process.of(child.pid)
        while child.poll() is None and not self._leaving:
            time.sleep(_POLL_SECONDS)
        # Where it has ended by itself, too: it may have left others behind.
        end([node] if node else [], END_SECONDS)
        child.wait()

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._leaving and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
