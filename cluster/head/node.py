"""Add this machine to a cluster: run a Ray node until the user stops it, and restart it after a lost connection.

A head declares a node dead if it does not hear from it for a while, and the node then ends itself. The machine still
works, so it joins again as a new node.
"""

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from mislabel.cluster.head.head import END_SECONDS, OBJECT_STORE_BYTES, RAY, Say, last_lines
from mislabel.cluster.head_state import differences, ray_environment, versions
from mislabel.cluster.jobs.client import Jobs
from mislabel.cluster.jobs.remote_command import facts
from mislabel.cluster.private_folder import SHORT, private_folder
from mislabel.cluster.process import end
from mislabel.cluster.ray_private import NO_METRICS
from mislabel.sweeps.errors import ExitCode, MislabelError
from mislabel.sweeps.process import Process

_POLL_SECONDS = 0.5
_SHORTEST_PAUSE, _LONGEST_PAUSE = 2.0, 30.0
# A node that ran for this long was accepted by the head.
_SETTLED_SECONDS = 60.0
# Give up after the head has rejected the node this many times in a row.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Joining:
    """The resources of this machine. None: Ray counts them."""

    cpus: int | None = None
    gpus: int | None = None
    host: str | None = None
    """The address at which others reach this machine. None: Ray finds it."""


def join(jobs: Jobs, token: Path, joining: Joining, say: Say) -> int:
    """Be a node of the cluster until Ctrl-C or SIGTERM; MislabelError if versions differ."""
    if jobs.address.is_loopback:
        raise MislabelError(
            f"{jobs.address.url} can only be reached from its own machine; "
            "start the cluster with `mislabel cluster up --host` and an address that others can reach"
        )
    head = facts(jobs)
    other = differences(versions(), head["versions"])
    if other:
        raise MislabelError(
            f"this machine can't join {jobs.address.url}: it has {'; '.join(other)}; install the same versions"
        )
    return _Membership(jobs, head["ray"], token, joining, say).keep()


class _Membership:
    def __init__(self, jobs: Jobs, ray: str, token: Path, joining: Joining, say: Say) -> None:
        self._jobs = jobs
        self._ray = ray
        self._joining = joining
        self._say = say
        self._leaving = False
        self._environment = {**os.environ, **ray_environment(token.absolute(), loopback=False), **NO_METRICS}
        self._environment.pop("RAY_ADDRESS", None)

    def keep(self) -> int:
        before = {number: signal.signal(number, self._leave) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            with private_folder(SHORT) as folder:
                self._keep(folder)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        self._say("left the cluster")
        return ExitCode.DONE

    def _leave(self, number: int, frame: FrameType | None) -> None:
        self._leaving = True

    def _keep(self, folder: Path) -> None:
        rejections = 0
        while not self._leaving:
            self._wait_for_head()
            if self._leaving:
                return
            began = time.monotonic()
            self._say(f"joining {self._ray}; Ctrl-C leaves")
            log = folder / "node.log"
            self._live(folder, log)
            if self._leaving:
                return
            rejections = 0 if time.monotonic() - began > _SETTLED_SECONDS else rejections + 1
            if rejections >= _ATTEMPTS:
                said = next(reversed(last_lines(log)), "it printed nothing")
                raise MislabelError(f"Ray's node ended {rejections} times right after it started: {said}")
            self._say("lost the connection to the cluster; joining again")
            self._pause(min(_LONGEST_PAUSE, _SHORTEST_PAUSE * 2**rejections))

    def _wait_for_head(self) -> None:
        said = False
        while not self._leaving:
            try:
                self._jobs.check()
            except MislabelError as error:
                if not error.retry:
                    raise
                if not said:
                    self._say(f"{error}; waiting for it")
                    said = True
                self._pause(_SHORTEST_PAUSE)
            else:
                return

    def _live(self, folder: Path, log: Path) -> None:
        """Run the node until it ends or the user stops it."""
        command = [
            *RAY, "start", "--block", f"--address={self._ray}",
            "--disable-usage-stats", f"--temp-dir={folder / 'ray'}", f"--object-store-memory={OBJECT_STORE_BYTES}",
        ]  # fmt: skip
        given = {"num-cpus": self._joining.cpus, "num-gpus": self._joining.gpus, "node-ip-address": self._joining.host}
        command += [f"--{name}={value}" for name, value in given.items() if value is not None]
        with log.open("wb") as output:
            # In a new session: Ctrl-C reaches only this process, which then ends the node.
            child = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, cwd=folder,
            )  # fmt: skip
        node = Process.of(child.pid)
        while child.poll() is None and not self._leaving:
            time.sleep(_POLL_SECONDS)
        # Even if it has ended by itself: it may have left processes behind.
        end([node] if node else [], END_SECONDS)
        child.wait()

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._leaving and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
