"""Kill processes of a sweep on Ray at random moments: workers, the driver, Ray's node and head, the MLflow writer.

The same command then completes the sweep, and its tables are those of a sweep that nothing disturbed.
"""

import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import yaml

from mislabel.cluster.process import descendants
from mislabel.sweeps.process import Process
from tests.bowls import bowl_values
from tests.cluster.heads import DRIFT, MISLABEL, title_of, until
from tests.faults.bowl_sweeps import compare
from tests.faults.suite import Case
from tests.pace import VARIABLE, Pace

MARKS = ("ray",)
# Six packs, which take seconds each at this pace: some end before a kill, some are hit by it, some begin after it.
BOWLS = bowl_values(
    parameters={"x": {"values": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}, "steps": 600, "frames": 6, "snapshots": 2},
    seeds=4, resources={"pack": 4},
)  # fmt: skip
STEP_SECONDS = 0.005
LONGEST_DELAY_SECONDS = 12.0
# A part of the command line of each kind of process. Ray's workers have the name of their class there.
TITLES = {
    "worker": "Trainable.", "node": "raylet/raylet", "head": "gcs/gcs_server", "MLflow writer": "mlflow_view.follower",
}  # fmt: skip
LOST = ("node", "head")
# The guard of a command on a busy machine. No test measures how long it takes.
SECONDS = 300.0


def cases(full: bool) -> Iterator[Case]:
    with tempfile.TemporaryDirectory(prefix="ray-kills-") as folder:
        sweep = Sweep(Path(folder))
        sweep.run_undisturbed()
        kills, seeds = (5, range(4)) if full else (2, range(1))
        for seed in seeds:
            yield _case("workers are killed", f"seed {seed}", partial(sweep.kill_workers, seed, kills), kills)
        kills, seeds = (3, range(3)) if full else (1, range(1))
        for what, text in {
            "driver": "the driver is killed",
            "node": "Ray's node is killed",
            "head": "Ray's head is killed",
        }.items():
            for seed in seeds:
                yield _case(text, f"seed {seed}", partial(sweep.kill_and_continue, what, seed, kills), kills)
        for seed in range(4 if full else 0):
            yield _case("the MLflow writer is killed", f"seed {seed}", partial(sweep.kill_writer, seed), 1)


def _case(what: str, name: str, run: "partial[None]", kills: int) -> Case:
    return Case(what, name, run, count=kills, seconds=SECONDS * (kills + 2))


class Sweep:
    def __init__(self, folder: Path) -> None:
        self._spec = folder / "bowls.yaml"
        self._spec.write_text(yaml.safe_dump(BOWLS))
        self._undisturbed = folder / "undisturbed"

    def run_undisturbed(self) -> None:
        """In one go, in one process."""
        words = [MISLABEL, "run", str(self._spec), "--store", str(self._undisturbed), "--inline", "--no-mlflow"]
        subprocess.run(words, check=True, capture_output=True, env=_environment(self._undisturbed.parent))

    def kill_workers(self, seed: int, kills: int, folder: Path, how: Callable[[Process], None] | None = None) -> None:
        """Kill several workers of one launch, each at a random moment. The launch goes on."""
        random_ = random.Random(f"workers {seed}")
        with Launch(self._spec, folder) as launch:
            for _ in range(kills):
                launch.kill("worker", random_.uniform(0.0, 3.0), random_, how)
            launch.expect(0)
            deaths = launch.said().count("its worker died")
            assert 0 < deaths <= kills, launch.said()
            assert "Traceback" not in launch.said()
        compare(str(folder / "store"), str(self._undisturbed))
        assert_nothing_is_left(folder, [launch])

    def kill_and_continue(self, what: str, seed: int, kills: int, folder: Path) -> None:
        """Kill the process in one launch after the other, then let one complete the sweep."""
        random_ = random.Random(f"{what} {seed}")
        launches = []
        for _ in range(kills):
            with Launch(self._spec, folder) as launch:
                hit = launch.kill(what, random_.uniform(0.0, LONGEST_DELAY_SECONDS), random_)
                launch.expect(*((0,) if not hit else (-signal.SIGKILL,) if what == "driver" else (1, 2)))
                if hit and what in LOST and "bowls: 6 cells" in launch.said():  # Ray had started
                    assert launch.said().count("mislabel: Ray ") == 1, launch.said()
                assert "Traceback" not in launch.said()
                if random_.random() < 0.5:  # or the next launch meets processes of this one
                    until(launch.has_ended, SECONDS)
            launches.append(launch)
        launches.append(self._complete(folder))
        assert_nothing_is_left(folder, launches)

    def kill_writer(self, seed: int, folder: Path) -> None:
        """The sweep goes on without its writer, and the next launch completes the view."""
        random_ = random.Random(f"writer {seed}")
        with Launch(self._spec, folder, mlflow=True) as launch:
            hit = launch.kill("MLflow writer", random_.uniform(0.0, LONGEST_DELAY_SECONDS), random_)
            launch.expect(0)
            assert not hit or "mislabel sync" in launch.said()
        again = self._complete(folder, mlflow=True)
        assert "does not show all" not in again.said()
        assert_nothing_is_left(folder, [launch, again])

    def _complete(self, folder: Path, mlflow: bool = False) -> "Launch":
        with Launch(self._spec, folder, mlflow) as launch:
            launch.expect(0)
        compare(str(folder / "store"), str(self._undisturbed))
        return launch


class Launch:
    """`mislabel run`, while the body runs at most."""

    def __init__(self, spec: Path, folder: Path, mlflow: bool = False) -> None:
        self._log = folder / f"log-{time.monotonic_ns()}"
        environment = _environment(folder)
        Pace(Path(environment[VARIABLE])).take_for_a_step(STEP_SECONDS)
        words = [MISLABEL, "run", str(spec), "--store", str(folder / "store"), *([] if mlflow else ["--no-mlflow"])]
        with self._log.open("wb") as log:
            self._child = subprocess.Popen(words, stdout=log, stderr=log, env=environment, cwd=folder)
        driver = Process.of(self._child.pid)
        assert driver is not None
        self.driver = driver
        self.family: set[Process] = {driver}
        self.ray_folders: set[str] = set()

    def __enter__(self) -> "Launch":
        return self

    def __exit__(self, *error: object) -> None:
        if self._child.poll() is None:
            self._look()
            self._child.kill()
            self._child.wait()
        if error[0] is not None:
            for process in self.family:
                process.send(signal.SIGKILL)

    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(
        self, what: str, delay: float, random_: random.Random, how: Callable[[Process], None] | None = None
    ) -> bool:
        """Kill such a process some time after there is one; False if the sweep has ended before."""
        until(lambda: self._child.poll() is not None or self._processes(what), SECONDS, self.said)
        deadline = time.monotonic() + delay
        while time.monotonic() < deadline and self._child.poll() is None:
            self._look()
            time.sleep(0.05)
        # A worker may have ended with its pack; then the next one is hit.
        until(lambda: self._child.poll() is not None or self._processes(what), SECONDS, self.said)
        if self._child.poll() is not None:
            return False
        self._look()
        victims = self._processes(what)
        if victims:
            victim = random_.choice(victims)
            how(victim) if how else victim.send(signal.SIGKILL)
        return bool(victims)

    def expect(self, *codes: int) -> None:
        """Wait until the command has ended with one of these exit codes."""
        code = self._child.wait(SECONDS)
        assert code in codes, f"exit code {code}: {self.said()}"

    def has_ended(self) -> bool:
        """Whether no process of the launch is left."""
        return not [process for process in self.family if process.lives]

    def _processes(self, what: str) -> list[Process]:
        if what == "driver":
            return [self.driver]
        return [process for process in descendants([self.driver]) if TITLES[what] in title_of(process)]

    def _look(self) -> None:
        """Note the processes that the command has started, and Ray's folder."""
        self.family |= set(descendants([self.driver]))
        for process in self.family:
            self.ray_folders |= set(re.findall(r"/tmp/mislabel-\w+", title_of(process)))


def _environment(folder: Path) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(DRIFT)}
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {**plain, VARIABLE: str(folder / "pause"), "TMPDIR": str(temporary)}


def assert_nothing_is_left(folder: Path, launches: list[Launch]) -> None:
    """Neither processes nor files of any launch."""
    for launch in launches:
        until(launch.has_ended, SECONDS, lambda launch=launch: [title_of(each) for each in launch.family if each.lives])  # type: ignore[misc]
    left = [path for launch in launches for path in launch.ray_folders if os.path.exists(path)]
    with suppress(FileNotFoundError):
        left += [path.name for path in (folder / "tmp").iterdir() if path.name.startswith((".mislabel", "mislabel"))]
    assert left == [], f"left: {left}"
