"""The record of all sweeps: Parquet files in a folder or an object store, and the only place that knows their paths.

    <store>/store.json                       version of this layout
    <store>/<sweep>/spec.yaml                the resolved spec, as it is now
    <store>/<sweep>/revisions/0001.yaml …    the spec each time it changed
    <store>/<sweep>/launches/<time>.json     provenance of every time it was run
    <store>/<sweep>/runs|curves|arrays/<part>.parquet
    <store>/<sweep>/checkpoints/<pack>.pt    and <pack>.json, which runs it holds
    <store>/<sweep>/weights/<run>.pt         what a run has trained, where the spec keeps it
    <store>/<sweep>/set-aside/…              files that could not be read

Workers write parts. A part's name is fixed by the runs in it, so writing it again changes nothing, and its `runs` file
is written last: a run exists once its row in `runs` does. Files appear whole or not at all.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from mislabel.sweeps.errors import MislabelError, StoreError, WrongStoreError, nearest
from mislabel.sweeps.ids import pack_id
from mislabel.sweeps.store.files import Files
from mislabel.sweeps.store.filesystem import PATIENCE_SECONDS, FileSystem, as_store_errors, opened, within
from mislabel.sweeps.store.outcome import Status

SCHEMA = 1
TAKEN = ("store.json", "mlflow.db", "mlartifacts")
"""Names in a store's folder that no sweep can have."""
TABLES = ("curves", "arrays", "runs")
"""In the order of writing: a row in `runs` says that the other two are complete."""
# Parts are merged until they have about this size.
_PART_BYTES = 128 << 20
# Attempts to read tables whose parts are being merged.
_READS = 5


class Store:
    """A folder, or an address such as s3://bucket/path, that holds sweeps."""

    def __init__(self, address: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.address = address
        self._fs, self._root = opened(address, patience_seconds)
        self._check_version()

    @property
    def folder(self) -> str | None:
        """The store's path where it is a folder of this machine, else None."""
        return self._root if self._fs.is_local else None

    def _check_version(self) -> None:
        text = self._fs.get(f"{self._root}/store.json")
        if text is None:
            return
        try:
            version = int(json.loads(text)["schema"])
        except (ValueError, KeyError, TypeError):
            raise StoreError(f'{self.address}/store.json: is damaged; it should read {{"schema": {SCHEMA}}}') from None
        if version > SCHEMA:
            raise WrongStoreError(
                f"{self.address}: written by a newer Mislabel (layout {version}, this one reads up to {SCHEMA}); "
                "upgrade with pip install --upgrade mislabel"
            )

    def prepare(self) -> None:
        """Make the store where it is not there yet; StoreError where it can't be written."""
        with as_store_errors(self.address):
            if self._fs.get(f"{self._root}/store.json") is None:
                self._fs.put(f"{self._root}/store.json", json.dumps({"schema": SCHEMA}).encode())
            else:
                probe = f"{self._root}/.writable-{uuid.uuid4().hex}"
                self._fs.put(probe, b"")
                self._fs.remove(probe)

    def names(self) -> list[str]:
        """Names of the sweeps in the store."""
        with as_store_errors(self.address):
            found = self._fs.listed(self._root)
        return sorted(i.base_name for i in found if i.type == fs.FileType.Directory and self._has_spec(i.base_name))

    def _has_spec(self, name: str) -> bool:
        return self._fs.is_file(f"{self._root}/{name}/spec.yaml")

    def sweep(self, name: str) -> "SweepFiles":
        """The files of a sweep, which need not exist yet."""
        return SweepFiles(self._fs, f"{self._root}/{name}", name, self.address)

    def existing(self, name: str) -> "SweepFiles":
        """The files of a sweep that is in the store; MislabelError where it is not."""
        names = self.names()
        if name not in names:
            known = f"it holds {', '.join(names[:20])}{' …' if len(names) > 20 else ''}" if names else "it is empty"
            hint = nearest(name, names) or f"; {known}"
            raise MislabelError(f"{name!r} is not a sweep of the store {self.address}{hint}")
        return self.sweep(name)


class SweepFiles(Files):
    """Everything that one sweep has in the store."""

    def __init__(self, filesystem: FileSystem, root: str, name: str, store: str) -> None:
        super().__init__(filesystem, root, within(store, name))
        self.name = name
        self.store = store
        """The address of the store that it is in."""

    def with_patience(self, seconds: float) -> "SweepFiles":
        """The same files, for who can wait that long for a store out of reach."""
        return SweepFiles(self._fs.with_patience(seconds), self._root, self.name, self.store)

    def sibling(self, name: str) -> "SweepFiles":
        """The files of another sweep of the same store."""
        return SweepFiles(self._fs, f"{self._root.rpartition('/')[0]}/{name}", name, self.store)

    def revise_spec(self, text: str) -> None:
        """Make this the sweep's spec, and keep it as a revision where it differs from the last."""
        if self.read_text("spec.yaml") == text:
            return
        number = len(self.names("revisions")) + 1
        self.write_text(f"revisions/{number:04}.yaml", text)
        self.write_text("spec.yaml", text)

    def launches(self) -> list[dict[str, Any]]:
        """Provenance of every time the sweep was run, oldest first."""
        return [launch for name in self.names("launches") if (launch := self.read_json(f"launches/{name}"))]

    # Tables

    def write_results(self, part: str, tables: dict[str, pa.Table]) -> None:
        """Write one part of each table; `runs` comes last."""
        with as_store_errors(self.address):
            for name in TABLES:
                if name in tables and (tables[name].num_rows or name == "runs"):
                    self._fs.put(self._part(name, part), _parquet(tables[name]))

    def parts(self, table: str) -> list[str]:
        return [PurePath(name).stem for name in self.names(table) if name.endswith(".parquet")]

    def columns(self, table: str) -> list[str]:
        """Names of the table's columns; none where it has no part."""
        return list(self.schema(table).names)

    def schema(self, table: str) -> pa.Schema:
        """Names and types of the table's columns."""
        paths = [self._part(table, part) for part in self._complete(table)]
        return self._schema(paths) if paths else pa.schema([])

    def read(self, table: str, columns: Sequence[str] | None = None, where: Any = None) -> pa.Table:
        """The table, each run once. `where` is a pyarrow expression; it and `columns` are pushed down to Parquet.

        StoreError that names the file where a part is damaged.
        """
        for _ in range(_READS):
            try:
                return self._read(table, columns, where)
            except FileNotFoundError:  # parts were merged while we read
                continue
        raise StoreError(f"{self.address}/{table}: changes faster than it can be read; try again")

    def _complete(self, table: str) -> list[str]:
        """Parts of the table whose rows in `runs` are there too: others are still being written, or never will be."""
        runs = self.parts("runs")
        return runs if table == "runs" else sorted(set(runs) & set(self.parts(table)))

    def _read(self, table: str, columns: Sequence[str] | None, where: Any) -> pa.Table:
        parts = self._complete(table)
        if not parts:
            return pa.table({name: pa.array([], pa.string()) for name in columns or ()})
        schema = self._schema([self._part(table, part) for part in parts])
        for name in columns or ():
            if name not in schema.names:
                known = nearest(name, schema.names) or f"; it has {', '.join(schema.names)}"
                raise MislabelError(f"{name!r} is not a column of {self.name}/{table}{known}")
        superseded = self._superseded_runs()
        groups = [([part for part in parts if part not in superseded], where)]
        for part, runs in superseded.items():
            if part in parts:
                counts = ~pc.field("run_id").isin(pa.array(runs, pa.string()))
                groups.append(([part], counts if where is None else where & counts))
        tables = [self._scanned(table, group, schema, columns, condition) for group, condition in groups if group]
        return pa.concat_tables(tables)

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

        try:
            return self._fs.with_retries(scanned)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowInvalid) as error:
            raise self._damaged(next((p for p in paths if not self._readable(p, True)), self._root), error) from None

    def _superseded_runs(self) -> Mapping[str, list[str]]:
        """By part, the runs in it that count from another part: one where they came furthest, of the last attempt.

        A run stands in two parts where it was run again, or where a merge was cut short.
        """
        parts = self.parts("runs")
        if len(parts) < 2:
            return {}
        schema = self._schema([self._part("runs", part) for part in parts])
        runs = self._scanned("runs", parts, schema, ["run_id"])["run_id"]
        if len(runs.unique()) == len(runs):
            return {}
        counting: dict[str, tuple[int, int, str]] = {}
        superseded: dict[str, list[str]] = {}
        for part in parts:
            rows = self._scanned("runs", [part], schema, ["run_id", "status", "attempt"])
            for run, status, attempt in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                rank = (Status(status).rank, attempt, part)
                loser = min(rank, counting.get(run, rank))
                counting[run] = max(rank, counting.get(run, rank))
                if loser != counting[run]:
                    superseded.setdefault(loser[2], []).append(run)
        return superseded

    def _schema(self, paths: Sequence[str]) -> pa.Schema:
        """All columns that one of the files has: a part of failed runs has no metrics."""

        def schema(path: str) -> pa.Schema:
            try:
                read = self._fs.with_retries(lambda: pq.read_schema(path, filesystem=self._fs.arrow))
                return read.remove_metadata()
            except FileNotFoundError:
                raise
            except (OSError, pa.ArrowInvalid) as error:
                raise self._damaged(path, error) from None

        return pa.unify_schemas(self._fs.each(schema, paths), promote_options="permissive")

    def _damaged(self, path: str, error: Exception) -> StoreError:
        short = str(error).splitlines()[0][:120]
        advice = "`mislabel run` with the sweep's spec sets it aside and runs its runs again"
        return StoreError(f"{self._shown(path)}: damaged ({short}); {advice}")

    def set_damaged_aside(self) -> list[str]:
        """Move parts that can't be read out of the tables, with all that was written with them; returns what was moved.

        Their runs are then missing, so that the next plan runs them again. In a folder every page is read: a checksum
        tells whether it is what was written. An object store checks that by itself; there a part's end is looked at.
        What killed writers have left behind goes too.
        """
        paths = [self._part(table, part) for table in TABLES for part in self.parts(table)]
        readable = self._fs.each(lambda path: self._readable(path, whole=self._fs.is_local), paths)
        bad = {PurePath(path).stem for path, can_be in zip(paths, readable, strict=True) if not can_be}
        complete = set(self.parts("runs"))
        moved = []
        with as_store_errors(self.address):
            for table in TABLES:
                for part in self.parts(table):
                    if part in bad:
                        self._fs.move(self._part(table, part), f"{self._root}/set-aside/{table}/{part}.parquet")
                        moved.append(self._shown(self._part(table, part)))
                    elif part not in complete:  # its writer died before the row in `runs`
                        self._fs.remove(self._part(table, part))
            for folder in (*TABLES, "checkpoints"):
                for info in self._fs.listed(f"{self._root}/{folder}"):
                    if info.base_name.startswith("."):
                        self._fs.remove(info.path)
        return moved

    def _readable(self, path: str, whole: bool) -> bool:
        def read() -> None:
            with pq.ParquetFile(path, filesystem=self._fs.arrow, page_checksum_verification=True) as file:
                for _ in file.iter_batches() if whole else ():
                    pass

        try:
            self._fs.with_retries(read)
        except (OSError, pa.ArrowInvalid):
            return False
        return True

    def compact(self) -> None:
        """Merge small parts. A crash in between leaves runs in two parts, which readers and the next merge resolve."""
        sizes = self._sizes()
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
        superseded = self._superseded_runs()
        tables = {name: self._merged(name, group, superseded) for name in TABLES}
        runs = tables["runs"].sort_by([("cell_id", "ascending"), ("seed", "ascending")])
        part = pack_id(runs["run_id"].to_pylist())
        if runs.num_rows:
            self.write_results(part, {**tables, "runs": runs})
        with as_store_errors(self.address):
            for name in reversed(TABLES):
                self._fs.each(self._fs.remove, [self._part(name, old) for old in group if old != part])

    def _merged(self, table: str, group: list[str], superseded: Mapping[str, list[str]]) -> pa.Table:
        def merged(part: str) -> pa.Table:
            schema = self._schema([self._part(table, part)])
            counts = ~pc.field("run_id").isin(pa.array(superseded.get(part, []), pa.string()))
            return self._scanned(table, [part], schema, None, counts)

        tables = self._fs.each(merged, sorted({*group} & {*self.parts(table)}))
        return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})

    def _sizes(self) -> Counter[str]:
        """Bytes of each part, over all tables."""
        sizes: Counter[str] = Counter()
        for table in TABLES:
            for info in self._fs.listed(f"{self._root}/{table}"):
                sizes[PurePath(info.base_name).stem] += info.size or 0
        return sizes

    # Checkpoints

    def save_checkpoint(self, pack: str, data: bytes, run_ids: Sequence[str]) -> None:
        self.write(f"checkpoints/{pack}.pt", data)
        self.write_json(f"checkpoints/{pack}.json", {"runs": list(run_ids)})

    def load_checkpoint(self, pack: str) -> bytes | None:
        return self.read_bytes(f"checkpoints/{pack}.pt")

    def checkpoints(self) -> Iterator[tuple[str, list[str]]]:
        """Each checkpoint's pack and the runs in it."""
        names = self.names("checkpoints")
        for pack in (name.removesuffix(".json") for name in names if name.endswith(".json")):
            if f"{pack}.pt" in names and (runs := self.checkpointed(pack)):
                yield pack, runs

    def checkpointed(self, pack: str) -> list[str]:
        """The runs in the pack's checkpoint; none where it has none."""
        return list((self.read_json(f"checkpoints/{pack}.json") or {"runs": ()})["runs"])

    def drop_checkpoint(self, pack: str) -> None:
        self.remove(f"checkpoints/{pack}.json")
        self.remove(f"checkpoints/{pack}.pt")

    # Weights

    def save_weights(self, run: str, data: bytes) -> None:
        self.write(f"weights/{run}.pt", data)

    def load_weights(self, run: str) -> bytes | None:
        return self.read_bytes(f"weights/{run}.pt")

    def runs_with_weights(self) -> list[str]:
        return [name.removesuffix(".pt") for name in self.names("weights")]

    def _part(self, table: str, part: str) -> str:
        return f"{self._root}/{table}/{part}.parquet"

    def _shown(self, path: str) -> str:
        return within(self.address, path.removeprefix(f"{self._root}/"))


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"mislabel.schema": str(SCHEMA)})
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())
