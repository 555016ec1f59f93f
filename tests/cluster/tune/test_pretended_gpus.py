"""A Ray that claims to have two GPUs: which packs share a GPU, and the warning if torch finds no CUDA."""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from mislabel.cluster.tune.capacity import worker_slots
from mislabel.cluster.tune.profiler import RayProfiler
from mislabel.cluster.tune.runner import machine_on_ray
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.plan.pack_size import ProfilerGone
from mislabel.sweeps.run.launch import prepare
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.spec.model import Resources
from mislabel.sweeps.store.store import Store
from mislabel.tasks.registry import find_task

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(torch.cuda.is_available(), reason="pretends to have GPUs, and here are real ones"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]
LINEAR: dict[str, Any] = {
    "name": "linear",
    "task": "label_noise_sgd.linear",
    "metric": {"name": "test_loss", "goal": "minimize"},
    "parameters": {"samples": 20, "dim": 4, "width": 8, "steps": 2000, "frames": 4, "sigma": {"values": [0.1, 0.5]}},
    "seeds": 8,
    "resources": {"cpu": 0.5, "gpu": 0.25},
}


@pytest.fixture(scope="module")
def two_gpus() -> Iterator[None]:
    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def test_a_share_is_part_of_one_gpu(two_gpus: None) -> None:
    slots = worker_slots(Resources(cpu=0.1, gpu=0.4))
    assert slots == 4, "two on each card, though five shares make two GPUs"

    class Card:  # known to this function alone, so that Ray's workers need not load this file
        def id(self) -> str:
            return os.environ["CUDA_VISIBLE_DEVICES"]

    cards = [ray.remote(Card).options(num_cpus=0, num_gpus=0.4).remote() for _ in range(slots + 1)]
    answers = [card.id.remote() for card in cards]
    ready, _ = ray.wait(answers, num_returns=slots, timeout=120)
    assert Counter(ray.get(ready)) == {"0": 2, "1": 2}
    assert len(ray.wait(answers, num_returns=slots + 1, timeout=2)[1]) == 1
    for card in cards:
        ray.kill(card)


def test_more_gpus_than_a_machine_has_are_refused(two_gpus: None) -> None:
    assert worker_slots(Resources(cpu=0.5, gpu=0.25)) == 8
    assert worker_slots(Resources(gpu=2.0)) == 1
    with pytest.raises(MislabelError, match=r"^resources: .* 1 CPU and 3 GPU.* 4 CPU, 2 GPU"):
        worker_slots(Resources(gpu=3.0))


def test_a_sweep_on_shares_of_gpus_is_sized_by_a_worker_and_warns_about_missing_cuda(
    two_gpus: None, tmp_path: Path, messages: list[str]
) -> None:
    spec, task = checked_spec(Document("test", LINEAR))
    store = Store(str(tmp_path))
    prepared = prepare(spec, task, store)
    with machine_on_ray(spec.resources, 2) as (machine, run):
        assert machine.workers == 2
        launch = prepared.start(machine)
        most: list[int] = []
        run(launch.driver, store, lambda: most.append(len(launch.driver._running)))
        launch.finish()
    assert launch.driver.progress.statuses == {"done": 16}
    assert 1 <= max(most) <= 2
    (speed,) = launch.files.read_json("speeds.json").values()
    assert speed["lane_bytes"] > 100
    assert sum("torch finds no CUDA" in text for text in messages) == 1


def test_a_profiler_that_released_its_slot_measures_nothing() -> None:
    with pytest.raises(ProfilerGone):
        RayProfiler(None, "cpu", None).profile(find_task("xor_clusters"), {}, 1 << 30, 4)
