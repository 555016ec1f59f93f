"""The driver ends before, during or after each operation on the store; the same command then completes the sweep.

In a folder, a driver that ends leaves the files as they are at that moment. So one run gives all crashes: we copy the
folder at each moment, and complete the sweep from every copy. That takes a quarter of the time of ending the driver at
each moment, because many moments leave the same files. Object stores and MLflow views are tested with real crashes.
"""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.objects import ObjectStore
from tests.faults.bowl_sweeps import (
    METHODS,
    continue_and_compare,
    exit_code_of,
    object_store,
    run_sweep,
    run_undisturbed,
    write_spec,
)
from tests.faults.forks import forked
from tests.faults.suite import Case, scratch
from tests.faults.taps import Crash, Operation, Snapshots

MARKS = ("server",)
SAMPLE = 3
"""Crashes of each method in a sample."""
OBJECT_METHODS = ("grid", "tpe", "asha", "race")
VIEW_SECONDS = 240.0


def cases(full: bool) -> Iterator[Case | list[Case]]:
    with scratch("crash-points") as folder:
        for method in METHODS:
            part = folder / method.replace(" ", "")
            yield left_behind(method, part, None if full else SAMPLE)
            shutil.rmtree(part)
        for method in ("grid", "tpe") if full else ("grid",):
            viewed = Crashed(method, folder / f"{method}-view", "--mlflow")
            yield viewed.cases("store in a folder, with an MLflow view: the driver ends", 12 if full else 1)
        yield from on_object_store(folder, full)


def left_behind(method: str, folder: Path, most: int | None) -> list[Case]:
    """A case for each state that a driver which ends at some operation leaves behind, or this many of them."""
    spec, undisturbed = write_spec(folder, method), folder / "undisturbed"
    states = folder / "states"
    forked(run_and_copy, str(spec), str(undisturbed), str(states), folder=folder, seconds=300).expect(0)
    found = json.loads((states / "states.json").read_text())
    step = -(-len(found) // most) if most else 1
    what = f"{method}, store in a folder: the driver ends at each operation"
    return [
        Case(what, moments[0], partial(complete, spec, states / name, undisturbed), len(moments))
        for name, moments in list(found.items())[step // 2 :: step]
    ]


def run_and_copy(spec: str, store: str, states: str) -> None:
    """Run the sweep, and copy its store before, during and after each operation."""
    snapshots = Snapshots(store, states)
    Path(states).mkdir()
    code = exit_code_of(run_sweep, spec, store, snapshots)
    Path(states, "states.json").write_text(json.dumps(snapshots.states))
    assert code == 0, f"exit code {code}"


def complete(spec: Path, state: Path, undisturbed: Path, folder: Path) -> None:
    store = folder / "store"
    if state.exists():
        state.rename(store)
    forked(continue_and_compare, str(spec), str(store), str(undisturbed), folder=folder).expect(0)


def on_object_store(folder: Path, full: bool) -> Iterator[Case | list[Case]]:
    what = "store in an S3 bucket: the driver ends at an operation"
    try:
        with object_store(folder / "objects") as server:
            for method in OBJECT_METHODS if full else ("grid",):
                sweep = Crashed(method, folder / f"{method}-objects", server=server)
                yield sweep.cases(what, 20 if full else 2)
    except pytest.skip.Exception as skipped:
        reason = str(skipped)
        yield Case(what, "all", lambda folder: pytest.skip(reason))


class Crashed:
    """A sweep of bowls, and cases in which its driver crashes."""

    def __init__(self, method: str, folder: Path, *options: str, server: ObjectStore | None = None) -> None:
        self.method = method
        self.spec = write_spec(folder, method)
        self.server = server
        self.has_view = "--mlflow" in options
        self.undisturbed = self._store(folder / "undisturbed")
        self.operations = run_undisturbed(self.spec, self.undisturbed, *self._options(self.undisturbed), seconds=300)

    def _store(self, folder: Path) -> str:
        return str(folder) if self.server is None else self.server.address(folder.parent.name + folder.name)

    def _options(self, store: str) -> tuple[str, ...]:
        return ("--mlflow", f"sqlite:///{store}/mlflow.db") if self.has_view else ("--no-mlflow",)

    def cases(self, what: str, most: int) -> list[Case]:
        """This many crashes."""
        points = [
            (operation, moment)
            for operation in self.operations
            for moment in ("before", "during", "after")
            if moment != "during" or operation.kind == "write"
        ]
        step = -(-len(points) // most)
        return [
            Case(f"{self.method}, {what}", f"{moment} {operation}", partial(self.crash, operation, moment))
            for operation, moment in points[step // 2 :: step]
        ]

    def crash(self, operation: Operation, moment: str, folder: Path) -> None:
        store = self._store(folder / "store")
        options, crash = self._options(store), Crash(operation.number, moment)
        crashed = forked(run_sweep, str(self.spec), store, crash, "", *options, folder=folder, seconds=VIEW_SECONDS)
        crashed.expect(Crash.CODE, 0)  # 0: a thread did the operation of this number
        words = (str(self.spec), store, self.undisturbed, *options)
        forked(continue_and_compare, *words, folder=folder, seconds=VIEW_SECONDS).expect(0)
        if self.has_view:
            forked(expect_view, str(self.spec), store, folder=folder).expect(0)


def expect_view(spec: str, store: str) -> None:
    """Fail unless MLflow shows every cell of the sweep, without the help of `mislabel sync`."""
    import sqlite3

    from mislabel.analysis.mlflow_view.view import View
    from mislabel.sweeps.store.store import Store

    files = Store(store).sweep("bowls")
    assert View(files, f"sqlite:///{store}/mlflow.db").is_complete()
    cells = len(set(files.read("runs", ["cell_id"])["cell_id"].to_pylist()))
    with sqlite3.connect(f"{store}/mlflow.db") as database:
        shown = database.execute("select count(*) from runs where lifecycle_stage = 'active'").fetchone()[0]
    assert shown == cells + 1, f"MLflow has {shown} runs instead of {cells} cells and the sweep"
