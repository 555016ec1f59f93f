"""The tables of one sweep: `runs`, `curves` and `arrays`, each stored as Parquet files that we call parts.

A part's `runs` file is written last: a run exists once its row in `runs` does. See `parts` for names and checksums.
A part may replace others: readers ignore those from then on. A run that is in several other parts counts once.
"""

import errno
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mislabel.sweeps.errors import DamagedFileError, MislabelError, StoreError, nearest
from mislabel.sweeps.store.files import Files
from mislabel.sweeps.store.filesystem import FileSystem, as_store_errors
from mislabel.sweeps.store.outcome import Status
from mislabel.sweeps.store.parts import TABLES, Manifest, Part, encoded, generation_of, is_intact, manifest_of
from mislabel.tasks.parameters import Value

_log = logging.getLogger(__name__)
Listing = Mapping[str, Mapping[str, int]]
"""The sizes of the files of all parts, by table and part."""
# Attempts to read tables whose parts are being merged.
_READS = 5
# What pyarrow raises for a damaged file.
_DAMAGE = (OSError, pa.ArrowException, UnicodeDecodeError)
# Errors that say something about this process or its rights, and nothing about the file.
_NO_DAMAGE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM)
# The columns that decide which row of a run counts.
_DECIDING = ("run_id", "status", "attempt")


class Tables(Files):
    def __init__(self, filesystem: FileSystem, root: str, name: str, store: str, generation: int = 0) -> None:
        super().__init__(filesystem, root, name, store, generation)
        # A part never changes, so its manifest is read once.
        self._manifests: dict[str, Manifest | None] = {}

    def write_results(self, tables: Mapping[str, pa.Table], replaces: Sequence[str] = ()) -> str:
        """Write the rows of some runs as a part, which replaces other parts; returns its name. `runs` comes last."""
        part, contents = encoded(tables, self.generation, replaces)
        with as_store_errors(self.address):
            for table, data in contents.items():
                self._fs.put(self._part(table, part), data)
        return part

    def parts(self, table: str) -> list[str]:
        """All parts that have a file in the table's folder, also replaced and unfinished ones."""
        return sorted(self._sizes(table))

    def columns(self, table: str) -> list[str]:
        return list(self.schema(table).names)

    def schema(self, table: str) -> pa.Schema:
        """Names and types of the table's columns; empty if it has no part."""

        def read() -> pa.Schema:
            parts = _having(table, self._counting(self._listing()))
            return self._schema(table, parts) if parts else pa.schema([])

        return self._while_parts_merge(table, read)

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
        table = filled(self.read("runs", stored, where), earlier)
        return table if columns is None else table.select(columns)

    def _while_parts_merge(self, table: str, read: Callable[[], Any]) -> Any:
        """Read again if parts were removed meanwhile."""
        for _ in range(_READS):
            try:
                return read()
            except FileNotFoundError:
                continue
        raise StoreError(f"{self.address}/{table}: changes faster than it can be read; try again")

    def _sizes(self, table: str) -> dict[str, int]:
        with as_store_errors(self.address):
            found = self._fs.listed(f"{self._root}/{table}")
        # A folder with the name of a part is damage, and is listed too.
        parts = (info for info in found if not info.base_name.startswith(".") and info.extension == "parquet")
        return {info.base_name.removesuffix(".parquet"): info.size or 0 for info in parts}

    def _listing(self) -> Listing:
        tables = tuple(reversed(TABLES))
        return dict(zip(tables, self._fs.each(self._sizes, tables), strict=True))

    def _part_of(self, name: str, listing: Listing) -> Part:
        sizes = {table: listing[table][name] for table in TABLES if name in listing[table]}
        path = self._part("runs", name)
        with self._damage_as_store_errors(lambda: path):
            return Part(name, sizes, self._manifest(name))

    def _manifest(self, name: str) -> Manifest | None:
        if generation_of(name) >= 0 and name not in self._manifests:
            self._fs.with_retries(lambda: self._opened("runs", name).close())
        return self._manifests.get(name)

    def _all_parts(self, listing: Listing) -> dict[str, Part]:
        """All parts with a `runs` file, oldest first."""
        names = sorted(listing["runs"], key=age)
        return dict(zip(names, self._fs.each(lambda name: self._part_of(name, listing), names), strict=True))

    def _counting(self, listing: Listing) -> dict[str, Part]:
        """The parts whose rows count: complete and not replaced by another part.

        A part without a file that it should have is damaged, or its writer was replaced while it wrote.
        """
        parts = self._all_parts(listing)
        complete = {name: part for name, part in parts.items() if not part.missing}
        replaced = {name for part in complete.values() for name in part.replaces}
        if incomplete := [part for name, part in parts.items() if part.missing and name not in replaced]:
            now = self._listing()
            for part in incomplete:
                if part.name not in now["runs"] or any(part.name in now[table] for table in part.missing):
                    raise FileNotFoundError(part.name)  # parts were removed during the listing
                paths = ", ".join(self._shown(self._part(table, part.name)) for table in part.missing)
                _log.warning("%s is missing: its runs do not count; `mislabel run` runs them again", paths)
        for part in complete.values():
            for table, problem in part.size_problems().items() if part.name not in replaced else ():
                raise DamagedFileError(f"{self._shown(self._part(table, part.name))}: {problem}; {_ADVICE}")
        return {name: part for name, part in complete.items() if name not in replaced}

    def _read(self, table: str, columns: Sequence[str] | None, where: Any, each_run_once: bool) -> pa.Table:
        listing = self._listing()
        several = each_run_once and len(listing["runs"]) > 1
        rows = self._rows_by_part(listing["runs"]) if several else {}
        counting = self._counting(listing)
        parts = _having(table, counting)
        if not parts:
            return pa.table({name: pa.array([], pa.string()) for name in columns or ()})
        schema = self._schema(table, parts)
        for name in columns or ():
            if name not in schema.names:
                known = nearest(name, schema.names) or f"; it has {', '.join(schema.names)}"
                raise MislabelError(f"{name!r} is not a column of {self.name}/{table}{known}")
        superseded = superseded_runs({name: rows[name] for name in counting}) if several else {}
        groups = [([part.name for part in parts if part.name not in superseded], where)]
        for part in parts:
            if part.name in superseded:
                counts = without(superseded[part.name])
                groups.append(([part.name], counts if where is None else where & counts))
        tables = [self._scanned(table, group, schema, columns, condition) for group, condition in groups if group]
        return pa.concat_tables(tables)

    def _read_runs(self, columns: Sequence[str]) -> pa.Table:
        listing = self._listing()
        rows = self._rows_by_part(listing["runs"], columns)
        tables = {name: rows[name] for name in self._counting(listing)}
        for part, runs in superseded_runs(tables).items():
            tables[part] = tables[part].filter(without(runs))
        return pa.concat_tables(tables.values(), promote_options="permissive") if tables else pa.table({})

    def _rows_by_part(self, names: Iterable[str], columns: Sequence[str] = ()) -> dict[str, pa.Table]:
        """These parts of `runs`: the columns that decide which row counts, and those given columns that a part has."""
        wanted = dict.fromkeys([*_DECIDING, *columns])
        names = sorted(names, key=age)

        def stored(name: str) -> pa.Table:
            with self._opened("runs", name) as file:
                if absent := set(_DECIDING) - set(file.schema_arrow.names):
                    raise pa.ArrowInvalid(f"it has no column {', '.join(sorted(absent))}")
                return file.read([column for column in wanted if column in file.schema_arrow.names])

        def rows(name: str) -> pa.Table:
            with self._damage_as_store_errors(lambda: self._part("runs", name)):
                return self._fs.with_retries(lambda: stored(name)).replace_schema_metadata()

        return dict(zip(names, self._fs.each(rows, names), strict=True))

    def _scanned(
        self, table: str, parts: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None, where: Any = None
    ) -> pa.Table:
        import pyarrow.dataset as ds

        paths = {part: self._part(table, part) for part in parts}
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        parquet = ds.ParquetFileFormat(default_fragment_scan_options=checked)

        def scanned() -> pa.Table:
            dataset = ds.dataset(list(paths.values()), schema=schema, filesystem=self._fs.arrow, format=parquet)
            return dataset.to_table(columns=columns and list(columns), filter=where)

        def damaged() -> str:
            return next((path for part, path in paths.items() if self._unreadable(table, part, True)), self._root)

        with self._damage_as_store_errors(damaged):
            return self._fs.with_retries(scanned)

    def _schema(self, table: str, parts: Sequence[Part]) -> pa.Schema:
        """All columns that any of the parts has: a part of failed runs has no metrics."""
        by_name = {part.name: part for part in parts}

        def schema(name: str) -> pa.Schema:
            path = self._part(table, name)
            with self._damage_as_store_errors(lambda: path):
                footer = self._fs.with_retries(lambda: self._fs.parquet_footer(path))
                if problem := by_name[name].footer_problem(table, footer):
                    raise pa.ArrowInvalid(problem)
                return pq.read_schema(pa.BufferReader(footer)).remove_metadata()

        return pa.unify_schemas(self._fs.each(schema, list(by_name)), promote_options="permissive")

    @contextmanager
    def _damage_as_store_errors(self, find_path: Callable[[], str]) -> Iterator[None]:
        """Turn errors of a damaged part into a StoreError. A part that has vanished was replaced and removed."""
        try:
            yield
        except FileNotFoundError:
            raise
        except _DAMAGE as error:
            _raise_unless_damage(error, self.address)
            raise DamagedFileError(f"{self._shown(find_path())}: damaged ({_short(error)}); {_ADVICE}") from None

    def _opened(self, table: str, part: str) -> pq.ParquetFile:
        """The part's file. The checksum of a `runs` file in a folder is compared when it is opened first."""
        path = self._part(table, part)
        source: Any = path
        if table == "runs" and self.is_local and part not in self._manifests:
            with self._fs.arrow.open_input_file(path) as stream:
                source = stream.read()
            if not is_intact(part, source):
                raise pa.ArrowInvalid("its content is not what was written")
            source = pa.BufferReader(source)
        filesystem = None if source is not path else self._fs.arrow
        file = pq.ParquetFile(source, filesystem=filesystem, page_checksum_verification=True)
        if table == "runs":
            self._manifests[part] = manifest_of(part, file.metadata.metadata)
        return file

    def _unreadable(self, table: str, part: str, whole: bool) -> str | None:
        """Why the file can't be read, from its footer or as a whole; None if it can."""

        def read() -> None:
            with self._opened(table, part) as file:
                for _ in file.iter_batches() if whole else ():
                    pass

        try:
            self._fs.with_retries(read)
        except _DAMAGE as error:
            _raise_unless_damage(error, self.address)
            return f"can't be read ({_short(error)})"
        return None

    def _part(self, table: str, part: str) -> str:
        return f"{self._root}/{table}/{part}.parquet"

    def _shown(self, path: str) -> str:
        return self.shown(path.removeprefix(f"{self._root}/"))


_ADVICE = "`mislabel run` with the sweep's spec sets it aside and runs its runs again"


def _raise_unless_damage(error: BaseException, address: str) -> None:
    if isinstance(error, OSError) and error.errno in _NO_DAMAGE:
        with as_store_errors(address):
            raise error


def age(part: str) -> tuple[int, str]:
    return generation_of(part), part


def _short(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:120]


def _having(table: str, parts: Mapping[str, Part]) -> list[Part]:
    return [part for part in parts.values() if table in part.tables]


def superseded_runs(parts: Mapping[str, pa.Table]) -> dict[str, list[str]]:
    """By part, the runs in it that do not count because another part has a better row: higher rank, later attempt.

    A run is in two parts if it was run again, or if a worker that was taken for dead wrote it too.
    """
    best: dict[str, tuple[int, int, tuple[int, str]]] = {}
    superseded: dict[str, list[str]] = {}
    runs = pa.chunked_array([chunk for table in parts.values() for chunk in table["run_id"].chunks], pa.string())
    if pc.count_distinct(runs).as_py() == len(runs):
        return superseded
    for part, rows in parts.items():
        columns = (rows[name].to_pylist() for name in _DECIDING)
        for run, status, attempt in zip(*columns, strict=True):
            rank = (Status(status).rank, attempt, age(part))
            loser = min(rank, best.get(run, rank))
            best[run] = max(rank, best.get(run, rank))
            if loser != best[run]:
                superseded.setdefault(loser[2][1], []).append(run)
    return superseded


def filled(table: pa.Table, earlier: Mapping[str, Value]) -> pa.Table:
    for name, value in earlier.items():
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, pc.fill_null(table[name], value))
        else:
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table


def without(runs: Sequence[str]) -> Any:
    """The rows of all other runs, as a pyarrow expression."""
    return ~pc.field("run_id").isin(pa.array(runs, pa.string()))
