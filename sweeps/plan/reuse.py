"""Reuse runs of other sweeps of the store: runs with the same id have the same result."""

from collections.abc import Mapping
from contextlib import suppress

import pyarrow.compute as pc

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.data_check import changed_data
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.outcome import ENDED
from mislabel.sweeps.store.parts import TABLES
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store, SweepFiles


def reuse(space: Space, store: Store, files: SweepFiles, index: RunIndex, data: Mapping[str, str]) -> dict[str, int]:
    """Copy the rows of runs that this sweep lacks and other sweeps have; returns how many runs came from each sweep.

    The rows are added to `index`. The launches of the other sweep are copied too: they are the provenance of its runs.
    """
    reused = {}
    for name, runs in reusable_runs(space, store, index, data).items():
        donor, chosen = store.sweep(name), pc.field("run_id").isin(runs)
        try:
            tables = {t: donor.read(t, where=chosen) for t in TABLES if t != "runs" and donor.parts(t)}
            tables["runs"] = donor.read_filled(space.task.earlier, where=chosen)
        except StoreError:  # a part is damaged
            continue
        for launch in set(donor.names("launches")) - set(files.names("launches")):
            if found := donor.launch(launch):
                files.write_json(f"launches/{launch}", found)
        files.write_results(tables)
        index.add(tables["runs"])
        reused[name] = len(runs)
    return reused


def reusable_runs(space: Space, store: Store, index: RunIndex, data: Mapping[str, str]) -> dict[str, list[str]]:
    """By sweep, the runs that this sweep lacks and that one has.

    A search has none, because its cells are not known beforehand. Runs that were stopped early are not reused: they
    were compared with other cells, by another sweep's rule. `data` are the checksums of the data sets that this sweep
    reads: a sweep that read others has other runs.
    """
    donors = {} if space.spec.method.learns else _donors(space.spec, store, data)
    wanted: dict[str, list[str]] = {}
    for cells in space.cells() if donors else ():
        for cell in cells.ids:
            for seed in index.missing_seeds(cell, space.spec.seed_range, retry=True):
                run = run_id(cell, seed)
                if run in donors:
                    wanted.setdefault(donors[run], []).append(run)
    return wanted


def _donors(spec: Spec, store: Store, data: Mapping[str, str]) -> dict[str, str]:
    """The runs of other sweeps with the same task, and which sweep has them."""
    donors: dict[str, str] = {}
    for name in store.names():
        files = store.sweep(name)
        if name == spec.name:
            continue
        with suppress(StoreError):  # a damaged sweep is reported when it is run itself
            stored = files.spec()
            if stored is None or stored.task != spec.task or not files.parts("runs"):
                continue
            if data and changed_data(data, files):
                continue
            rows = files.read("runs", ["run_id"], pc.field("status").isin(list(ENDED)))
            donors |= dict.fromkeys(rows["run_id"].to_pylist(), name)
    return donors
