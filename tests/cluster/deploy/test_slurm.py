"""The Slurm script, against shellcheck, and run with stand-ins for Slurm, Ray and the driver."""

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


STAND_INS = {
    "srun": 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    "scontrol": 'if [[ $1 == show ]]; then echo node-a; echo node-b; else echo "$*" > "$TOLD/scontrol"; fi\n',
    "ray": 'printf "%s\\n" "$@" > "$TOLD/ray"\n[[ ! -e $TOLD/broken ]] || exit 0\n'
    'cp "$RAY_AUTH_TOKEN_PATH" "$TOLD/token"; stat -c %a "$RAY_AUTH_TOKEN_PATH" > "$TOLD/mode"\n'
    'while [[ $1 != -- ]]; do shift; done\nshift\n"$@"\n',
    "mislabel": 'printf "%s\\n" "$@" > "$TOLD/mislabel"\n[[ -e $TOLD/endless ]] || exit "$(cat "$TOLD/code")"\n'
    "trap 'exit 130' TERM\nwhile true; do sleep 0.05; done\n",
}


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """Where the stand-ins write what they were told."""
    venv = tmp_path / "venv" / "bin"
    venv.mkdir(parents=True)
    for name, text in STAND_INS.items():
        (venv / name).write_text(f"#!/usr/bin/env bash\n{text}")
        (venv / name).chmod(0o755)
    (venv / "activate").write_text(f'PATH="{venv}:$PATH"\n')
    told = tmp_path / "told"
    told.mkdir()
    (told / "code").write_text("0")
    return told


def start_slurm_job(told: Path, *words: str) -> subprocess.Popen[str]:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(told.parent), "TOLD": str(told),
        "MISLABEL_VENV": str(told.parent / "venv"), "MISLABEL_STORE": "/shared/store",
        "SLURM_JOB_ID": "42", "SLURM_JOB_NODELIST": "node-[a-b]", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_PER_TASK": "16", "SLURM_GPUS_ON_NODE": "4",
    }  # fmt: skip
    return subprocess.Popen(["bash", DEPLOY / "slurm.sh", *words], env=environment, cwd=told, text=True,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


def words_told(told: Path, name: str) -> list[str]:
    return (told / name).read_text().splitlines()


def test_a_slurm_job_runs_the_sweep_on_all_its_nodes_under_a_token_of_its_own(told: Path) -> None:
    job = start_slurm_job(told, "noise.yaml", "--no-mlflow")
    assert job.wait(30) == 0
    given = ["run", "noise.yaml", "--address", "node-a:6379", "--store", "/shared/store", "--no-mlflow"]
    assert words_told(told, "mislabel") == given
    check_mislabel(given)
    ray = words_told(told, "ray")
    check_ray(ray)
    assert ray[: ray.index("--")] == [
        "symmetric-run", "--address", "node-a:6379", "--min-nodes", "2", "--num-cpus", "16", "--num-gpus", "4",
        "--disable-usage-stats",
    ]  # fmt: skip
    assert re.fullmatch(r"[0-9a-f]{64}", (told / "token").read_text())
    assert words_told(told, "mode") == ["600"]
    assert not (told.parent / ".mislabel" / "slurm-42").exists()
    assert not (told / "scontrol").exists()


def test_a_slurm_job_whose_time_is_nearly_up_has_packs_checkpoint_and_queues_again(told: Path) -> None:
    (told / "endless").touch()
    job = start_slurm_job(told, "noise.yaml")
    while not (told / "mislabel").exists():
        assert job.poll() is None
        time.sleep(0.02)
    time.sleep(0.1)
    job.send_signal(signal.SIGUSR1)
    assert job.wait(30) == 130
    assert words_told(told, "scontrol") == ["requeue 42"]


def test_a_slurm_job_that_failed_does_not_queue_again(told: Path) -> None:
    (told / "code").write_text("1")
    assert start_slurm_job(told, "noise.yaml").wait(30) == 1
    (told / "broken").touch()
    assert start_slurm_job(told, "noise.yaml").wait(30) == 1, "symmetric-run ends with 0 where Ray did not start"
    assert start_slurm_job(told).wait(30) == 2
    assert not (told / "scontrol").exists()


def test_slurm_itself_queues_a_preempted_job_again() -> None:
    asked = re.findall(r"^#SBATCH --([a-z-]+)(?:=(.*))?$", TEXTS["slurm.sh"], re.MULTILINE)
    options = dict(asked)
    assert len(options) == len(asked) > 8
    assert options["signal"] == "B:USR1@300"
    assert options["ntasks-per-node"] == "1"
    assert {"requeue", "exclusive", "gpus-per-node"} <= options.keys()
    # Slurm stops reading at the first command.
    body = TEXTS["slurm.sh"].index("set -euo pipefail")
    assert "#SBATCH" not in TEXTS["slurm.sh"][body:]
