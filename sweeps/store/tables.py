"""The tables of one sweep: `runs`, `curves` and `arrays`, each stored as Parquet files that we call parts.

A part's name is computed from the runs in it, so writing it again changes nothing. A part's `runs` file is written
last: a run exists once its row in `runs` does.
"""

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mislabel.sweeps.errors import MislabelError, StoreError, nearest
from mislabel.sweeps.ids import pack_id
from mislabel.sweeps.store.filesystem import Files, as_store_errors, within
from mislabel.sweeps.store.outcome import Status
from mislabel.tasks.parameters import Value

SCHEMA = 1
"""The version of the store's layout."""
TABLES = ("curves", "arrays", "runs")
"""In the order of writing: a row in `runs` says that the other two tables are complete for that run."""
# Parts are merged until they have about this size.
_PART_BYTES = 128 << 20
# Attempts to read tables whose parts are being merged.
_READS = 5


class Tables(Files):
    def write_results(self, tables: Mapping[str, pa.Table]) -> None:
        """Write the rows of some runs as a part that is named after the runs."""
        self.write_part(pack_id(tables["runs"]["run_id"].to_pylist()), tables)

    def write_part(self, part: str, tables: Mapping[str, pa.Table]) -> None:
        """Write one part of each table; `runs` comes last."""
        with as_store_errors(self.address):
            for name in TABLES:
                if name in tables and (tables[name].num_rows or name == "runs"):
                    self._fs.put(self._part(name, part), _parquet(tables[name]))

    def parts(self, table: str) -> list[str]:
        return [PurePath(name).stem for name in self.names(table) if name.endswith(".parquet")]

    def columns(self, table: str) -> list[str]:
        return list(self.schema(table).names)

    def schema(self, table: str) -> pa.Schema:
        """Names and types of the table's columns; empty if it has no part."""
        paths = [self._part(table, part) for part in self._complete(table)]
        return self._schema(paths) if paths else pa.schema([])

    def read(
        self, table: str, columns: Sequence[str] | None = None, where: Any = None, each_run_once: bool = True
    ) -> pa.Table:
        """The table. `where` is a pyarrow expression; it and `columns` are pushed down to Parquet.

        To return each run once, this also reads the run ids of all parts of `runs`. Raises StoreError with the file's
        name if a part is damaged.
        """
        return self._while_parts_merge(table, lambda: self._read(table, columns, where, each_run_once))

    def read_runs(self, columns: Sequence[str]) -> pa.Table:
        """Those of these columns that `runs` has, each run once. Opens every part once."""
        return self._while_parts_merge("runs", lambda: self._read_runs(columns))

    def read_filled(
        self, earlier: Mapping[str, Value], columns: Sequence[str] | None = None, where: Any = None
    ) -> pa.Table:
        """`read("runs", columns, where)` with the earlier values of parameters that runs lack.

        Rows from before a parameter was added to their task lack its column. `Task.earlier` has these values.
        """
        if not earlier or not self.parts("runs"):
            return self.read("runs", columns, where)
        absent = set(earlier) - set(self.columns("runs"))
        stored = None if columns is None else [name for name in columns if name not in absent]
        table = _filled(self.read("runs", stored, where), earlier)
        return table if columns is None else table.select(columns)

    def write_earlier_values(self, earlier: Mapping[str, Value]) -> None:
        """Write the earlier values into all rows of `runs` that lack them, so that every reader sees them."""
        parts, names = self.parts("runs") if earlier else [], list(earlier)
        has_columns = parts and set(names) <= set(self.columns("runs"))
        if has_columns and not any(column.null_count for column in self.read("runs", names).columns):
            return
        for part in parts:
            table = pq.read_table(io.BytesIO(self.read_bytes(f"runs/{part}.parquet") or b""))
            self.write_part(part, {"runs": _filled(table, earlier)})

    def _while_parts_merge(self, table: str, read: Callable[[], pa.Table]) -> pa.Table:
        """Read again if parts were merged meanwhile."""
        for _ in range(_READS):
            try:
                return read()
            except FileNotFoundError:
                continue
        raise StoreError(f"{self.address}/{table}: changes faster than it can be read; try again")

    def _complete(self, table: str) -> list[str]:
        """Parts of the table with rows in `runs`. Other parts are still being written, or their writer died."""
        runs = self.parts("runs")
        return runs if table == "runs" else sorted(set(runs) & set(self.parts(table)))

    def _read(self, table: str, columns: Sequence[str] | None, where: Any, each_run_once: bool) -> pa.Table:
        parts = self._complete(table)
        if not parts:
            return pa.table({name: pa.array([], pa.string()) for name in columns or ()})
        schema = self._schema([self._part(table, part) for part in parts])
        for name in columns or ():
            if name not in schema.names:
                known = nearest(name, schema.names) or f"; it has {', '.join(schema.names)}"
                raise MislabelError(f"{name!r} is not a column of {self.name}/{table}{known}")
        written = self.parts("runs") if each_run_once else []
        superseded = _superseded(self._rows_by_part(written)) if len(written) > 1 else {}
        groups = [([part for part in parts if part not in superseded], where)]
        for part, runs in superseded.items():
            if part in parts:
                counts = _without(runs)
                groups.append(([part], counts if where is None else where & counts))
        tables = [self._scanned(table, group, schema, columns, condition) for group, condition in groups if group]
        return pa.concat_tables(tables)

    def _read_runs(self, columns: Sequence[str]) -> pa.Table:
        tables = self._rows_by_part(self.parts("runs"), columns)
        for part, runs in _superseded(tables).items():
            tables[part] = tables[part].filter(_without(runs))
        return pa.concat_tables(tables.values(), promote_options="permissive") if tables else pa.table({})

    def _rows_by_part(self, parts: Sequence[str], columns: Sequence[str] = ()) -> dict[str, pa.Table]:
        """These parts of `runs`: the columns that `_superseded` needs, and those of the given ones that a part has."""
        wanted = dict.fromkeys(["run_id", "status", "attempt", *columns])

        def stored(path: str) -> pa.Table:
            with self._opened(path) as file:
                return file.read([name for name in wanted if name in file.schema_arrow.names])

        def rows(part: str) -> pa.Table:
            path = self._part("runs", part)
            with self._damage_as_store_errors(lambda: path):
                return self._fs.with_retries(lambda: stored(path)).replace_schema_metadata()

        return dict(zip(parts, self._fs.each(rows, parts), strict=True))

    def _scanned(
        self, table: str, parts: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None, where: Any = None
    ) -> pa.Table:
        import pyarrow.dataset as ds

        paths = [self._part(table, part) for part in parts]
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)

        def scanned() -> pa.Table:
            dataset = ds.dataset(paths, schema=schema, filesystem=self._fs.arrow, format=parquet)
            return dataset.to_table(columns=columns and list(columns), filter=where)

        with self._damage_as_store_errors(lambda: next((p for p in paths if not self._readable(p, True)), self._root)):
            return self._fs.with_retries(scanned)

    def _schema(self, paths: Sequence[str]) -> pa.Schema:
        """All columns that any of the files has: a part of failed runs has no metrics."""

        def schema(path: str) -> pa.Schema:
            with self._damage_as_store_errors(lambda: path):
                return self._fs.with_retries(lambda: pq.read_schema(path, filesystem=self._fs.arrow)).remove_metadata()

        return pa.unify_schemas(self._fs.each(schema, paths), promote_options="permissive")

    @contextmanager
    def _damage_as_store_errors(self, find_path: Callable[[], str]) -> Iterator[None]:
        """Turn errors of a damaged part into a StoreError. A part that has vanished was merged meanwhile."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowInvalid) as error:
            short = str(error).splitlines()[0][:120]
            advice = "`mislabel run` with the sweep's spec sets it aside and runs its runs again"
            raise StoreError(f"{self._shown(find_path())}: damaged ({short}); {advice}") from None

    def _opened(self, path: str) -> pq.ParquetFile:
        return pq.ParquetFile(path, filesystem=self._fs.arrow, page_checksum_verification=True)

    def set_damaged_aside(self) -> list[str]:
        """Move damaged parts out of the tables, together with the same part of the other tables; returns their names.

        The next plan counts their runs as missing and runs them again. In a folder we read every page and verify its
        checksum. Object stores verify contents themselves, so there we only read each part's footer. This also removes
        unfinished files of killed writers.
        """
        paths = [self._part(table, part) for table in TABLES for part in self.parts(table)]
        readable = self._fs.each(lambda path: self._readable(path, whole=self._fs.is_local), paths)
        bad = {PurePath(path).stem for path, can_be in zip(paths, readable, strict=True) if not can_be}
        complete = set(self.parts("runs"))
        moved = []
        with as_store_errors(self.address):
            for path in paths:
                table, part = PurePath(path).parent.name, PurePath(path).stem
                if part in bad:
                    self._fs.move(path, f"{self._root}/set-aside/{table}/{part}.parquet")
                    moved.append(self._shown(path))
                elif part not in complete:  # its writer died before the row in `runs`
                    self._fs.remove(path)
            for folder in (*TABLES, "checkpoints"):
                for info in self._fs.listed(f"{self._root}/{folder}"):
                    if info.base_name.startswith("."):
                        self._fs.remove(info.path)
        return moved

    def _readable(self, path: str, whole: bool) -> bool:
        def read() -> None:
            with self._opened(path) as file:
                for _ in file.iter_batches() if whole else ():
                    pass

        try:
            self._fs.with_retries(read)
        except (OSError, pa.ArrowInvalid):
            return False
        return True

    def compact(self) -> None:
        """Merge small parts. After a crash in between, some runs are in two parts: readers and the next merge cope."""
        sizes: Counter[str] = Counter()
        for table in TABLES:
            for info in self._fs.listed(f"{self._root}/{table}"):
                sizes[PurePath(info.base_name).stem] += info.size or 0
        groups: list[list[str]] = [[]]
        for part in self.parts("runs"):
            if sizes[part] < _PART_BYTES:
                if sum(sizes[other] for other in groups[-1]) + sizes[part] > _PART_BYTES:
                    groups.append([])
                groups[-1].append(part)
        for group in groups:
            if len(group) > 1:
                self._merge(group)

    def _merge(self, group: list[str]) -> None:
        superseded = _superseded(self._rows_by_part(self.parts("runs")))
        tables = {name: self._merged(name, group, superseded) for name in TABLES}
        runs = tables["runs"].sort_by([("cell_id", "ascending"), ("seed", "ascending")])
        part = pack_id(runs["run_id"].to_pylist())
        if runs.num_rows:
            self.write_part(part, {**tables, "runs": runs})
        with as_store_errors(self.address):
            for name in reversed(TABLES):
                self._fs.each(self._fs.remove, [self._part(name, old) for old in group if old != part])

    def _merged(self, table: str, group: list[str], superseded: Mapping[str, list[str]]) -> pa.Table:
        def merged(part: str) -> pa.Table:
            schema = self._schema([self._part(table, part)])
            return self._scanned(table, [part], schema, None, _without(superseded.get(part, [])))

        tables = self._fs.each(merged, sorted({*group} & {*self.parts(table)}))
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def _part(self, table: str, part: str) -> str:
        return f"{self._root}/{table}/{part}.parquet"

    def _shown(self, path: str) -> str:
        return within(self.address, path.removeprefix(f"{self._root}/"))


def _superseded(parts: Mapping[str, pa.Table]) -> dict[str, list[str]]:
    """By part, the runs in it that do not count because another part has a better row: higher rank, later attempt.

    A run is in two parts if it was run again, or if a merge was interrupted.
    """
    best: dict[str, tuple[int, int, str]] = {}
    superseded: dict[str, list[str]] = {}
    runs = pa.chunked_array([chunk for table in parts.values() for chunk in table["run_id"].chunks], pa.string())
    if pc.count_distinct(runs).as_py() == len(runs):
        return superseded
    for part, rows in parts.items():
        columns = (rows[name].to_pylist() for name in ("run_id", "status", "attempt"))
        for run, status, attempt in zip(*columns, strict=True):
            rank = (Status(status).rank, attempt, part)
            loser = min(rank, best.get(run, rank))
            best[run] = max(rank, best.get(run, rank))
            if loser != best[run]:
                superseded.setdefault(loser[2], []).append(run)
    return superseded


def _filled(table: pa.Table, earlier: Mapping[str, Value]) -> pa.Table:
    for name, value in earlier.items():
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, pc.fill_null(table[name], value))
        else:
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


def _without(runs: Sequence[str]) -> Any:
    """The rows of all other runs, as a pyarrow expression."""
    return ~pc.field("run_id").isin(pa.array(runs, pa.string()))


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"mislabel.schema": str(SCHEMA)})
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())
