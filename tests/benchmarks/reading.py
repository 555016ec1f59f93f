"""Reading ten million rows of curves: time against a bare scan of the same columns, and memory; and a report."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.figure import Figure

_CELLS, _SEEDS, _FRAMES = 2_000, 5, 1_000
_PACK_CELLS = 20
_METRIC = "clean_test_accuracy"
_MEASURES = {
    "scan": "scan()",
    "curve": "sweep.curve(METRIC)",
    "by": "sweep.curve(METRIC, by='noise_rate')",
    "cells": "sweep.cells(METRIC, at=4000)",
    "one": "sweep.curve(METRIC, where={'cell_id': cell})",
}
# Each runs in its own process, so that its memory is its own. CPU time: other processes disturb it less.
_SCRIPT = """
import json, re, sys, time
import pyarrow.dataset as ds
import mislabel
METRIC, folder, repeat = sys.argv[1], sys.argv[2], 5
sweep = mislabel.load(folder, "large")
cell = sorted(sweep.read("runs", ["cell_id"])["cell_id"])[4321]
def scan():
    return ds.dataset(f"{folder}/large/curves").to_table(columns=["run_id", "step", METRIC])
def measure():
    return eval(sys.argv[3])
measure()
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1e3
times = []
for _ in range(repeat):
    began = time.process_time()
    measure()
    times.append(time.process_time() - began)
print(json.dumps([min(times), peak]))
"""


def reading_ten_million_rows() -> Iterator[Figure]:
    """The fastest of five, in CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        _write(folder)
        found = {name: _measured(folder, code) for name, code in _MEASURES.items()}
    scan, _ = found["scan"]
    yield Figure("bare pyarrow scan of 10 million rows of curves", scan, "s")
    for name, title in (("curve", "curve per cell"), ("by", "curve by a parameter"), ("cells", "cells at a step")):
        seconds, megabytes = found[name]
        yield Figure(f"{title}, over the scan", seconds / scan, "×", 1.5)
        yield Figure(f"{title}, memory", megabytes, "MB", 1000)
    yield Figure("curve of one cell, over the scan", found["one"][0] / scan, "×", 0.1)


def writing_a_report() -> Iterator[Figure]:
    """CPU time of a new Python that writes the report of a search of 60 cells × 5 seeds; the fastest of three."""
    script = (
        "import sys, time, mislabel\n"
        "from mislabel.analysis.report.report import Report\n"
        "Report(mislabel.load(sys.argv[1], 'small')).html()\n"
        "print(time.process_time())"
    )
    with tempfile.TemporaryDirectory() as folder:
        spec = {
            "name": "small", "task": "xor_clusters", "method": "random", "budget": {"cells": 60}, "seeds": 5,
            "metric": {"name": _METRIC, "goal": "maximize"},
            "parameters": {
                "noise_rate": {"min": 0.0, "max": 0.4}, "step_size": {"min": 0.01, "max": 1.0, "scale": "log"},
                "init_scale": {"min": 0.01, "max": 1.0, "scale": "log"}, "dim": {"values": [5, 10]},
                "samples": 20, "width": 10, "test_samples": 60, "steps": 100, "frames": 20,
            },
        }  # fmt: skip
        path = Path(folder, "small.yaml")
        path.write_text(json.dumps(spec))
        mislabel = [sys.executable, "-P", "-m", "mislabel.sweeps.commands.main"]
        command = [*mislabel, "run", str(path), "--inline", "--no-mlflow", "--store", folder]
        subprocess.run(command, check=True, capture_output=True)
        times = [
            float(subprocess.run([sys.executable, "-c", script, folder], check=True, capture_output=True).stdout)
            for _ in range(3)
        ]
    yield Figure("report of 60 cells", min(times), "s", 2)


def _measured(folder: str, code: str) -> tuple[float, float]:
    command = [sys.executable, "-c", _SCRIPT, _METRIC, folder, code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = json.loads(done.stdout.splitlines()[-1])
    return float(seconds), float(megabytes)


def _write(folder: str) -> None:
    """A finished sweep as the workers of a grid write it: a part per pack, step by step, merged at the end."""
    import pyarrow as pa

    from mislabel.sweeps.cells.space import Space
    from mislabel.sweeps.checks.reader import checked_spec
    from mislabel.sweeps.spec.document import Document
    from mislabel.sweeps.store.store import Store

    values: dict[str, Any] = {
        "name": "large",
        "task": "xor_clusters",
        "metric": {"name": _METRIC, "goal": "maximize"},
        "parameters": {
            "noise_rate": {"min": 0.0, "max": 0.4, "points": 20},
            "step_size": {"min": 0.01, "max": 1.0, "scale": "log", "points": _CELLS // 20},
        },
        "seeds": _SEEDS,
    }
    spec, task = checked_spec(Document("bench", values))
    store = Store(folder)
    store.prepare()
    files = store.sweep("large", 1)
    files.revise_spec(spec.to_yaml())
    (cells,) = Space(spec, task).cells()
    rng = np.random.default_rng(0)
    for begin in range(0, _CELLS, _PACK_CELLS):
        lanes = [(i, seed) for i in range(begin, begin + _PACK_CELLS) for seed in range(_SEEDS)]
        curves = rng.random((_FRAMES, len(lanes)))
        ids = {
            "run_id": [f"{cells.ids[i]}-{seed}" for i, seed in lanes],
            "cell_id": [cells.ids[i] for i, _ in lanes],
            "seed": [seed for _, seed in lanes],
            "pack_id": [f"p{begin}"] * len(lanes),
        }
        rows = {name: np.tile(np.array(column), _FRAMES) for name, column in ids.items()}
        rows["step"] = np.repeat(np.arange(_FRAMES) * 8, len(lanes))
        metrics = {name: np.roll(curves, shift).ravel() for shift, name in enumerate([_METRIC, "margin", "train_loss"])}
        constant = {"status": "done", "attempt": 1, "step": 8 * (_FRAMES - 1), "task": "xor_clusters"}
        runs = {**ids, **{name: [value] * len(lanes) for name, value in constant.items()}, _METRIC: curves[-1]}
        runs |= {name: [cells.columns[name][i] for i, _ in lanes] for name in cells.columns}
        files.write_results({"runs": pa.table(runs), "curves": pa.table({**rows, **metrics})})
    files.compact()
    store.sweep("large", 2).remove_replaced()


MEASURES = (reading_ten_million_rows, writing_a_report)
