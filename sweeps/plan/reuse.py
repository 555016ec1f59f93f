"""Reuse runs of other sweeps of the store: runs with the same id have the same result.

A sweep whose cells are known copies the runs before it starts. A search copies the runs of a cell when it proposes the
cell, and a seed race those of further seeds when a cell gets them.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.ids import run_id
from mislabel.sweeps.plan.data_check import changed_data
from mislabel.sweeps.spec.model import Axis, Spec
from mislabel.sweeps.store.outcome import ENDED, Outcome, Status
from mislabel.sweeps.store.parts import TABLES
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store, SweepFiles

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Copied:
    """Rows that were copied from another sweep."""

    runs: pa.Table
    curves: pa.Table

    def outcomes(self, objectives: Iterable[str]) -> Iterator[Outcome]:
        names = [name for name in objectives if name in self.runs.column_names]
        for row in self.runs.select(["cell_id", "seed", "status", "step", *names]).to_pylist():
            metrics = {name: row[name] for name in names if row[name] is not None}
            yield Outcome(row["cell_id"], row["seed"], Status(row["status"]), metrics, row["step"])


class Reuse:
    """The runs that other sweeps of the store have. The other sweeps are read once, when the first run is looked up.

    Only runs that ended by themselves are reused. A run that was stopped early was compared with other cells, by the
    other sweep's rule.
    """

    def __init__(self, space: Space, store: Store, files: SweepFiles, data: Mapping[str, str]) -> None:
        """`data` are the checksums of the data sets that this sweep reads: a sweep that read others has other runs."""
        self._space = space
        self._store = store
        self._files = files
        self._data = data
        self._counts: Counter[str] = Counter()
        """By sweep, how many runs were copied from it and not logged yet."""

    def expected_runs(self, index: RunIndex) -> dict[str, list[str]]:
        """By sweep, the runs that will be copied, as far as they are known. A search repeats that of another sweep."""
        spec = self._space.spec
        if not spec.method.learns:
            return self.known_cells(index)
        other = None if index.count else self.same_search()
        first = {run for run in self._donors if int(run.rpartition("-")[2]) in spec.seed_range}
        return {other.name: sorted(run for run in first if self._donors[run] == other.name)} if other else {}

    def known_cells(self, index: RunIndex) -> dict[str, list[str]]:
        """By sweep, the runs that this sweep lacks and that one has. A search has none: its cells are not known yet."""
        spec = self._space.spec
        if spec.method.learns or not self._donors:
            return {}
        seeds = spec.seed_range
        cells = (cell for cells in self._space.cells() for cell in cells.ids)
        return self._found(run_id(c, seed) for c in cells for seed in index.missing_seeds(c, seeds, retry=True))

    def same_search(self) -> SweepFiles | None:
        """The sweep whose search is the same as this one's and has the most runs; None if there is none."""
        names = Counter(self._donors.values())
        wanted = _search_of(self._space.spec)
        for name, _ in names.most_common():
            with suppress(StoreError):
                files = self._files.sibling(name)
                if (other := files.spec()) is not None and _search_of(other) == wanted:
                    return files
        return None

    def copy(self, runs: Iterable[str], index: RunIndex) -> list[Copied]:
        """Copy the rows of those of these runs that other sweeps have, and add them to the index.

        The launches of the other sweep are copied too: they are the provenance of its runs.
        """
        return [copied for name, found in self._found(runs).items() if (copied := self._copy(name, found, index))]

    def _copy(self, name: str, runs: list[str], index: RunIndex) -> Copied | None:
        files, donor, chosen = self._files, self._store.sweep(name), pc.field("run_id").isin(runs)
        try:
            tables = {t: donor.read(t, where=chosen) for t in TABLES if t != "runs" and donor.parts(t)}
            tables["runs"] = donor.read_filled(self._space.task.earlier, where=chosen)
        except StoreError:  # a part is damaged
            self._forget(name)
            return None
        for launch in set(donor.names("launches")) - set(files.names("launches")):
            if found := donor.launch(launch):
                files.write_json(f"launches/{launch}", found)
        if self._space.spec.keep == "weights":
            # Weights come first: a run that has a row has its weights.
            for run in runs:
                files.save_weights(run, donor.load_weights(run) or b"")
        files.write_results(tables)
        index.add(tables["runs"])
        self._counts[name] += len(runs)
        return Copied(tables["runs"], tables.get("curves", pa.table({})))

    def log_counts(self) -> None:
        """Log how many runs were copied since the last call."""
        for name, runs in self._counts.items():
            _log.info(
                "%s same as in %s: copied from there", "1 run is the" if runs == 1 else f"{runs:,} runs are the", name
            )
        self._counts.clear()

    def _found(self, runs: Iterable[str]) -> dict[str, list[str]]:
        """By sweep, those of the runs that it has."""
        found: dict[str, list[str]] = {}
        for run in runs if self._donors else ():
            if name := self._donors.get(run):
                found.setdefault(name, []).append(run)
        return found

    def _forget(self, name: str) -> None:
        for run in [run for run, donor in self._donors.items() if donor == name]:
            del self._donors[run]

    @cached_property
    def _donors(self) -> dict[str, str]:
        """The runs of other sweeps with the same task, and which sweep has them."""
        spec, donors = self._space.spec, dict[str, str]()
        for name in self._store.names():
            files = self._store.sweep(name)
            with suppress(StoreError):  # a damaged sweep is reported when it is run itself
                if name == spec.name or not self._may_share_cells(files) or not files.parts("runs"):
                    continue
                if self._data and changed_data(self._data, files):
                    continue
                rows = files.read("runs", ["run_id"], pc.field("status").isin(list(ENDED)))
                runs = set(rows["run_id"].to_pylist())
                if spec.keep == "weights":
                    runs &= set(files.runs_with_weights())
                donors |= dict.fromkeys(runs, name)
        return donors

    def _may_share_cells(self, files: SweepFiles) -> bool:
        """Whether the sweep can have cells of this one, by its spec. Sweeps of other tasks are not even parsed."""
        task = self._space.task
        text = files.read_text("spec.yaml") or ""
        if not re.search(rf"^task: ['\"]?{re.escape(task.name)}['\"]?\s*$", text, re.MULTILINE):
            return False
        other = files.spec()
        return other is not None and not any(
            _differ(self._space.spec, other, name, parameter.default)
            for name, parameter in task.parameters.items()
            if name not in task.earlier
        )


def _search_of(spec: Spec) -> dict[str, Any]:
    """Everything that proposals depend on, except for results and `budget.cells`."""
    names = (
        "task",
        "method",
        "metric",
        "parameters",
        "exclude",
        "zip",
        "try_first",
        "baselines",
        "start_from",
        "seeds",
    )
    return spec.model_dump(include={*names, "early_terminate"})


def _differ(spec: Spec, other: Spec, name: str, default: object) -> bool:
    """Whether the parameter has one value in all cells of each spec, and these values differ."""
    mine, theirs = spec.parameters.get(name, default), other.parameters.get(name, default)
    return not isinstance(mine, Axis) and not isinstance(theirs, Axis) and mine != theirs
