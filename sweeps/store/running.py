"""The rows of runs that are still training, so that results are visible before runs end.

    <sweep>/running/runs|curves|arrays/<pack>-<generation>.parquet

The worker of a pack writes these files again and again. They contain the frames that its running lanes have measured.
A run that has a result in `runs` does not count here: its final rows replace these, whenever the files are removed. If
a run is in several files because its pack was resumed or refilled, those of the highest generation and step count.

The files need not survive a power cut, so they are not synchronized: checkpoints contain the same frames.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mislabel.sweeps.errors import DamagedFileError
from mislabel.sweeps.store.filesystem import as_store_errors
from mislabel.sweeps.store.outcome import WITH_RESULT
from mislabel.sweeps.store.parts import TABLES, parquet
from mislabel.sweeps.store.upkeep import Upkeep

_log = logging.getLogger(__name__)
FOLDER = RUNNING = "running"
"""The folder, and the `status` of its runs. It is no status of `runs`, which contains ended runs only."""


class Running(Upkeep):
    def write_running(self, pack: str, tables: Mapping[str, pa.Table]) -> None:
        """Replace the rows of the pack's running runs in these tables. Rows of `runs` are written last."""
        with as_store_errors(self.address):
            for table in TABLES:
                if table in tables and tables[table].num_rows:
                    path = self._running_path(table, f"{pack}-{self.generation:06}")
                    self._fs.put(path, parquet(tables[table]), durable=False)

    def drop_running(self, pack: str) -> None:
        """Remove the rows that this generation and earlier ones wrote for the pack."""
        self._remove_running(name for name in self._running_names() if _pack_and_generation(name)[0] == pack)

    def drop_all_running(self) -> None:
        """Remove all rows that this generation and earlier ones wrote, because the sweep is complete."""
        self._remove_running(name for table in TABLES for name in self._running_names(table))

    def drop_ended_running(self) -> None:
        """Remove the rows of packs whose runs all have a result, and files of writers that were killed."""
        parts = self._running_parts()
        ended = self._ended() if parts else frozenset()
        self._remove_running(name for name, rows in parts.items() if ended.issuperset(rows["run_id"].to_pylist()))
        known = set(self._running_names())
        others = {name for table in TABLES for name in self._running_names(table)} - known
        self._remove_running(name for name in others if _pack_and_generation(name)[1] < self.generation)

    def running(self) -> pa.Table:
        """One row per run that is training, or that trained when its driver ended: like `runs`, as far as known.

        `status` is `running`, `step` is the last measured step and `trained_steps` the present one. `expected_end` is
        the worker's estimate.
        """
        parts = self._running_parts()
        if not parts:
            return pa.table({})
        counting = _counting(parts, self._ended())
        tables = [parts[name].filter(_among(runs)) for name, runs in counting.items() if runs]
        return pa.concat_tables(tables, promote_options="permissive") if tables else next(iter(parts.values()))[:0]

    def schema(self, table: str) -> pa.Schema:
        """Names and types of the table's columns. If no run has ended, those of running runs; else empty."""
        found = super().schema(table)
        for name in self._running_names() if not found.names else ():
            if (rows := self._running_rows(table, name)) is not None:
                return rows.schema.remove_metadata()
        return found

    def read(
        self, table: str, columns: Sequence[str] | None = None, where: Any = None, each_run_once: bool = True,
        running: bool = False,
    ) -> pa.Table:  # fmt: skip
        """The table; with `running`, also the rows of runs that are still training. See `Tables.read`."""
        # The running rows are read first: a run that ends meanwhile is among the final rows, and counts once.
        parts = self._running_parts() if running else {}
        rows = self._all_running_rows(table, parts, columns, where)
        final = super().read(table, columns, where, each_run_once)
        found = self._counting_rows(parts, rows, columns) if parts else []
        tables = [final] if final.num_rows or not found else []
        return pa.concat_tables([*tables, *found], promote_options="permissive")

    def read_running(self, table: str, columns: Sequence[str] | None = None, where: Any = None) -> pa.Table | None:
        """The rows of runs that are still training; None if there are none."""
        parts = self._running_parts()
        found = self._counting_rows(parts, self._all_running_rows(table, parts, columns, where), columns)
        return pa.concat_tables(found, promote_options="permissive") if found else None

    def _all_running_rows(
        self, table: str, parts: Iterable[str], columns: Sequence[str] | None, where: Any
    ) -> dict[str, pa.Table | None]:
        wanted = None if columns is None else list(dict.fromkeys([*columns, "run_id"]))
        return {name: self._running_rows(table, name, wanted, where) for name in parts}

    def _counting_rows(
        self, parts: Mapping[str, pa.Table], rows: Mapping[str, pa.Table | None], columns: Sequence[str] | None
    ) -> list[pa.Table]:
        """The rows of each file that count, now."""
        tables = []
        for name, runs in _counting(parts, self._ended()).items() if parts else ():
            if (found := rows[name]) is not None and runs:
                found = found.filter(_among(runs))
                tables.append(found if columns is None else found.select(list(columns)))
        return tables

    def _ended(self) -> frozenset[str]:
        """The runs that have a result."""
        rows = self.read_runs(())
        if not rows.num_rows:
            return frozenset()
        return frozenset(rows.filter(pc.field("status").isin(list(WITH_RESULT)))["run_id"].to_pylist())

    def _running_names(self, table: str = "runs") -> list[str]:
        names = (name for name in self.names(f"{FOLDER}/{table}") if name.endswith(".parquet"))
        return [stem for name in names if _pack_and_generation(stem := PurePath(name).stem)[1] >= 0]

    def _running_parts(self) -> dict[str, pa.Table]:
        """The rows of `runs` in each file."""
        found = {name: self._running_rows("runs", name) for name in self._running_names()}
        return {name: rows for name, rows in found.items() if rows is not None}

    def _running_rows(
        self, table: str, name: str, columns: Sequence[str] | None = None, where: Any = None
    ) -> pa.Table | None:
        """The rows of one file; None if it was removed, or if it is damaged: the checkpoint has the same frames."""
        path = self._running_path(table, name)

        def read() -> pa.Table:
            # Not memory-mapped: the file may be replaced while it is read.
            with self._fs.arrow.open_input_file(path) as stream:
                file = pq.ParquetFile(pa.BufferReader(stream.read()), page_checksum_verification=True)
            absent = set(columns or ()) - set(file.schema_arrow.names)
            if absent or "run_id" not in file.schema_arrow.names:
                raise pa.ArrowInvalid(f"it has no column {', '.join(sorted(absent)) or 'run_id'}")
            rows = file.read().replace_schema_metadata()
            rows = rows if where is None else rows.filter(where)
            return rows if columns is None else rows.select(list(columns))

        try:
            with self._damage_as_store_errors(lambda: path):
                return self._fs.with_retries(read)
        except FileNotFoundError:
            return None
        except DamagedFileError as error:
            if path not in self._reported:
                _log.warning("%s", str(error).partition(";")[0])
            self._reported.add(path)
            return None

    def _remove_running(self, names: Iterable[str]) -> None:
        for name in {name for name in names if _pack_and_generation(name)[1] <= self.generation}:
            for table in reversed(TABLES):
                with as_store_errors(self.address):
                    self._fs.remove(self._running_path(table, name))

    def _running_path(self, table: str, name: str) -> str:
        return f"{self._root}/{FOLDER}/{table}/{name}.parquet"


def _counting(parts: Mapping[str, pa.Table], ended: frozenset[str]) -> dict[str, list[str]]:
    """By file, the runs whose rows count: those without a result, each in the file that knows most about it."""
    best: dict[str, tuple[int, int, str]] = {}
    for name, rows in parts.items():
        generation = _pack_and_generation(name)[1]
        for run, step in zip(rows["run_id"].to_pylist(), rows["step"].to_pylist(), strict=True):
            if run not in ended:
                best[run] = max(best.get(run, (-1, -1, "")), (generation, step, name))
    counting: dict[str, list[str]] = {name: [] for name in parts}
    for run, (_, _, name) in best.items():
        counting[name].append(run)
    return counting


def _pack_and_generation(name: str) -> tuple[str, int]:
    """The generation is -1 if this is not the name of such a file."""
    pack, _, number = name.rpartition("-")
    return pack, int(number) if number.isdecimal() else -1


def _among(runs: Sequence[str]) -> Any:
    return pc.field("run_id").isin(pa.array(runs, pa.string()))
