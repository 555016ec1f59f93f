"""The Slurm script passes shellcheck, and works with small replacements for Slurm, Ray and the driver."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cluster.deploy.commands import check_mislabel, check_ray
from tests.cluster.deploy.files import DEPLOY, TEXTS, tool


def test_the_slurm_script_is_clean() -> None:
    done = tool("shellcheck", "--enable=quote-safe-variables,check-set-e-suppressed", DEPLOY / "slurm.sh")
    assert done.returncode == 0, done.stdout
    assert tool("shellcheck", "-", given="#!/bin/bash\nrm -r $1\n").returncode != 0


REPLACEMENTS = {
    "srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    "scontrol": 'if [[ $1 == show ]]; then echo node-a; echo node-b; else echo "$*" > "$CALLS/scontrol"; fi\n',
    "ray": 'printf "%s\\n" "$@" > "$CALLS/ray"\n[[ ! -e $CALLS/broken ]] || exit 0\n'
    'cp "$RAY_AUTH_TOKEN_PATH" "$CALLS/token"; stat -c %a "$RAY_AUTH_TOKEN_PATH" > "$CALLS/mode"\n'
    'while [[ $1 != -- ]]; do shift; done\nshift\n"$@"\n',
    "mislabel": "trap 'exit 130' TERM\n"
    'printf "%s\\n" "$@" > "$CALLS/mislabel"\n[[ -e $CALLS/endless ]] || exit "$(cat "$CALLS/code")"\n'
    "while true; do sleep 0.05; done\n",
}


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The folder in which the replacements record their arguments."""
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    for name, text in REPLACEMENTS.items():
        (venv / name).write_text(f"#!/usr/bin/env bash\n{text}")
        (venv / name).chmod(0o755)
    (venv / "activate").write_text(f'PATH="{venv}:$PATH"\n')
    calls = tmp_path / "calls"
    calls.mkdir()
    (calls / "code").write_text("0")
    return calls


def start_slurm_job(calls: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(calls.parent), "CALLS": str(calls),
        "MISLABEL_VENV": str(calls.parent / "venv"), "MISLABEL_STORE": "/shared/store",
        "SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "16", "SLURM_GPUS_ON_NODE": "4",
    }  # fmt: skip
    return subprocess.Popen(["bash", DEPLOY / "slurm.sh", *words], env=environment, cwd=calls, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def arguments(calls: Path, name: str) -> list[str]:
    return (calls / name).read_text().splitlines()


def test_a_job_runs_the_sweep_on_all_its_nodes_with_its_own_token(calls: Path) -> None:
    job = start_slurm_job(calls, "noise.yaml", "--no-mlflow")
    assert job.wait(120) == 0
    given = ["run", "noise.yaml", "--address", "node-a:6379", "--store", "/shared/store", "--no-mlflow"]
    assert arguments(calls, "mislabel") == given
    check_mislabel(given)
    ray = arguments(calls, "ray")
    check_ray(ray)
    assert ray[: ray.index("--")] == [
        "symmetric-run", "--address", "node-a:6379", "--min-nodes", "2", "--num-cpus", "16", "--num-gpus", "4",
        "--disable-usage-stats",
    ]  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{64}", (calls / "token").read_text())
    assert arguments(calls, "mode") == ["600"]
    assert not (calls.parent / ".mislabel" / "slurm-42").exists()
    assert not (calls / "scontrol").exists()


def test_near_the_time_limit_a_job_saves_checkpoints_and_queues_itself_again(calls: Path) -> None:
    (calls / "endless").touch()
    job = start_slurm_job(calls, "noise.yaml")
    while not (calls / "mislabel").exists():
        assert job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(120) == 130
    assert arguments(calls, "scontrol") == ["requeue 42"]


def test_a_failed_job_does_not_queue_itself_again(calls: Path) -> None:
    (calls / "code").write_text("1")
    assert start_slurm_job(calls, "noise.yaml").wait(120) == 1
    (calls / "broken").touch()
    assert start_slurm_job(calls, "noise.yaml").wait(120) == 1, "symmetric-run exits with 0 if Ray did not start"
    assert start_slurm_job(calls).wait(120) == 2
    assert not (calls / "scontrol").exists()


def test_slurm_queues_a_preempted_job_again() -> None:
    asked = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", TEXTS["slurm.sh"], re.MULTILINE)
    options = dict(asked)
    assert len(options) == len(asked) > 8
    assert options["signal"] == "B:USR1@300"
    assert options["ntasks-per-node"] == "1"
    assert {"requeue", "exclusive", "gpus-per-node"} <= options.keys()
    # Slurm stops reading at the first command.
    body = TEXTS["slurm.sh"].index("set -euo pipefail")
    assert "#SBATCH" not in TEXTS["slurm.sh"][body:]
