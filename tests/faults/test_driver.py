"""What the driver's death, Ctrl-C or a polite kill do to a sweep: nothing that the same command does not mend."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import mislabel

MISLABEL = str(Path(sys.executable).parent / "mislabel")
# Where and when a run was trained, and with which others, may differ; what came out may not.
CIRCUMSTANCES = ["train_seconds", "started_at", "finished_at", "attempt", "pack_id", "pack_lanes", "host"]
SPEC = """
name: disturbed
task: label_noise_sgd.linear
metric: {name: test_loss, goal: minimize}
parameters:
  samples: 100
  dim: 20
  width: 30
  steps: 80000
  frames: 20
  snapshots: 2
  sigma: {values: [0.0, 0.5, 1.0]}
  step_size: {values: [0.002, 0.005]}
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
def test_a_sweep_whose_driver_is_ended_half_way_is_completed_by_the_same_command(
    blow: signal.Signals, runner: list[str], spec: Path, undisturbed: "mislabel.Sweep", tmp_path: Path
) -> None:
    command = [MISLABEL, "run", str(spec), "--store", str(tmp_path), "--no-mlflow", *runner]
    driver = _started(command)
    _wait_for_runs(tmp_path, driver, at_least=8)
    driver.send_signal(blow)
    said = driver.communicate(timeout=60)[1]
    ended = _ended_runs(tmp_path)
    assert 8 <= ended < 48, f"the blow came too early or too late: {said}"
    if blow != signal.SIGKILL:
        assert driver.returncode == 130, said
        assert "the same command continues" in said
        assert list(tmp_path.glob("disturbed/checkpoints/*.pt")), "packs that were running left a checkpoint"
    again = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    # Workers outlive a killed driver for a moment, and may finish their packs in it.
    found = re.search(r"(\d+) in the store already", again.stderr)
    assert found, again.stderr
    assert ended <= int(found[1]) < 48
    sweep = mislabel.load(str(tmp_path), "disturbed")
    _assert_same_results(sweep, undisturbed)
    assert not list(tmp_path.glob("disturbed/checkpoints/*")), "a finished sweep keeps no checkpoints"


def _started(command: list[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def _wait_for_runs(store: Path, driver: "subprocess.Popen[str]", at_least: int) -> None:
    deadline = time.monotonic() + 90
    while _ended_runs(store) < at_least:
        assert driver.poll() is None, driver.communicate()[1]
        assert time.monotonic() < deadline, "no runs ended in time"
        time.sleep(0.1)


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
