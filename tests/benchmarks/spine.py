"""The speedup of packs on Ray, the overhead of scheduling, and the start time of commands."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmarks.figure import Figure

MISLABEL = str(Path(sys.executable).parent / "mislabel")
LINEAR: dict[str, Any] = {
    "task": "label_noise_sgd.linear",
    "parameters": {
        "samples": 500, "dim": 50, "width": 100, "steps": 20000, "frames": 10,
        "sigma": {"min": 0.1, "max": 1.0, "points": 32},
    },
}  # fmt: skip


def packs_against_single_runs() -> Iterator[Figure]:
    """1024 runs in packs, and 64 runs with one run per Tune trial and reused actors."""
    packed = _sweep({**LINEAR, "name": "packed", "seeds": 32})
    single = _sweep({**LINEAR, "name": "single", "seeds": 2, "resources": {"pack": 1}})
    yield Figure("linear network in packs, 1024 runs", packed["us_per_run_step"], "µs per run-step")
    yield Figure("linear network, one run per Tune trial, 64 runs", single["us_per_run_step"], "µs per run-step")
    ratio = single["us_per_run_step"] / packed["us_per_run_step"]
    yield Figure("packs are faster than one run per trial by", ratio, "×", 20, "at least")


def cost_of_scheduling() -> Iterator[Figure]:
    """Wall time of a sweep with packs of at least 5 s, over the training time per worker."""
    spec = {
        "name": "scheduling",
        "task": "xor_clusters",
        "parameters": {"samples": 200, "dim": 20, "width": 200, "test_samples": 400, "steps": 20000, "frames": 10},
        "seeds": 16,
        "resources": {"pack": 4},
    }
    measured = _sweep(spec)
    yield Figure("seconds per pack", measured["train_seconds"] / measured["packs"], "s", 5, "at least")
    ratio = measured["seconds"] / (measured["train_seconds"] / measured["workers"])
    yield Figure("wall time over training time per worker", ratio, "×", 1.2)


def workers_under_search() -> Iterator[Figure]:
    """The share of their time in which workers train, while TPE proposes 200 cells × 5 seeds in packs."""
    spec = {
        "name": "search",
        "task": "misclassification.hypercube",
        "method": {"name": "tpe", "startup": 20},
        "metric": {"name": "test_error", "goal": "minimize"},
        "parameters": {
            "steps": 12000, "frames": 10,
            "noise_rate": {"min": 0.0, "max": 0.5},
            "learning_rate": {"min": 0.001, "max": 0.1, "scale": "log"},
            "init_scale": {"min": 0.1, "max": 2.0, "scale": "log"},
            "epsilon": {"values": [0.2, 0.3]},
        },
        "budget": {"cells": 200},
        "seeds": 5,
    }  # fmt: skip
    measured = _sweep(spec, ahead=True)
    share = measured["train_seconds"] / (measured["seconds"] * measured["workers"])
    yield Figure("share of time that workers train under tpe, 200 cells × 5 seeds", share, "", 0.9, "at least")


def starting_a_command() -> Iterator[Figure]:
    """The fastest of five starts, with a warm disk cache."""
    with tempfile.TemporaryDirectory() as folder:
        for command in (["--help"], ["list", "--store", folder]):
            fastest = min(_timed(partial(subprocess.run, [MISLABEL, *command], capture_output=True)) for _ in range(5))
            yield Figure(f"mislabel {command[0]}", fastest, "s", 0.5)


def planning_a_million_runs() -> Iterator[Figure]:
    """Plan a grid of 50,000 cells × 20 seeds."""
    from mislabel.sweeps.checks.reader import checked_spec
    from mislabel.sweeps.plan.plan import make_plan
    from mislabel.sweeps.spec.document import Document
    from mislabel.sweeps.store.run_index import RunIndex
    from mislabel.sweeps.store.store import Store

    values = {
        "name": "million",
        "task": "xor_clusters",
        "parameters": {
            "noise_rate": {"min": 0.0, "max": 0.4, "points": 100},
            "init_scale": {"min": 0.01, "max": 1.0, "scale": "log", "points": 100},
            "step_size": {"values": [0.05, 0.1, 0.2, 0.4, 0.8]},
        },
        "seeds": 20,
    }
    spec, task = checked_spec(Document("bench", values))
    with tempfile.TemporaryDirectory() as folder:
        files = Store(folder).sweep("million")
        seconds = _timed(lambda: make_plan(spec, task, RunIndex(spec, files), files))
    yield Figure("counting a million runs", seconds, "s", 10)


def _sweep(values: dict[str, Any], ahead: bool = False) -> dict[str, float]:
    """Run a sweep on a local Ray. Its time starts with the first report, so that starting Ray does not count."""
    import torch

    from mislabel.cluster.tune.capacity import worker_memory_bytes, worker_slots
    from mislabel.cluster.tune.runner import connected, run_on_ray
    from mislabel.sweeps.checks.reader import checked_spec
    from mislabel.sweeps.run.launch import Machine, prepare
    from mislabel.sweeps.spec.document import Document
    from mislabel.sweeps.store.outcome import Status
    from mislabel.sweeps.store.store import Store

    spec, task = checked_spec(Document("bench", values))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, connected(None):
        store = Store(folder)
        slots = worker_slots(spec.resources)
        machine = Machine(slots, worker_memory_bytes(spec.resources), torch.device("cpu"), ahead)
        launch = prepare(spec, task, store).start(machine)
        packs = launch.plan.packs
        run_on_ray(launch.driver, store, spec.resources, slots, lambda: None)
        progress = launch.driver.progress
        seconds = time.monotonic() - (progress.first_report or 0.0)
        launch.finish()
        assert progress.statuses[Status.DONE] == progress.runs, progress
    return {
        "seconds": seconds,
        "train_seconds": progress.train_seconds,
        "workers": slots,
        "packs": packs,
        "us_per_run_step": 1e6 * seconds / progress.steps_done,
    }


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


MEASURES = (
    starting_a_command,
    planning_a_million_runs,
    packs_against_single_runs,
    cost_of_scheduling,
    workers_under_search,
)
