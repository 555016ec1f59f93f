"""The driver's time per run: to count it, pack it, give it to a worker and process its end.

Nothing is trained and nothing is written. Workers may have to wait for this long.
"""

import gc
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.benchmarks.figure import Figure

# Repetitions per size; the fastest counts. Larger sizes need fewer, because other processes disturb them less.
_SIZES = {1_000: 5, 10_000: 3, 100_000: 2}
_SEEDS = 5
_PACK = 64


def driving_a_large_sweep() -> Iterator[Figure]:
    """CPU time, after a first sweep that loads the modules."""
    for method in ("random", "qmc", "grid"):
        _seconds_per_run(_values(method, 1_000))
        per_run = {
            cells: min(_seconds_per_run(_values(method, cells)) for _ in range(times))
            for cells, times in _SIZES.items()
        }
        for cells, seconds in per_run.items():
            yield Figure(f"driver per run, {method}, {cells:,} cells", 1e6 * seconds, "µs")
        _, few, many = per_run
        yield Figure(f"driver per run, {method}, {many:,} cells over {few:,}", per_run[many] / per_run[few], "×", 1.3)


def _values(method: str, cells: int) -> dict[str, Any]:
    values: dict[str, Any] = {
        "name": "large",
        "task": "xor_clusters",
        "method": method,
        "metric": {"name": "clean_test_accuracy", "goal": "maximize"},
        "parameters": {
            "width": {"values": [100, 200]},
            "noise_rate": {"min": 0.0, "max": 0.4, "points": 50},
            "step_size": {"min": 0.01, "max": 1.0, "scale": "log", "points": cells // 100},
        },
        "seeds": _SEEDS,
    }
    return values if method == "grid" else {**values, "budget": {"cells": cells}}


def _seconds_per_run(values: dict[str, Any]) -> float:
    from mislabel.sweeps.checks.reader import checked_spec
    from mislabel.sweeps.plan.backlog import Backlog
    from mislabel.sweeps.plan.pack_size import Profiler, Sizing
    from mislabel.sweeps.plan.plan import make_plan
    from mislabel.sweeps.plan.sources import GridSource
    from mislabel.sweeps.run.driver import Driver
    from mislabel.sweeps.run.report import Finished
    from mislabel.sweeps.spec.document import Document
    from mislabel.sweeps.store.cell_means import Means
    from mislabel.sweeps.store.outcome import Outcome, Status
    from mislabel.sweeps.store.run_index import RunIndex
    from mislabel.sweeps.store.store import Store

    spec, task = checked_spec(Document("bench", values))
    with tempfile.TemporaryDirectory() as folder:
        files = Store(folder).sweep("large")
        gc.collect()
        began = time.process_time()
        index = RunIndex(spec, files)
        plan = make_plan(spec, task, index, files)
        plan = replace(plan, groups={shape: replace(group, size=_PACK) for shape, group in plan.groups.items()})
        backlog = Backlog(plan, index, Sizing(task, files, Profiler(None), 1 << 30, 1))
        driver = Driver(backlog, GridSource(backlog), files, Means(spec, index))
        while (order := driver.next()) is not None:
            runs = zip(order.cells, order.seeds, strict=True)
            outcomes = [
                Outcome(cell, seed, Status.DONE, {"clean_test_accuracy": 1 / (1 + seed)}) for cell, seed in runs
            ]
            driver.report(Finished(order.id, outcomes=outcomes))
        seconds = time.process_time() - began
    assert driver.progress.done == plan.runs
    return seconds / plan.runs


MEASURES = (driving_a_large_sweep,)
