"""The speedup of packs: each task at its paper's size, packed and with one lane, on one thread."""

import time
from collections.abc import Iterator

import torch

from mislabel.tasks.device import allocator
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.registry import find_task
from tests.benchmarks.figure import Figure

# One sample or one number per step: most of the time of a single lane is the overhead of calls, which a pack shares.
SMALL_STEPS = (
    "label_noise_sgd.linear",
    "label_noise_sgd.oscillation",
    "label_noise_sgd.alignment",
    "misclassification.neuron",
    "misclassification.network",
    "misclassification.hypercube",
    "misclassification.basis",
)
# Whole batches per step: the matrix products of a single lane already keep a core busy.
LARGE_STEPS = ("xor_clusters", "self_labeling.corrupted")
_LANES = (16, 64, 96, 128, 256)
_SECONDS = 0.5


def packed_against_alone() -> Iterator[Figure]:
    """Seconds per run-step with the best pack size and with packs of one."""
    torch.set_num_threads(1)
    for name in (*SMALL_STEPS, *LARGE_STEPS):
        alone = _run_step_seconds(name, 1)
        packed = min(_run_step_seconds(name, lanes) for lanes in _LANES)
        yield Figure(f"{name}, alone", 1e6 * alone, "µs per run-step")
        yield Figure(f"{name}, packed", 1e6 * packed, "µs per run-step")
        bound = 20 if name in SMALL_STEPS else None
        yield Figure(f"{name}, faster when packed by", alone / packed, "×", bound, "at least")


def _run_step_seconds(name: str, lanes: int) -> float:
    """The fastest of several stretches from the middle of training, without measuring."""
    allocator.keep_freed_memory()
    task = find_task(name)
    settings = task.params()
    pack = Pack(task, Lanes([settings] * lanes, range(lanes)))
    middle = settings.steps // 2 // task.block * task.block
    steps = task.block
    fastest = float("inf")
    began = time.perf_counter()
    with torch.no_grad():
        while time.perf_counter() - began < _SECONDS:
            stretch = time.perf_counter()
            task.advance(pack.lanes, pack.state, middle, middle + steps)
            seconds = time.perf_counter() - stretch
            fastest = min(fastest, seconds / (steps * lanes))
            if seconds < 0.05:
                steps *= 2
    return fastest


MEASURES = (packed_against_alone,)
