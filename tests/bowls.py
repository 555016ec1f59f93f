"""Sweeps of the `bowl` task, from spec to store, in this process."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import torch

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.pack_size import Profiler, Sizing
from mislabel.sweeps.run.launch import Launch, Machine, prepare, run_inline
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Means
from mislabel.sweeps.store.parts import TABLES
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.registry import find_task

CPU = torch.device("cpu")
BOWL = find_task("bowl")
MACHINE = Machine(workers=1, memory_bytes=1 << 30, device=CPU)
# Columns of `runs` that may differ between two ways of running the same sweep.
CIRCUMSTANCES = ["pack_id", "pack_lanes", "attempt", "train_seconds", "started_at", "finished_at", "host", "device"]
CIRCUMSTANCES += ["commit"]


def bowl_values(**changes: Any) -> dict[str, Any]:
    """A small good spec as plain values, with some keys changed."""
    values: dict[str, Any] = {
        "name": "bowls",
        "task": "bowl",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"x": {"values": [0.0, 1.0, 2.0]}},
        "seeds": 2,
        # Sizes are else found by trying them, which takes a moment.
        "resources": {"pack": 4},
    }
    return copy.deepcopy({**values, **changes})


def bowl_spec(**changes: Any) -> Spec:
    spec, _ = checked_spec(Document("bowls.yaml", bowl_values(**changes)))
    return spec


def prepared(store: Store, retry: bool = False, machine: Machine = MACHINE, **changes: Any) -> Launch:
    spec = bowl_spec(**changes)
    # Launches that a test left half-way count as dead.
    return prepare(spec, find_task(spec.task), store, retry, take_over=True).start(machine)


def run(store: Store, show: Callable[[Launch], None] | None = None, retry: bool = False, **changes: Any) -> Launch:
    """Run a sweep to its end; `show` is called whenever a worker has reported."""
    launch = prepared(store, retry, **changes)
    run_inline(launch.driver, launch.files, CPU, lambda: show(launch) if show else None)
    launch.finish()
    return launch


def store_speeds(files: SweepFiles, seconds: dict[int, float]) -> None:
    """Store a speed for each width as if it had been measured."""
    cell = {name: parameter.default for name, parameter in BOWL.parameters.items()}
    sizing = Sizing(BOWL, files, Profiler(CPU), 1 << 30, 1)
    speed = {"measure_seconds": 0.0, "lane_bytes": 100, "more_may_pay": False}
    speeds = {sizing._key({**cell, "width": w}): {**speed, "run_step_seconds": {1: s}} for w, s in seconds.items()}
    files.write_json("speeds.json", speeds)


def orders_of(launch: Launch) -> list[PackOrder]:
    """The packs of a launch of a grid."""
    return list(launch.driver.backlog.orders(launch.plan.space.cells))


def means_of(spec: Spec, files: SweepFiles, retry: bool = False) -> Means:
    """The means of the cells in the store."""
    return Means(spec, RunIndex(spec, files), retry)


def cut_short(files: SweepFiles, runs: Sequence[str], step: int) -> None:
    """Make it as if a rule had stopped these runs at the step."""
    tables = {name: files.read(name) for name in TABLES}
    rows = {name: table.to_pylist() for name, table in tables.items()}
    for name in ("curves", "arrays"):
        rows[name] = [row for row in rows[name] if row["run_id"] not in runs or row["step"] <= step]
    last = {(row["run_id"], row["step"]): row for row in rows["curves"]}
    for row in rows["runs"]:
        if row["run_id"] in runs:
            row.update(last[row["run_id"], step], status="stopped")
    changed = {name: pa.Table.from_pylist(rows[name], tables[name].schema) for name in TABLES}
    files.write_results(changed, replaces=files.parts("runs"))


def runs_of(files: SweepFiles) -> pd.DataFrame:
    """`runs` without what may differ from one way of running to another."""
    table: pd.DataFrame = files.read("runs").to_pandas()
    return table.drop(columns=CIRCUMSTANCES).sort_values("run_id", ignore_index=True)


def curves_of(files: SweepFiles) -> pd.DataFrame:
    table: pd.DataFrame = files.read("curves").to_pandas()
    return table.drop(columns="pack_id").sort_values(["run_id", "step"], ignore_index=True)
