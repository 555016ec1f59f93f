"""The driver ends before, during or after each operation on the store; the same command then completes the sweep."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.objects import ObjectStore
from tests.faults.bowl_sweeps import (
    METHODS,
    continue_and_compare,
    object_store,
    run_sweep,
    run_undisturbed,
    write_spec,
)
from tests.faults.forks import forked
from tests.faults.suite import Case, scratch
from tests.faults.taps import Crash, Operation

MARKS = ("server",)
SAMPLE = 3
"""Crashes of each method in a sample."""
OBJECT_METHODS = ("grid", "tpe", "asha", "race")
VIEW_SECONDS = 240.0


def cases(full: bool) -> Iterator[Case | list[Case]]:
    with scratch("crash-points") as folder:
        for method in METHODS:
            sweep = Crashed(method, folder / method.replace(" ", ""))
            yield sweep.cases("store in a folder: the driver ends at each operation", 0 if full else SAMPLE)
        for method in ("grid", "tpe") if full else ("grid",):
            viewed = Crashed(method, folder / f"{method}-view", "--mlflow")
            yield viewed.cases("store in a folder, with an MLflow view: the driver ends", 12 if full else 1)
        yield from on_object_store(folder, full)


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
        """All crashes, or this many."""
        points = [
            (operation, moment)
            for operation in self.operations
            for moment in ("before", "during", "after")
            if moment != "during" or operation.kind == "write"
        ]
        step = -(-len(points) // most) if most else 1
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
