"""Savings and cost of early stopping: ASHA and the full sweep on a grid of noise rates and learning rates."""

import tempfile
from collections.abc import Iterator
from typing import Any

import torch

from tests.benchmarks.figure import Figure

STEPS = 36_000
SEEDS = 5
REPETITIONS = 3
NOISE: dict[str, Any] = {
    "task": "misclassification.hypercube",
    "metric": {"name": "test_error", "goal": "minimize"},
    "parameters": {
        "dim": 20, "width": 80, "samples": 80, "test_samples": 500, "steps": STEPS, "frames": 25,
        "noise_rate": {"min": 0.0, "max": 0.7, "points": 8},
        "learning_rate": {"min": 0.005, "max": 0.16, "scale": "log", "points": 6},
    },
    "resources": {"pack": 60},
    "track": {"per": "none"},
}  # fmt: skip
ASHA = {"type": "asha", "min_steps": STEPS // 12, "eta": 3}


def stopping_early() -> Iterator[Figure]:
    """The run-steps of ASHA, and how good its best cell is by the full sweep's means. Each repetition has other seeds.

    ASHA's cell is as good as the best if its mean lies within the 95 % interval of the full sweep's best cell, both
    over the seeds of the full sweep.
    """
    import mislabel

    torch.set_num_threads(1)
    for first in range(0, REPETITIONS * SEEDS, SEEDS):
        seeds = {"count": SEEDS, "first": first}
        with tempfile.TemporaryDirectory() as full, tempfile.TemporaryDirectory() as early:
            all_steps = _run({**NOISE, "name": "full", "seeds": seeds}, full)
            some_steps = _run({**NOISE, "name": "early", "seeds": seeds, "early_terminate": ASHA}, early)
            cells = mislabel.load(full, "full").cells("test_error").set_index("cell_id")
            runs = mislabel.load(early, "early").runs
        whole = runs[runs["status"] == "done"].groupby("cell_id")["test_error"].agg(["mean", "count"])
        chosen = str(whole[whole["count"] == SEEDS]["mean"].idxmin())
        best = str(cells["mean"].idxmin())
        half_width = cells["high"][best] - cells["mean"][best]
        excess = (cells["mean"][chosen] - cells["mean"][best]) / half_width
        at = f"seeds {first} to {first + SEEDS - 1}"
        yield Figure(f"ASHA, {at}: run-steps of those of the full sweep", some_steps / all_steps, "", 1 / 3)
        yield Figure(f"ASHA, {at}: chosen cell above the best, in half intervals", excess, "", 1.0)
        yield Figure(f"ASHA, {at}: the best cell's mean test error", cells["mean"][best], "")


def _run(values: dict[str, Any], folder: str) -> int:
    """Run the sweep in this process; returns the steps of all its runs in the store."""
    from mislabel.sweeps.checks.reader import checked_spec
    from mislabel.sweeps.run.launch import Machine, prepare, run_inline
    from mislabel.sweeps.spec.document import Document
    from mislabel.sweeps.store.store import Store

    spec, task = checked_spec(Document("bench", values))
    launch = prepare(spec, task, Store(folder)).start(Machine(1, 1 << 30, torch.device("cpu")))
    run_inline(launch.driver, launch.files, torch.device("cpu"), lambda: None)
    launch.finish()
    steps: int = launch.files.read("runs", ["step"])["step"].to_numpy().sum()
    assert launch.driver.progress.steps_done == steps, "the store has all trained steps"
    return int(steps)


MEASURES = (stopping_early,)
