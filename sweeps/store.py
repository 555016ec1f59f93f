"""The record of all sweeps: Parquet files in a folder or an object store, and the only place that knows their paths.

    <store>/store.json                       version of this layout
    <store>/<sweep>/spec.yaml                the resolved spec, as it is now
    <store>/<sweep>/revisions/0001.yaml …    the spec each time it changed
    <store>/<sweep>/launches/<time>.json     provenance of every time it was run
    <store>/<sweep>/runs|curves|arrays/<part>.parquet
    <store>/<sweep>/checkpoints/<pack>.pt    and <pack>.json, which runs it holds
    <store>/<sweep>/set-aside/…              files that could not be read

Workers write parts. A part's name is fixed by the runs in it, so writing it again changes nothing, and its `runs` file
is written last: a run exists once its row in `runs` does. Files appear whole or not at all.
"""

import errno
import json
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from sweeps.errors import MislabelError, StoreError, nearest
from sweeps.identity import pack_id

SCHEMA = 1
TABLES = ("curves", "arrays", "runs")
"""In the order of writing: a row in `runs` says that the other two are complete."""
# Parts are merged until they have about this size.
_PART_BYTES = 128 << 20


class Store:
    """A folder, or an address such as s3://bucket/path, that holds sweeps."""

    def __init__(self, address: str) -> None:
        self.address = address
        try:
            if "://" in address:
                self._fs, self._root = fs.FileSystem.from_uri(address)
            else:
                self._fs, self._root = fs.LocalFileSystem(), os.path.abspath(address)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"{address}: not an address that a store can have: {error}") from None
        self._check_version()

    @property
    def folder(self) -> str | None:
        """The store's path where it is a folder of this machine, else None."""
        return self._root if isinstance(self._fs, fs.LocalFileSystem) else None

    def _check_version(self) -> None:
        text = _get(self._fs, f"{self._root}/store.json")
        if text is None:
            return
        try:
            version = json.loads(text)["schema"]
        except (ValueError, KeyError, TypeError):
            raise StoreError(f'{self.address}/store.json: is damaged; it should read {{"schema": {SCHEMA}}}') from None
        if version > SCHEMA:
            raise StoreError(
                f"{self.address}: written by a newer Mislabel (layout {version}, this one reads up to {SCHEMA}); "
                "upgrade with pip install --upgrade mislabel"
            )

    def prepare(self) -> None:
        """Make the store where it is not there yet; StoreError where it can't be written."""
        with _as_store_errors(self.address):
            if _get(self._fs, f"{self._root}/store.json") is None:
                _put(self._fs, f"{self._root}/store.json", json.dumps({"schema": SCHEMA}).encode())
            else:
                probe = f"{self._root}/.writable-{uuid.uuid4().hex}"
                _put(self._fs, probe, b"")
                self._fs.delete_file(probe)

    def names(self) -> list[str]:
        """Names of the sweeps in the store."""
        found = _listed(self._fs, self._root)
        return sorted(i.base_name for i in found if i.type == fs.FileType.Directory and self._has_spec(i.base_name))

    def _has_spec(self, name: str) -> bool:
        return bool(self._fs.get_file_info(f"{self._root}/{name}/spec.yaml").type == fs.FileType.File)

    def sweep(self, name: str) -> "SweepFiles":
        """The files of a sweep, which need not exist yet."""
        return SweepFiles(self._fs, f"{self._root}/{name}", name, f"{self.address.rstrip('/')}/{name}")

    def existing(self, name: str) -> "SweepFiles":
        """The files of a sweep that is in the store; MislabelError where it is not."""
        names = self.names()
        if name not in names:
            known = f"it holds {', '.join(names[:20])}{' …' if len(names) > 20 else ''}" if names else "it is empty"
            raise MislabelError(
                f"{name!r} is not a sweep of the store {self.address}{nearest(name, names) or f'; {known}'}"
            )
        return self.sweep(name)


class SweepFiles:
    """Everything that one sweep has in the store."""

    def __init__(self, filesystem: Any, root: str, name: str, address: str) -> None:
        self._fs = filesystem
        self._root = root
        self.name = name
        self.address = address

    # Small files

    def read_text(self, file: str) -> str | None:
        """The file's text, or None where there is no such file."""
        data = _get(self._fs, f"{self._root}/{file}")
        return None if data is None else data.decode()

    def write_text(self, file: str, text: str) -> None:
        with _as_store_errors(self.address):
            _put(self._fs, f"{self._root}/{file}", text.encode())

    def remove(self, file: str) -> None:
        if self._fs.get_file_info(f"{self._root}/{file}").type == fs.FileType.File:
            self._fs.delete_file(f"{self._root}/{file}")

    def read_json(self, file: str) -> Any:
        text = self.read_text(file)
        try:
            return None if text is None else json.loads(text)
        except ValueError:
            return None

    def write_json(self, file: str, value: Any) -> None:
        self.write_text(file, json.dumps(value, indent=1))

    def revise_spec(self, text: str) -> None:
        """Make this the sweep's spec, and keep it as a revision where it differs from the last."""
        if self.read_text("spec.yaml") == text:
            return
        number = len(_listed(self._fs, f"{self._root}/revisions")) + 1
        self.write_text(f"revisions/{number:04}.yaml", text)
        self.write_text("spec.yaml", text)

    def launches(self) -> list[dict[str, Any]]:
        """Provenance of every time the sweep was run, oldest first."""
        found = sorted(info.base_name for info in _listed(self._fs, f"{self._root}/launches"))
        return [launch for name in found if (launch := self.read_json(f"launches/{name}"))]

    # Tables

    def write_results(self, part: str, tables: dict[str, pa.Table]) -> None:
        """Write one part of each table; `runs` comes last."""
        with _as_store_errors(self.address):
            for name in TABLES:
                if name in tables and (tables[name].num_rows or name == "runs"):
                    _put(self._fs, self._part(name, part), _parquet(tables[name]))

    def parts(self, table: str) -> list[str]:
        return sorted(
            info.base_name.removesuffix(".parquet")
            for info in _listed(self._fs, f"{self._root}/{table}")
            if info.base_name.endswith(".parquet") and not info.base_name.startswith(".")
        )

    def columns(self, table: str) -> list[str]:
        """Names of the table's columns, as its first part has them; none where it has no part."""
        parts = self.parts(table)
        return list(self._schema(self._part(table, parts[0])).names) if parts else []

    def read(self, table: str, columns: Sequence[str] | None = None, where: Any = None) -> pa.Table:
        """The table, each run once. `where` is a pyarrow expression; it and `columns` are pushed down to Parquet.

        StoreError that names the file where a part is damaged.
        """
        try:
            return self._read(table, columns, where)
        except FileNotFoundError:  # parts were merged while we read
            return self._read(table, columns, where)

    def _read(self, table: str, columns: Sequence[str] | None, where: Any) -> pa.Table:
        import pyarrow.dataset as ds

        paths = [self._part(table, part) for part in self.parts(table)]
        if not paths:
            return pa.table({name: pa.array([], pa.string()) for name in columns or ()})
        schema = pa.unify_schemas([self._schema(path) for path in paths], promote_options="permissive")
        dataset = ds.dataset(paths, schema=schema, filesystem=self._fs, format="parquet")
        repeated = self._repeated_runs(dataset if table == "runs" else None)
        if repeated is not None:
            import pyarrow.compute as pc

            for run, kept in repeated.items():
                once = (pc.field("run_id") != run) | (pc.field("pack_id") == kept)
                where = once if where is None else where & once
        try:
            return dataset.to_table(columns=None if columns is None else list(columns), filter=where)
        except (OSError, pa.ArrowInvalid) as error:
            raise self._damaged(self._first_damaged(paths), error) from None

    def _repeated_runs(self, runs: Any) -> dict[str, str] | None:
        """Runs that stand in more than one part, with the pack whose row counts: that of the last attempt."""
        if len(self.parts("runs")) < 2:
            return None
        if runs is None:
            import pyarrow.dataset as ds

            runs = ds.dataset(
                [self._part("runs", p) for p in self.parts("runs")], filesystem=self._fs, format="parquet"
            )
        rows = runs.to_table(columns=["run_id", "pack_id", "attempt"])
        ids = rows["run_id"]
        if len(ids.unique()) == len(ids):
            return None
        best: dict[str, tuple[int, str]] = {}
        twice = set()
        for run, pack, attempt in zip(
            ids.to_pylist(), rows["pack_id"].to_pylist(), rows["attempt"].to_pylist(), strict=True
        ):
            if run in best:
                twice.add(run)
            best[run] = max(best.get(run, (-1, "")), (attempt, pack))
        return {run: best[run][1] for run in twice}

    def _schema(self, path: str) -> pa.Schema:
        try:
            return pq.read_schema(path, filesystem=self._fs).remove_metadata()
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowInvalid) as error:
            raise self._damaged(path, error) from None

    def _first_damaged(self, paths: list[str]) -> str:
        for path in paths:
            try:
                pq.read_table(path, filesystem=self._fs, page_checksum_verification=True)
            except (OSError, pa.ArrowInvalid):
                return path
        return self._root

    def _damaged(self, path: str, error: Exception) -> StoreError:
        short = str(error).splitlines()[0][:120]
        advice = "`mislabel run` with the sweep's spec sets it aside and runs its runs again"
        return StoreError(f"{self._shown(path)}: damaged ({short}); {advice}")

    def set_damaged_aside(self) -> list[str]:
        """Move parts that can't be read out of the tables, with all that was written with them; returns what was moved.

        Their runs are then missing, so that the next plan runs them again.
        """
        bad = {part for table in TABLES for part in self.parts(table) if not self._readable(table, part)}
        complete = set(self.parts("runs"))
        moved = []
        with _as_store_errors(self.address):
            for table in TABLES:
                for part in self.parts(table):
                    if part in bad:
                        self._fs.create_dir(f"{self._root}/set-aside/{table}", recursive=True)
                        self._fs.move(self._part(table, part), f"{self._root}/set-aside/{table}/{part}.parquet")
                        moved.append(self._shown(self._part(table, part)))
                    elif part not in complete:  # its writer died before the row in `runs`
                        self._fs.delete_file(self._part(table, part))
        return moved

    def _readable(self, table: str, part: str) -> bool:
        try:
            file = pq.ParquetFile(self._part(table, part), filesystem=self._fs, page_checksum_verification=True)
            if table == "runs":
                file.read()
        except (OSError, pa.ArrowInvalid):
            return False
        return True

    def compact(self) -> None:
        """Merge small parts. A crash in between leaves runs in two parts, which readers and the next merge resolve."""
        small = [part for part in self.parts("runs") if self._size(part) < _PART_BYTES]
        groups: list[list[str]] = [[]]
        for part in small:
            if sum(map(self._size, groups[-1])) + self._size(part) > _PART_BYTES:
                groups.append([])
            groups[-1].append(part)
        for group in groups:
            if len(group) > 1:
                self._merge(group)

    def _merge(self, group: list[str]) -> None:
        repeated = self._repeated_runs(None) or {}
        tables = {}
        for name in TABLES:
            held = [p for p in group if self._fs.get_file_info(self._part(name, p)).type == fs.FileType.File]
            if held:
                parts = [pq.read_table(self._part(name, p), filesystem=self._fs) for p in held]
                merged = pa.concat_tables(parts, promote_options="permissive")
                tables[name] = _once(merged, repeated)
        runs = tables["runs"].sort_by([("cell_id", "ascending"), ("seed", "ascending")])
        part = pack_id(runs["run_id"].to_pylist())
        self.write_results(part, {**tables, "runs": runs})
        with _as_store_errors(self.address):
            for name in reversed(TABLES):
                for old in set(group) - {part}:
                    if self._fs.get_file_info(self._part(name, old)).type == fs.FileType.File:
                        self._fs.delete_file(self._part(name, old))

    def _size(self, part: str) -> int:
        return sum(self._fs.get_file_info(self._part(table, part)).size or 0 for table in TABLES)

    # Checkpoints

    def save_checkpoint(self, pack: str, data: bytes, run_ids: Sequence[str]) -> None:
        with _as_store_errors(self.address):
            _put(self._fs, f"{self._root}/checkpoints/{pack}.pt", data)
            _put(self._fs, f"{self._root}/checkpoints/{pack}.json", json.dumps({"runs": list(run_ids)}).encode())

    def load_checkpoint(self, pack: str) -> bytes | None:
        return _get(self._fs, f"{self._root}/checkpoints/{pack}.pt")

    def checkpoints(self) -> Iterator[tuple[str, list[str]]]:
        """Each checkpoint's pack and the runs in it."""
        for info in _listed(self._fs, f"{self._root}/checkpoints"):
            if info.base_name.endswith(".json") and not info.base_name.startswith("."):
                pack = info.base_name.removesuffix(".json")
                described = self.read_json(f"checkpoints/{info.base_name}")
                if described and self._fs.get_file_info(f"{self._root}/checkpoints/{pack}.pt").type == fs.FileType.File:
                    yield pack, described["runs"]

    def drop_checkpoint(self, pack: str) -> None:
        self.remove(f"checkpoints/{pack}.json")
        self.remove(f"checkpoints/{pack}.pt")

    def _part(self, table: str, part: str) -> str:
        return f"{self._root}/{table}/{part}.parquet"

    def _shown(self, path: str) -> str:
        return self.address + path.removeprefix(self._root)


def _once(table: pa.Table, repeated: dict[str, str]) -> pa.Table:
    """The table without rows of runs that count from another pack."""
    if not repeated:
        return table
    runs, packs = table["run_id"].to_pylist(), table["pack_id"].to_pylist()
    return table.filter(pa.array([repeated.get(run, pack) == pack for run, pack in zip(runs, packs, strict=True)]))


def _parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"mislabel.schema": str(SCHEMA)})
    pq.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return bytes(sink.getvalue())


def _listed(filesystem: Any, folder: str) -> list[Any]:
    return list(filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True)))


def _get(filesystem: Any, path: str) -> bytes | None:
    try:
        with filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _put(filesystem: Any, path: str, data: bytes) -> None:
    """Write the whole file or nothing. Object stores do so by themselves; a folder needs a rename."""
    if not isinstance(filesystem, fs.LocalFileSystem):
        with filesystem.open_output_stream(path) as stream:
            stream.write(data)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    # A leading dot hides the unfinished file from Parquet readers.
    unfinished = os.path.join(os.path.dirname(path), f".{uuid.uuid4().hex}")
    try:
        with open(unfinished, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


@contextmanager
def _as_store_errors(address: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: "the disk is full; free some space",
            errno.EDQUOT: "the disk quota is used up; free some space",
            errno.EFBIG: "the file size limit is reached; raise it",
            errno.EACCES: "may not be written; give another store with --store, or the right to write here",
            errno.EPERM: "may not be written; give another store with --store, or the right to write here",
            errno.EROFS: "is on a read-only file system; give another store with --store",
            errno.ENOTDIR: "is not a folder; give another store with --store",
            errno.EEXIST: "is not a folder; give another store with --store",
        }.get(error.errno or 0, str(error))
        raise StoreError(f"{address}: {advice}, then run the same command again") from None
