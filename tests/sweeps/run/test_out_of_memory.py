"""Packs that do not fit into memory: a task with a limit of lanes, and a process with a memory limit."""

import subprocess
import sys
from typing import Any

import pandas as pd
import pytest
import torch

from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.device.memory import is_out_of_memory
from tests.bowls import run, runs_of

TIGHT: dict[str, Any] = {"task": "bowl.tight", "resources": {"pack": 16}, "seeds": 8}


def assert_same_numbers(files: SweepFiles, roomy: SweepFiles) -> None:
    columns = ["x", "seed", "status", "step", "loss", "height"]
    tight, wide = (runs_of(each)[columns].sort_values(["x", "seed"], ignore_index=True) for each in (files, roomy))
    pd.testing.assert_frame_equal(tight, wide, rtol=1e-6)


def test_a_pack_that_does_not_fit_is_halved_and_later_packs_start_small(store: Store) -> None:
    parameters = {"x": {"values": [0.0, 1.0, 2.0, 3.0]}, "width": 16}
    launch = run(store, **TIGHT, parameters=parameters)
    runs = launch.files.read("runs").to_pandas()
    assert runs["status"].tolist() == ["done"] * 32
    assert set(runs["pack_lanes"]) == {4}
    assert launch.driver.errors == {}
    assert launch.driver.progress.statuses == {"done": 32}
    roomy = run(Store(f"{store.address}-roomy"), parameters=parameters, seeds=8, resources={"pack": 16})
    assert_same_numbers(launch.files, roomy.files)


def test_a_single_run_that_does_not_fit_fails_with_that_reason(store: Store) -> None:
    values = {"values": [False, True]}
    launch = run(store, **TIGHT, parameters={"tilted": values, "width": 64}, budget={"failures": 100})
    runs = launch.files.read("runs").to_pandas().sort_values("run_id")
    assert runs.groupby("tilted")["status"].unique().map(list).to_dict() == {False: ["done"], True: ["failed"]}
    error = runs[runs["tilted"]]["error"].iloc[0]
    assert error.startswith("out of memory: one run of this shape needs more than the ")
    assert "GiB of cpu\nOutOfMemoryError: tried to allocate 128 of 64" in error


@pytest.mark.long
def test_runs_that_no_longer_fit_continue_from_the_checkpoint(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.worker.CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr("mislabel.sweeps.run.worker.CHECKPOINT_SHARE", float("inf"))
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    parameters = {"x": {"values": [0.0, 1.0]}, "width": 8, "steps": 40, "frames": 21}
    launch = run(store, **TIGHT, parameters=parameters)
    assert launch.driver.progress.statuses == {"done": 16}
    assert launch.driver.progress.steps_done < 16 * (40 + 20), "what was trained before is not trained again"
    assert list(launch.files.checkpoints()) == []
    roomy = run(Store(f"{store.address}-roomy"), parameters=parameters, seeds=8, resources={"pack": 16})
    assert_same_numbers(launch.files, roomy.files)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (MemoryError(), True),
        (
            RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried"),
            True,
        ),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("the bowl broke"), False),
        (ValueError("can't allocate memory"), False),
    ],
)
def test_errors_that_mean_out_of_memory(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) == expected


LIMITED = """
import resource, sys
import numpy, torch
from mislabel.tasks.device.memory import is_out_of_memory
torch.zeros(10)
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
for work in (lambda: torch.zeros(16 << 30, dtype=torch.uint8), lambda: numpy.ones(16 << 30, dtype=numpy.uint8)):
    try:
        work()
    except Exception as error:
        print(is_out_of_memory(error))
"""


@pytest.mark.long
@pytest.mark.faults
def test_a_failed_allocation_is_recognized() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
