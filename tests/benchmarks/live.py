"""The cost of showing runs while they train."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.run.launch import Machine, prepare
from mislabel.sweeps.run.worker import Worker
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.store.running import FOLDER
from mislabel.sweeps.store.store import Store
from mislabel.tasks.registry import find_task
from tests.benchmarks.figure import Figure

SECONDS = 65.0
SPEC: dict[str, Any] = {
    "name": "live",
    "task": "label_noise_sgd.linear",
    "metric": {"name": "test_loss", "goal": "minimize"},
    "parameters": {"samples": 200, "dim": 20, "width": 40, "steps": 10_000_000, "frames": 8_000},
    "seeds": 32,
    "resources": {"pack": 32},
}


def cost_of_live_rows() -> Iterator[Figure]:
    """A pack of 32 runs that measures tens of times per second: the time that it takes to show its runs."""
    torch.set_num_threads(1)
    assert pd.__version__  # pyarrow imports pandas when it makes the first table
    with tempfile.TemporaryDirectory() as folder:
        spec, _ = checked_spec(Document("live.yaml", SPEC))
        machine = Machine(workers=1, memory_bytes=4 << 30, device=torch.device("cpu"))
        launch = prepare(spec, find_task(spec.task), Store(folder)).start(machine)
        order = launch.driver.next()
        assert order is not None
        worker = Worker(order, launch.files, torch.device("cpu"))
        live, spent, writes = worker._live_rows, 0.0, 0
        write = live.write

        def timed(steps: Mapping[str | int, int]) -> None:
            nonlocal spent, writes
            began = time.perf_counter()
            write(steps)
            spent += time.perf_counter() - began
            writes += 1

        live.write = timed  # type: ignore[method-assign]
        began = time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            worker.work(1.0)
        total = time.perf_counter() - began
        rows = launch.files.read("curves", ["step"], running=True).num_rows
        files = len(list((Path(launch.files.address) / FOLDER).rglob("*.parquet")))
        launch.close()
    yield Figure(f"rows of running runs after {total:.0f} s", rows, "rows")
    yield Figure("times that they were written", writes, "")
    yield Figure("share of the time that this takes", 100 * spent / total, "%", 1)
    yield Figure("files of running runs", files, "", 3)


MEASURES = (cost_of_live_rows,)
