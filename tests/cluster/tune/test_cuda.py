"""Packs on a real GPU: the same numbers as on the CPU, a correct memory profile, and running out of memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mislabel.sweeps.plan.pack_size import Profiler, measure_speed
from mislabel.sweeps.run.launch import Machine, run_inline
from mislabel.sweeps.store.store import Store
from mislabel.tasks.device.determinism import make_deterministic
from mislabel.tasks.device.memory import is_out_of_memory, memory_of, peak_bytes
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.registry import find_task
from tests.bowls import prepared

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def final_metrics(name: str, device: torch.device) -> dict[str, np.ndarray]:
    make_deterministic(device)  # as workers are: convolutions are else rounded
    task = find_task(name)
    settings = task.settings({**{n: p.default for n, p in task.parameters.items()}, **task.small})
    pack: Pack[Any] = Pack(task, Lanes([settings] * 3, [0, 1, 2], device))
    frames = []
    while not pack.finished:
        frames += pack.advance(60)
    return dict(frames[-1].metrics)


@pytest.mark.parametrize(
    "name",
    [
        "xor_clusters",
        "label_noise_sgd.linear",
        "label_noise_sgd.lazy_rich",
        "misclassification.hypercube",
        "misclassification.images",
        "clean_priority.images",
        "self_labeling.sane",
    ],
)
def test_a_pack_on_a_gpu_has_the_numbers_of_the_cpu(name: str) -> None:
    near, far = final_metrics(name, CPU), final_metrics(name, CUDA)
    assert near.keys() == far.keys()
    for metric, values in near.items():
        np.testing.assert_allclose(far[metric], values, rtol=1e-3, atol=1e-4, err_msg=metric)


def test_the_memory_of_a_lane_on_a_gpu_predicts_that_of_a_pack() -> None:
    task = find_task("label_noise_sgd.linear")
    values = {**{n: p.default for n, p in task.parameters.items()}, "width": 256, "dim": 256, "steps": 50}
    lane_bytes = measure_speed(task, values, CUDA, memory_of(CUDA), most=4).lane_bytes

    def work() -> None:
        pack: Pack[Any] = Pack(task, Lanes([task.settings(values)] * 16, range(16), CUDA))
        pack.advance(60)

    assert 0.4 < peak_bytes(CUDA, work) / (16 * lane_bytes) < 2
    assert Profiler(CUDA).device == torch.cuda.get_device_name(CUDA)


@pytest.fixture
def a_sixteenth() -> Iterator[None]:
    """Limit this process to a sixteenth of the GPU's memory."""
    torch.cuda.set_per_process_memory_fraction(1 / 16)
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


def test_running_out_of_gpu_memory_is_recognized(a_sixteenth: None) -> None:
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.zeros(memory_of(CUDA) // 8, dtype=torch.uint8, device=CUDA)
    assert is_out_of_memory(caught.value)


def test_a_pack_that_does_not_fit_on_a_gpu_is_halved(a_sixteenth: None, tmp_path: Path) -> None:
    # One lane takes a fortieth of the GPU, so that a pack of four does not fit into a sixteenth of it.
    samples = 1000
    dim = memory_of(CUDA) // 40 // (4 * samples)
    launch = prepared(
        Store(str(tmp_path)),
        machine=Machine(1, memory_of(CUDA), CUDA),
        task="label_noise_sgd.linear",
        metric={"name": "test_loss", "goal": "minimize"},
        parameters={"samples": samples, "dim": dim, "width": 2, "steps": 2, "frames": 2},
        seeds=4,
    )
    run_inline(launch.driver, launch.files, CUDA, lambda: None)
    runs = launch.files.read("runs").to_pandas()
    assert set(runs["status"]) <= {"done", "diverged"}
    assert runs["pack_lanes"].max() < 4
