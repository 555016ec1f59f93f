"""Take over runs that another sweep of the store has already: a run's id says that its result would be the same."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.ids import pack_id, run_id
from mislabel.sweeps.plan.data_check import changed_data
from mislabel.sweeps.plan.plan import missing_seeds
from mislabel.sweeps.spec.model import Spec, spec_from_stored
from mislabel.sweeps.store.earlier_values import read_runs
from mislabel.sweeps.store.ended_runs import Ended
from mislabel.sweeps.store.outcome import ENDED
from mislabel.sweeps.store.store import TABLES, Store, SweepFiles
from mislabel.tasks.task import Task


def reuse(spec: Spec, task: Task[Any], store: Store, data: Mapping[str, str] = MappingProxyType({})) -> dict[str, int]:
    """Copy the rows of runs that this sweep lacks and another has; returns how many came from which sweep.

    The launches of that sweep come with them, as they tell by what the runs were made.

    A search's cells are not known beforehand, so there is nothing to look for. A run that was stopped early is not
    taken over: another sweep's rule, and the cells that it compared with, decided over it. `data` are the checksums of
    what this sweep reads: a sweep that read something else has other runs.
    """
    taken = {}
    for name, runs in reusable_runs(spec, task, store, data).items():
        tables = _tables(store.sweep(name), runs, task)
        if tables:
            files, donor = store.sweep(spec.name), store.sweep(name)
            for launch in set(donor.names("launches")) - set(files.names("launches")):
                files.write_json(f"launches/{launch}", donor.read_json(f"launches/{launch}") or {})
            files.write_results(pack_id(runs), tables)
            taken[name] = len(runs)
    return taken


def reusable_runs(
    spec: Spec, task: Task[Any], store: Store, data: Mapping[str, str] = MappingProxyType({})
) -> dict[str, list[str]]:
    """The runs that this sweep lacks and another has, by sweep."""
    donors = {} if spec.method.learns else _donors(spec, store, data)
    return _wanted(spec, task, store.sweep(spec.name), donors) if donors else {}


def _donors(spec: Spec, store: Store, data: Mapping[str, str]) -> dict[str, str]:
    """Runs of other sweeps of the same task, with the sweep that has them."""
    donors: dict[str, str] = {}
    for name in store.names():
        files = store.sweep(name)
        stored = files.read_text("spec.yaml")
        if name == spec.name or not stored or not files.parts("runs") or spec_from_stored(stored).task != spec.task:
            continue
        if data and changed_data(data, files):
            continue
        with suppress(StoreError):  # its damage is told when it is run itself
            rows = files.read("runs", ["run_id"], pc.field("status").isin(list(ENDED)))
            donors |= dict.fromkeys(rows["run_id"].to_pylist(), name)
    return donors


def _wanted(spec: Spec, task: Task[Any], files: SweepFiles, donors: Mapping[str, str]) -> dict[str, list[str]]:
    ended = Ended(spec, files)
    wanted: dict[str, list[str]] = {}
    for cells in Space(spec, task).cells():
        for cell in cells.ids:
            for seed in missing_seeds(spec.seed_range, ended, cell, retry=True):
                run = run_id(cell, seed)
                if run in donors:
                    wanted.setdefault(donors[run], []).append(run)
    return wanted


def _tables(donor: SweepFiles, runs: list[str], task: Task[Any]) -> dict[str, pa.Table]:
    """All rows of these runs; none where a part is damaged."""
    chosen = pc.field("run_id").isin(runs)
    with suppress(StoreError):
        others = {table: donor.read(table, where=chosen) for table in TABLES if table != "runs" and donor.parts(table)}
        return {**others, "runs": read_runs(donor, task.earlier, where=chosen)}
    return {}
