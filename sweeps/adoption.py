"""Take over runs that another sweep of the store has already: a run's id says that its result would be the same."""

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from sweeps.identity import pack_id, run_id
from sweeps.outcome import ENDED
from sweeps.plan import Ended, missing_seeds
from sweeps.space import Space
from sweeps.spec import Spec, spec_from_stored
from sweeps.store import TABLES, Store, SweepFiles
from tasks.task import Task


def adopt(spec: Spec, task: Task[Any], store: Store) -> dict[str, int]:
    """Copy the rows of runs that this sweep lacks and another has; returns how many came from which sweep.

    A search's cells are not known beforehand, so there is nothing to look for.
    """
    found = adoptable(spec, task, store)
    for name, runs in found.items():
        _copy(store.sweep(name), store.sweep(spec.name), runs)
    return {name: len(runs) for name, runs in found.items()}


def adoptable(spec: Spec, task: Task[Any], store: Store) -> dict[str, list[str]]:
    """The runs that this sweep lacks and another has, by sweep."""
    donors = {} if spec.method.name == "tpe" else _donors(spec, store)
    return _wanted(spec, task, store.sweep(spec.name), donors) if donors else {}


def _donors(spec: Spec, store: Store) -> dict[str, str]:
    """Runs of other sweeps of the same task, with the sweep that has them."""
    donors: dict[str, str] = {}
    for name in store.names():
        files = store.sweep(name)
        stored = files.read_text("spec.yaml")
        if name == spec.name or not stored or not files.parts("runs") or spec_from_stored(stored).task != spec.task:
            continue
        rows = files.read("runs", ["run_id"], pc.field("status").isin(list(ENDED)))
        donors |= dict.fromkeys(rows["run_id"].to_pylist(), name)
    return donors


def _wanted(spec: Spec, task: Task[Any], files: SweepFiles, donors: Mapping[str, str]) -> dict[str, list[str]]:
    ended = Ended(files)
    wanted: dict[str, list[str]] = {}
    for cells in Space(spec, task).cells():
        for cell in cells.ids:
            for seed in missing_seeds(spec, ended, cell, retry=True):
                run = run_id(cell, seed)
                if run in donors:
                    wanted.setdefault(donors[run], []).append(run)
    return wanted


def _copy(donor: SweepFiles, files: SweepFiles, runs: list[str]) -> None:
    chosen = pc.field("run_id").isin(runs)
    tables = {table: donor.read(table, where=chosen) for table in TABLES if donor.parts(table)}
    files.write_results(pack_id(runs), tables)
