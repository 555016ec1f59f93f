"""Any content of any file of a store: commands work, or name the file. No command fails in another way."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

import mislabel
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store
from tests.bowls import bowl_values, run
from tests.examples import examples
from tests.regression.command_line import call

SWEEPS: dict[str, dict[str, Any]] = {
    "grid": {"parameters": {"x": {"values": [0.0, 1.0, 2.0]}, "snapshots": 1}, "resources": {"pack": 2}},
    "search": {
        "method": {"name": "tpe", "startup": 2}, "parameters": {"x": {"min": -5.0, "max": 5.0}},
        "budget": {"cells": 4}, "seeds": 1, "resources": {"pack": 1},
    },
}  # fmt: skip
TABLES = ("runs", "curves", "arrays")
KINDS = (
    "spec.yaml", "revisions", "launches", "lease", "progress", "checkpoints", "proposals", "speeds.json", "log.txt",
    "stop", "mlflow.json", *TABLES,
)  # fmt: skip


def _stop_early(launch: Launch) -> None:
    if launch.driver.progress.done:
        launch.driver.stop(INTERRUPTED)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two sweeps that were interrupted, and their specs."""
    folder = tmp_path_factory.mktemp("original")
    patch = pytest.MonkeyPatch()
    patch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    for name, changes in SWEEPS.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(bowl_values(name=name, **changes)))
        files = run(Store(str(folder / "store")), _stop_early, name=name, **changes).files
        files.save_checkpoint("0" * 20, b"no checkpoint", [])
        files.write_json("speeds.json", {"shape": {"run_step_seconds": {1: 0.1}, "measure_seconds": 0.1,
                                                    "lane_bytes": 1, "more_may_pay": False}})  # fmt: skip
        files.write_text("log.txt", "messages")
        files.write_json("mlflow.json", {"state": "a", "experiment": "1"})
    patch.undo()
    return folder


def files_of(folder: Path) -> list[str]:
    found = [path.relative_to(folder / "store") for path in sorted((folder / "store").rglob("*")) if path.is_file()]
    return [str(path) for path in found]


def test_the_store_has_files_of_every_kind(original: Path) -> None:
    kinds = {Path(file).parts[1] for file in files_of(original) if "/" in file}
    assert kinds == set(KINDS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=5)
            | st.sampled_from(["runs", "state", "started_at", "git", "layout", "trials", "generation"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@st.composite
def contents(draw: st.DrawFn) -> bytes | None:
    """Arbitrary bytes, JSON or YAML of any shape, or None for a folder."""
    kind = draw(st.sampled_from(["bytes", "json", "yaml", "folder"]))
    if kind == "folder":
        return None
    if kind == "bytes":
        return draw(st.binary(max_size=200))
    value = draw(json_values)
    return (json.dumps(value) if kind == "json" else yaml.safe_dump(value)).encode(errors="surrogatepass")


def attempts(folder: Path, name: str) -> Iterator[Any]:
    """Everything that a user does with a sweep."""
    store, spec = ["--store", str(folder / "store")], str(folder / f"{name}.yaml")
    yield lambda: call("list", *store)
    yield lambda: call("status", name, *store)
    yield lambda: call("plan", spec, *store)
    yield lambda: call("results", name, *store)
    yield lambda: mislabel.load(store[1], name).runs
    yield lambda: mislabel.load(store[1], name).commits
    yield lambda: call("run", spec, "--inline", "--no-mlflow", *store)
    yield lambda: call("results", name, *store)
    yield lambda: mislabel.load(store[1], name).curves


@pytest.mark.long
@pytest.mark.faults
@examples(40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_content_of_any_file_is_ignored_repaired_or_named(
    original: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kind = data.draw(st.sampled_from(["store.json", *KINDS]))
    file = data.draw(st.sampled_from([f for f in files_of(original) if kind in Path(f).parts]))
    content = data.draw(contents())
    folder = tmp_path_factory.mktemp("changed") / "copy"
    shutil.copytree(original, folder)
    path = folder / "store" / file
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    name = Path(file).parts[0] if "/" in file else "grid"
    refusals = []
    for attempt in attempts(folder, name):
        try:
            attempt()
        except MislabelError as error:
            refusals.append(str(error))
    assert [text for text in refusals if str(folder / "store") not in text and name not in text] == []
    if kind != "store.json":
        assert_nothing_else_is_lost(original, folder, name, kind)
    shutil.rmtree(folder)


def assert_nothing_else_is_lost(original: Path, folder: Path, name: str, kind: str) -> None:
    """Runs whose part was not changed are stored as before; the other sweep is untouched."""
    for each in SWEEPS:
        before, after = (_runs(where, each) for where in (original, folder))
        if each == name and kind in TABLES:
            after = after[after["started_at"].isin(before["started_at"])]
            before = before[before.index.isin(after.index)]
        pd.testing.assert_frame_equal(after.loc[before.index, before.columns], before, check_exact=True)


def _runs(folder: Path, name: str) -> pd.DataFrame:
    table: pd.DataFrame = Store(str(folder / "store")).sweep(name).read("runs").to_pandas()
    return table.set_index("run_id").sort_index()
