"""The cost of the MLflow view: CPU time per cell, wall time of a sweep, lag and memory."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from tests.benchmarks.figure import Figure

_CELLS, _SEEDS = 200, 5
# Other processes disturb a measurement, so the fastest of these counts.
_TIMES = 3
_PACKS = 100
_LONGEST_LAG_SECONDS = 120.0


def cost_of_tracking_a_cell() -> Iterator[Figure]:
    """A complete sweep of 200 cells of XOR clusters is written. The process has loaded MLflow before."""
    from tests.cluster.postgres import postgres

    with _sweep(steps=50) as store:
        for kind, uri in (("SQLite", f"sqlite:///{store}/mlflow.db"), ("PostgreSQL", None)):
            with postgres() if uri is None else nullcontext() as server:
                address = server.uri if server else str(uri)
                seconds = min(_written_seconds(store, address) for _ in range(_TIMES))
            yield Figure(f"CPU time to write a cell to MLflow, {kind}", 1e3 * seconds / _CELLS, "ms", 15)


def wall_time_with_tracking() -> Iterator[Figure]:
    """`mislabel run` on Ray with an MLflow view in a new SQLite file, over the same without a view."""
    values = _values(steps=20_000)
    seconds = {}
    for option in ("--no-mlflow", ""):
        with tempfile.TemporaryDirectory() as folder:
            spec = Path(folder, "tracked.yaml")
            spec.write_text(_yaml(values))
            words = [sys.executable, "-P", "-m", "mislabel.sweeps.commands.main", "run", str(spec), "--store", folder]
            words += [option] if option else []
            began = time.perf_counter()
            subprocess.run(words, check=True, capture_output=True)
            seconds[option] = time.perf_counter() - began
    without, tracked = seconds.values()
    yield Figure("wall time of a sweep without an MLflow view", without, "s")
    yield Figure("wall time with an MLflow view over without", tracked / without, "×", 1.15)


def lag_with_many_running_packs() -> Iterator[Figure]:
    """Frames of 100 running packs, each with one cell of five seeds, are shown by the process that follows a sweep."""
    from mlflow import MlflowClient

    from mislabel.analysis.mlflow_view.view import following
    from mislabel.sweeps.store.store import Store

    with _sweep(steps=50) as folder:
        files = Store(folder).sweep("tracked")
        uri = f"sqlite:///{folder}/mlflow.db"
        shutil.copy(_empty(), Path(folder, "mlflow.db"))
        rows = _running_rows(files)
        shutil.rmtree(Path(files.address, "runs"))
        shutil.rmtree(Path(files.address, "curves"))
        client = MlflowClient(uri)
        lags, memory = [], []
        with following(files, uri, last_seconds=0.0):
            (follower,) = psutil.Process().children()
            for frames in range(2, 6):
                last = _write_running(files, rows, frames)
                written = time.monotonic()
                while not _shows(client, last):
                    assert time.monotonic() < written + _LONGEST_LAG_SECONDS, "the view does not show running cells"
                    time.sleep(0.2)
                lags.append(time.monotonic() - written)
                memory.append(follower.memory_info().rss / 1e6)
    yield Figure(f"lag of the view with {_PACKS} running packs", max(lags[1:]), "s", 10)
    yield Figure("memory of the view's writer at the end over the start", memory[-1] / memory[1], "×", 1.1)


def _values(steps: int) -> dict[str, Any]:
    return {
        "name": "tracked",
        "task": "misclassification.hypercube",
        "metric": {"name": "test_error", "goal": "minimize"},
        "parameters": {
            "steps": steps,
            "frames": 10,
            "noise_rate": {"min": 0.0, "max": 0.4, "points": 10},
            "learning_rate": {"min": 0.001, "max": 0.1, "scale": "log", "points": _CELLS // 10},
        },
        "seeds": _SEEDS,
    }


def _yaml(values: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(values)


@contextmanager
def _sweep(steps: int) -> Iterator[str]:
    """The folder of a store with the complete sweep, which was trained in this process."""
    import torch

    from mislabel.sweeps.checks.reader import checked_spec
    from mislabel.sweeps.run.launch import Machine, prepare, run_inline
    from mislabel.sweeps.spec.document import Document
    from mislabel.sweeps.store.store import Store

    spec, task = checked_spec(Document("bench", {**_values(steps), "resources": {"pack": 100}}))
    cpu = torch.device("cpu")
    with tempfile.TemporaryDirectory() as folder:
        launch = prepare(spec, task, Store(folder)).start(Machine(1, 1 << 30, cpu))
        run_inline(launch.driver, launch.files, cpu, lambda: None)
        launch.finish()
        yield folder


@cache
def _empty() -> Path:
    """A SQLite file with MLflow's tables."""
    from mlflow import MlflowClient

    file = Path(tempfile.mkdtemp(), "mlflow.db")
    MlflowClient(f"sqlite:///{file}").search_experiments(max_results=1)
    return file


def _written_seconds(store: str, uri: str) -> float:
    """CPU time of a sync in a new process, without the time to load MLflow and to create its tables."""
    code = (
        "import sys, time\n"
        "from mlflow import MlflowClient\n"
        "from mislabel.analysis.mlflow_view.view import View\n"
        "from mislabel.sweeps.store.store import Store\n"
        "files = Store(sys.argv[1]).sweep('tracked')\n"
        "client = MlflowClient(sys.argv[2])\n"
        "for found in client.search_experiments():\n"
        "    if found.name == 'tracked':\n"
        "        client.rename_experiment(found.experiment_id, f'before {time.time()}')\n"
        "began = time.process_time()\n"
        "View(files, sys.argv[2]).sync()\n"
        "print(time.process_time() - began)\n"
    )
    if uri.startswith("sqlite") and not Path(store, "mlflow.db").exists():
        shutil.copy(_empty(), Path(store, "mlflow.db"))
    environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = [sys.executable, "-P", "-c", code, store, uri]
    # MLflow writes the artifacts of a PostgreSQL database to the current directory.
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd=store)
    return float(done.stdout)


def _running_rows(files: Any) -> dict[str, tuple[pa.Table, pa.Table]]:
    """The rows of the first cells as if each were in a pack of its own: runs and curves."""
    runs, curves = files.read("runs"), files.read("curves")
    cells = runs["cell_id"].unique().to_pylist()[:_PACKS]
    return {cell: tuple(_of(table, cell) for table in (runs, curves)) for cell in cells}


def _of(table: pa.Table, cell: str) -> pa.Table:
    import pyarrow.compute as pc

    return table.filter(pc.field("cell_id").cast(pa.string()) == cell)


def _write_running(files: Any, rows: dict[str, tuple[pa.Table, pa.Table]], frames: int) -> int:
    """Write the first frames of all packs as running; returns the last step."""
    import pyarrow.compute as pc

    step = 0
    for cell, (runs, curves) in rows.items():
        step = sorted(set(curves["step"].to_pylist()))[frames - 1]
        count = len(runs)
        columns = {
            "status": ["running"] * count, "step": [step] * count, "trained_steps": [step] * count,
            "updated_at": [datetime.now(UTC)] * count, "expected_end": [None] * count,
        }  # fmt: skip
        table = runs.drop_columns(["finished_at", "error", "status", "step"])
        for name, values in columns.items():
            kind = pa.timestamp("us", tz="UTC") if name.endswith(("_at", "_end")) else None
            table = table.append_column(name, pa.array(values, kind))
        files.write_running(f"pack{cell}", {"runs": table, "curves": curves.filter(pc.field("step") <= step)})
    return step


def _shows(client: Any, step: int) -> bool:
    """Whether all cells have a point at the step."""
    found = client.get_experiment_by_name("tracked")
    if found is None:
        return False
    nested = client.search_runs([found.experiment_id], "tags.`mislabel.kind` = 'cell'", max_results=_PACKS)
    return len(nested) == _PACKS and all(run.data.tags["step"].startswith(f"{step}/") for run in nested)


MEASURES = (cost_of_tracking_a_cell, lag_with_many_running_packs, wall_time_with_tracking)
