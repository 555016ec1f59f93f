"""Sweeps of bowls that the fault suite disturbs, and what must be the same afterwards.

Every method has one small sweep. It takes a checkpoint after every frame, so that it does with a store whatever a long
one does.
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import yaml
from pyarrow import fs

from mislabel.sweeps.plan.stages import FILE as STAGES
from mislabel.sweeps.store.filesystem import opened
from mislabel.sweeps.store.store import Store
from tests.bowls import CIRCUMSTANCES, bowl_values
from tests.cluster.objects import ENVIRONMENT, ObjectStore
from tests.faults.forks import forked, mislabel
from tests.faults.taps import Fault, Operation, tapped

BASE = {"x": {"values": [0.0, 1.0, 2.0]}, "snapshots": 1}
RANGE = {"x": {"min": -5.0, "max": 5.0}}
LOSS, HEIGHT = ({"name": name, "goal": "minimize"} for name in ("loss", "height"))
LEARNS: dict[str, Any] = {"parameters": RANGE, "budget": {"cells": 6}, "seeds": 1, "resources": {"pack": 2}}
ASHA = {"type": "asha", "min_steps": 2, "eta": 2}
FIVE = {"x": {"values": [2.0, 3.0, 0.0, 4.0, -4.0]}, "frames": 5}
CLOSE = {"x": {"values": [2.99, 3.0, 3.01]}}
METHODS: dict[str, dict[str, Any]] = {
    "grid": {"parameters": BASE, "resources": {"pack": 2}},
    "weights": {"parameters": BASE, "keep": "weights", "seeds": 1, "resources": {"pack": 2}},
    "tpe": {**LEARNS, "method": {"name": "tpe", "startup": 3}},
    "cmaes": {**LEARNS, "method": {"name": "cmaes", "startup": 2}},
    "nsga2": {**LEARNS, "method": {"name": "nsga2", "population": 3}, "metric": [LOSS, HEIGHT]},
    "asha": {"parameters": FIVE, "early_terminate": ASHA, "resources": {"pack": 2}},
    "hyperband": {"parameters": FIVE, "early_terminate": {**ASHA, "type": "hyperband"}, "resources": {"pack": 2}},
    "race": {"parameters": CLOSE, "seeds": {"count": 2, "up_to": 5}, "resources": {"pack": 4}},
    "tpe + asha + race": {
        "method": {"name": "tpe", "startup": 3}, "parameters": {"x": {"min": 2.99, "max": 3.01}, "frames": 5},
        "early_terminate": {**ASHA, "eta": 3}, "seeds": {"count": 2, "up_to": 4}, "budget": {"cells": 8},
        "resources": {"pack": 4},
    },
}  # fmt: skip
"""By name, what a sweep of bowls changes in its spec."""
MOST_GENERATIONS = 3
"""Generations of which files of a lease may be left."""
KEYS = {"runs": ["run_id"], "curves": ["run_id", "step"], "arrays": ["run_id", "step", "metric"]}


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """A running S3 server. Calls pytest.skip if none is installed."""
    folder.mkdir()
    server = ObjectStore(folder)
    with mock.patch.dict(os.environ, ENVIRONMENT):
        try:
            server.start()
            yield server
        finally:
            server.end()


def run_undisturbed(spec: Path, store: str, *options: str, seconds: float = 120.0) -> list[Operation]:
    """Run the sweep to its end; returns the operations on its store."""
    record = spec.with_suffix(".operations")
    words = (str(spec), store, Fault(), str(record), *options)
    forked(run_sweep, *words, folder=spec.parent, seconds=seconds).expect(0)
    return [Operation(**each) for each in json.loads(record.read_text())]


def write_spec(folder: Path, method: str) -> Path:
    folder.mkdir(parents=True)
    spec = folder / "bowls.yaml"
    spec.write_text(yaml.safe_dump(bowl_values(**METHODS[method])))
    return spec


def run_sweep(spec: str, store: str, fault: Fault | None = None, record: str = "", *options: str) -> None:
    """`mislabel run` in this process, with a checkpoint after every frame."""
    from mislabel.sweeps.run import live_rows, worker

    os.environ["GIT_DIR"] = os.devnull  # the commit of the code is not asked for
    worker.STRETCH_SECONDS, worker.CHECKPOINT_SECONDS, worker.CHECKPOINT_SHARE = 0.0, 0.0, float("inf")
    live_rows.FIRST_SECONDS = live_rows.EVERY_SECONDS = live_rows.LONGEST_SECONDS = 0.0
    with tapped(store, fault) as operations:
        try:
            mislabel("run", spec, "--store", store, "--inline", *(options or ("--no-mlflow",)))
        finally:
            if record:
                Path(record).write_text(json.dumps([vars(each) for each in operations]))


def exit_code_of(work: Callable[..., None], *arguments: Any) -> int:
    try:
        work(*arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def continue_and_compare(spec: str, store: str, undisturbed: str, *options: str) -> None:
    """Complete the sweep, and fail if it then differs from the one that nothing disturbed."""
    code = exit_code_of(run_sweep, spec, store, None, "", *options)
    assert code == 0, f"exit code {code}"
    compare(store, undisturbed)


def compare(store: str, undisturbed: str) -> None:
    """Fail if the sweep differs from the one that nothing disturbed, or has files that the other does not have."""
    for table in KEYS:
        assert_same_table(table_of(store, table), table_of(undisturbed, table))
    ours, theirs = (kinds_of_files(each) for each in (store, undisturbed))
    assert ours == theirs, f"files that differ in number: {sorted(ours.items() ^ theirs.items())}"
    ours, theirs = (weights_of(each) for each in (store, undisturbed))
    assert ours == theirs, "weights differ"


def table_of(store: str, name: str, sweep: str = "bowls") -> pd.DataFrame:
    """The table without what may differ between two ways of running the same sweep."""
    table: pd.DataFrame = Store(store).sweep(sweep).read(name).to_pandas()
    table = table.drop(columns=CIRCUMSTANCES, errors="ignore")
    return table.sort_values(KEYS[name], ignore_index=True) if len(table) else table


def assert_same_table(ours: pd.DataFrame, theirs: pd.DataFrame) -> None:
    """Value for value, to the last bit."""
    for frame in (ours, theirs):
        for name in frame.columns:
            if len(frame) and isinstance(frame[name].iloc[0], np.ndarray):
                frame[name] = [value.tobytes() for value in frame[name]]
    pd.testing.assert_frame_equal(ours, theirs, check_exact=True, check_like=True)


def kinds_of_files(store: str) -> dict[str, Any]:
    """How many files of each kind a store has, except for those of MLflow and those that launches add.

    A batch of proposals counts once: those of a replaced driver stay beside those of its successor, without effect.
    """
    filesystem, root = opened(store)
    names: dict[str, set[str]] = defaultdict(set)
    for info in filesystem.arrow.get_file_info(fs.FileSelector(root, recursive=True)):
        path = Path(info.path).relative_to(root)
        is_mlflows = path.name.lstrip(".").startswith("mlflow.") or "mlartifacts" in path.parts
        if info.type == fs.FileType.File and not is_mlflows and not {"launches", "revisions", STAGES} & {*path.parts}:
            kind = path.with_name(f"{'.*' if path.name.startswith('.') else '*'}{path.suffix}")
            names[str(kind)].add(path.name.lstrip(".").partition(".")[0] if "proposals" in path.parts else path.name)
    found = {kind: len(files) for kind, files in names.items()}
    for folder in ("lease", "progress"):
        assert found.pop(f"bowls/{folder}/*.json", 0) <= MOST_GENERATIONS, f"too many files in {folder}"
    return found


def weights_of(store: str) -> dict[str, Any]:
    """The content of each file of trained weights."""
    files = Store(store).sweep("bowls")
    return {run: files.load_weights(run) for run in files.runs_with_weights()}
