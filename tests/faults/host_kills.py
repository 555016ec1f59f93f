"""Kill hosts of a cluster and cut their links at random moments: three hosts, made of network namespaces.

The same command then completes the sweep, and its tables are those of a sweep that nothing disturbed.
"""

import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from mislabel.cluster.head_state import Folder, State, read_state
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_values, run
from tests.cluster.heads import MISLABEL, until
from tests.cluster.hosts import Host, hosts, reason_against_hosts
from tests.faults.bowl_sweeps import KEYS, assert_same_table, table_of
from tests.faults.suite import Case

MARKS = ("ray",)
# Twelve packs of seconds: some end between two kills, and some lose their hosts.
BOWLS: dict[str, Any] = bowl_values(
    parameters={"x": {"min": -5.0, "max": 5.0, "points": 12}, "steps": 400, "frames": 5, "snapshots": 2},
    seeds=4, resources={"cpu": 0.5, "pack": 4},
)  # fmt: skip
STEP_SECONDS = 0.03
# Ray takes a host for dead after half a minute without an answer. Some cuts are shorter than that, some are longer.
LONGEST_CUT_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 15.0
SECONDS = 600.0


def cases(full: bool) -> Iterator[Case]:
    reason = reason_against_hosts()
    if reason:
        yield Case("a host or a link is lost", "all", lambda folder: pytest.skip(reason), count=20)
        return
    with tempfile.TemporaryDirectory(prefix="host-kills-") as folder:
        undisturbed = str(Path(folder) / "undisturbed")
        run(Store(undisturbed), **BOWLS)
        with hosts(Path(folder), ["head", "one", "two"]) as made:
            cluster = Cluster(made["head"], made["one"], made["two"], undisturbed)
            cluster.start()
            kills, seeds = (9, range(2)) if full else (2, range(1))
            for seed in seeds:
                disturb = partial(cluster.lose_hosts_and_links, seed, kills)
                yield Case("a host or a link is lost", f"seed {seed}", disturb, kills, SECONDS + 120 * kills)
            for seed in range(2 if full else 0):
                yield Case("the head's host is lost", f"seed {seed}", partial(cluster.lose_head, seed), 1, 2 * SECONDS)
            cluster.stop()


class Cluster:
    """A head that trains nothing itself, and two hosts that have joined it."""

    def __init__(self, head: Host, one: Host, two: Host, undisturbed: str) -> None:
        self._head = head
        self._members = [one, two]
        self._undisturbed = undisturbed
        self._joined: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def _state(self) -> State:
        state = read_state(Folder(self._head.folder / "cluster"))
        assert state is not None
        return state

    def start(self) -> None:
        at = ["--host", self._head.address, "--store", str(self._head.shared / "store"), "--cpus", "0", "--gpus", "0"]
        self._head.mislabel("cluster", "up", *at)
        for host in self._members:
            self._join(host)

    def stop(self) -> None:
        for member in self._joined.values():
            member.terminate()
        for member in self._joined.values():
            member.wait(SECONDS)
        self._head.mislabel("cluster", "down")
        for host in (self._head, *self._members):
            assert host.processes() == []

    def _join(self, host: Host) -> None:
        token = host.folder / "token"
        shutil.copy(self._head.folder / "cluster" / "token", token)
        at = ["cluster", "join", self._state.jobs, "--token-file", str(token), "--host", host.address]
        self._joined[host.name] = host.start(MISLABEL, *at, "--cpus", "1", "--gpus", "0")

    def lose_hosts_and_links(self, seed: int, kills: int, folder: Path) -> None:
        random_ = random.Random(f"hosts {seed}")
        self._submit()
        self._wait_for_first_runs()
        # Both kinds occur, in any order.
        kinds = [self._kill, self._cut] * ((kills + 1) // 2)
        random_.shuffle(kinds)
        for lose in kinds[:kills]:
            lose(random_.choice(self._members), random_)
            time.sleep(random_.uniform(0.0, LONGEST_PAUSE_SECONDS))
            if self._ended():  # the other losses disturb a new sweep
                self._complete()
                self._submit()
                self._wait_for_first_runs()
        self._head.pace.release()
        self._complete()

    def lose_head(self, seed: int, folder: Path) -> None:
        """With the head, all drivers are lost. The cluster is started again, and the same command continues."""
        random_ = random.Random(f"head {seed}")
        self._submit()
        self._wait_for_first_runs()
        time.sleep(random_.uniform(0.0, LONGEST_PAUSE_SECONDS))
        self._head.kill()
        for host in self._members:  # a new cluster has a new token, so they can't come back by themselves
            member = self._joined[host.name]
            member.send_signal(signal.SIGINT)
            member.wait(SECONDS)
        self._head.connect()
        self.start()
        self._head.pace.release()
        self._complete()

    def _kill(self, host: Host, random_: random.Random) -> None:
        """Pull the plug, and start the host again after a while."""
        host.kill()
        self._joined[host.name].wait(SECONDS)
        time.sleep(random_.uniform(0.0, LONGEST_CUT_SECONDS))
        host.connect()
        self._join(host)

    def _cut(self, host: Host, random_: random.Random) -> None:
        host.cut_off()
        time.sleep(random_.uniform(0.0, LONGEST_CUT_SECONDS))
        host.connect()

    def _submit(self) -> None:
        self._head.pace.take_for_a_step(STEP_SECONDS)
        spec = self._head.folder / "bowls.yaml"
        spec.write_text(yaml.safe_dump(BOWLS))
        self._head.mislabel("submit", spec.name)

    def _progress(self) -> dict[str, Any]:
        return dict(Store(self._state.store).sweep("bowls").progress())

    def _wait_for_first_runs(self) -> None:
        until(lambda: self._progress().get("done", 0) > 0, SECONDS, self._said)

    def _ended(self) -> bool:
        return self._progress().get("state") != "running"

    def _said(self) -> str:
        logs = [host.log.read_text() for host in self._members if host.log.exists()]
        said = self._head.mislabel("logs", "bowls", code=None)
        return "\n".join([said.stdout, said.stderr, *logs])

    def _complete(self) -> None:
        """Wait for the sweep. Runs whose hosts were lost too often are run by the same command."""
        followed = self._head.run(MISLABEL, "logs", "-f", "bowls", code=None, seconds=SECONDS)
        for _ in range(3):
            if followed.returncode == 0:
                break
            followed = self._head.run(MISLABEL, "submit", "bowls.yaml", "--wait", code=None, seconds=SECONDS)
        assert followed.returncode == 0, self._said()
        until(self._ended, SECONDS, self._said)
        store = self._state.store
        for table in KEYS:
            assert_same_table(table_of(store, table), table_of(self._undisturbed, table))
        assert list(Path(store).glob("bowls/checkpoints/*")) == []
        shutil.rmtree(Path(store) / "bowls")
