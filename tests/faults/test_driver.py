"""After the driver is killed or interrupted, the same command completes the sweep."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import mislabel
from mislabel.cluster.process import descendants
from mislabel.sweeps.process import Process
from mislabel.sweeps.store.store import Store
from tests.cluster.heads import title_of, until
from tests.pace import Pace

pytestmark = pytest.mark.slow

MISLABEL = str(Path(sys.executable).parent / "mislabel")
# Where and when a run was trained, and with which others, may differ; what came out may not.
CIRCUMSTANCES = ["commit", "train_seconds", "started_at", "finished_at", "attempt", "pack_id", "pack_lanes", "host"]
SPEC = """
name: disturbed
task: bowl
metric: {name: loss, goal: minimize}
parameters:
  surface: {values: [smooth, rough]}
  x: {values: [0.0, 1.0, 2.0]}
  steps: 2000
  frames: 20
  snapshots: 2
seeds: 8
resources: {pack: 8}
"""


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "disturbed.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture(scope="module")
def undisturbed(spec: Path) -> "mislabel.Sweep":
    """The sweep, run in one go in one process."""
    store = spec.parent / "undisturbed"
    subprocess.run(
        [MISLABEL, "run", str(spec), "--store", str(store), "--inline", "--no-mlflow"], check=True, capture_output=True
    )
    return mislabel.load(str(store), "disturbed")


@pytest.mark.ray
@pytest.mark.faults
@pytest.mark.parametrize(
    ("blow", "runner"),
    [(signal.SIGKILL, []), (signal.SIGINT, []), (signal.SIGTERM, ["--inline"])],
    ids=["kill -9", "Ctrl-C", "kill, inline"],
)
def test_after_its_driver_was_killed_the_same_command_completes_a_sweep(
    blow: signal.Signals, runner: list[str], spec: Path, undisturbed: "mislabel.Sweep", tmp_path: Path, pace: Pace
) -> None:
    """Three packs end and the others are held, so that the signal comes half-way on any machine."""
    pace.hold("rough")
    command = [MISLABEL, "run", str(spec), "--store", str(tmp_path), "--no-mlflow", *runner]
    driver = _started(command)
    _wait_until_half_way(tmp_path, driver)
    process = Process.of(driver.pid)
    assert process is not None
    workers = [each for each in descendants([process]) if "Trainable" in title_of(each)]
    driver.send_signal(blow)
    said = driver.communicate(timeout=120)[1]
    assert _ended_runs(tmp_path) == 24, said
    if blow != signal.SIGKILL:
        assert driver.returncode == 130, said
        assert "the same command continues" in said
        assert list(tmp_path.glob("disturbed/checkpoints/*.pt")), "packs that were running left a checkpoint"
    # Workers outlive a killed driver for a moment, and would finish their packs in it.
    until(lambda: not [worker for worker in workers if worker.lives], 120)
    pace.release()
    again = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert again.returncode == 0, again.stderr
    assert "24 in the store already" in again.stderr
    sweep = mislabel.load(str(tmp_path), "disturbed")
    _assert_same_results(sweep, undisturbed)
    assert not list(tmp_path.glob("disturbed/checkpoints/*")), "a finished sweep keeps no checkpoints"


def _started(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def _wait_until_half_way(store: Path, driver: "subprocess.Popen[str]") -> None:
    """Until 24 runs have ended and others train."""

    def is_half_way() -> bool:
        assert driver.poll() is None, driver.communicate()[1]
        progress = Store(str(store)).sweep("disturbed").progress()
        return progress.get("done") == 24 and progress["running"] > 0

    until(is_half_way, 600)


def _ended_runs(store: Path) -> int:
    return sum(len(pd.read_parquet(part, columns=["seed"])) for part in store.glob("disturbed/runs/[!.]*.parquet"))


def _assert_same_results(sweep: "mislabel.Sweep", other: "mislabel.Sweep") -> None:
    """Value for value, to the last bit."""
    for table, key in [("runs", ["run_id"]), ("curves", ["run_id", "step"]), ("arrays", ["run_id", "step", "metric"])]:
        ours, theirs = (
            getattr(s, table).drop(columns=CIRCUMSTANCES, errors="ignore").sort_values(key, ignore_index=True)
            for s in (sweep, other)
        )
        if table == "arrays":
            ours["values"], theirs["values"] = ours["values"].map(tuple), theirs["values"].map(tuple)
        pd.testing.assert_frame_equal(ours, theirs, check_exact=True, check_like=True)
