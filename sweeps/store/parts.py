"""The parts of a sweep's tables: how their files are named, and what proves that the files are complete and unchanged.

A part has a file in `runs`, and in `curves` and `arrays` if it has rows there. All have the name
`<generation>-<digest>.parquet`. The digest is that of the `runs` file, and the metadata of the `runs` file contain the
sizes and checksums of the other files. So the name proves all of them. Parquet's own checksums do not: they cover the
pages but not the footer, where a flipped bit renames a column or hides rows from a filter.

Parts of layout 1 have a name without a generation, and no checksums.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

SCHEMA = 2
"""The version of the store's layout."""
TABLES = ("curves", "arrays", "runs")
"""In the order of writing: a row in `runs` says that the other two tables are complete for that run."""
_NAME = re.compile(r"(\d{6,})-([0-9a-f]{20})")
_MANIFEST_KEY = "mislabel.part"
# A reader of one cell skips the row groups of the others. Smaller groups make files larger.
_ROW_GROUP_ROWS = 1 << 17
_CHANGED = "does not have the content that was written"


@dataclass(frozen=True)
class FileRecord:
    """What a file of a part must be."""

    size: int
    sha256: str
    footer: str
    """The digest of the Parquet footer alone, which a reader can check without reading the whole file."""


@dataclass(frozen=True)
class Manifest:
    """What the metadata of a part's `runs` file say about the part."""

    files: dict[str, FileRecord]
    """The part's files in `curves` and `arrays`, by table."""
    replaces: tuple[str, ...] = ()
    """The parts that were merged into this one, or rewritten as this one."""


_MANIFEST = TypeAdapter(Manifest)


@dataclass(frozen=True)
class Part:
    name: str
    sizes: Mapping[str, int]
    """The sizes of the files that exist, by table."""
    manifest: Manifest | None
    """None if the part has layout 1."""

    @property
    def tables(self) -> list[str]:
        """The tables that have rows of this part."""
        return [*(self.sizes if self.manifest is None else self.manifest.files), "runs"]

    @property
    def missing(self) -> list[str]:
        return [table for table in self.tables if table not in self.sizes]

    @property
    def replaces(self) -> tuple[str, ...]:
        return self.manifest.replaces if self.manifest else ()

    def size_problems(self) -> dict[str, str]:
        """What a listing shows to be wrong with the part's files, by table."""
        wanted = {} if self.manifest is None else self.manifest.files
        found = dict.fromkeys(self.missing, "is missing")
        for table, record in wanted.items():
            if (size := self.sizes.get(table, record.size)) != record.size:
                found[table] = f"has {size:,} bytes instead of {record.size:,}"
        if self.manifest is not None:
            found |= {table: "does not belong to its part" for table in self.sizes if table not in self.tables}
        return found

    def content_problem(self, table: str, sha256: str) -> str | None:
        """What is wrong if the part's file in this table has this checksum; None if nothing is, or in layout 1."""
        if self.manifest is None:
            return None
        expected = self.name.partition("-")[2] if table == "runs" else self.manifest.files[table].sha256
        return None if sha256.startswith(expected) else _CHANGED

    def footer_problem(self, table: str, footer: bytes) -> str | None:
        if self.manifest is None or table == "runs":
            return None
        return None if _sha256(footer) == self.manifest.files[table].footer else _CHANGED

    @property
    def bytes(self) -> int:
        return sum(self.sizes.values())


def encoded(
    tables: Mapping[str, pa.Table], generation: int, replaces: Sequence[str] = ()
) -> tuple[str, dict[str, bytes]]:
    """The name of a part with these rows, and the contents of its files by table, in the order of writing."""
    files = {name: parquet(tables[name]) for name in TABLES if name != "runs" and name in tables}
    files = {name: data for name, data in files.items() if tables[name].num_rows}
    records = {name: FileRecord(len(data), _sha256(data), _sha256(_footer(data))) for name, data in files.items()}
    manifest = _MANIFEST.dump_json(Manifest(records, tuple(replaces))).decode()
    runs = parquet(tables["runs"], {_MANIFEST_KEY: manifest})
    return f"{generation:06}-{_sha256(runs)[:20]}", {**files, "runs": runs}


def generation_of(name: str) -> int:
    """The generation in which the part was written; -1 for a part of layout 1."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else -1


def manifest_of(name: str, metadata: Mapping[bytes, bytes] | None) -> Manifest | None:
    """The manifest of a part from the metadata of its `runs` file; None if the part has layout 1."""
    if generation_of(name) < 0:
        return None
    try:
        return _MANIFEST.validate_json((metadata or {})[_MANIFEST_KEY.encode()])
    except (KeyError, ValueError):
        raise pa.ArrowInvalid("its metadata do not describe the part") from None


def is_intact(name: str, runs: bytes) -> bool:
    """Whether this is the content of the `runs` file of the part. That of layout 1 can't be checked."""
    match = _NAME.fullmatch(name)
    return match is None or _sha256(runs)[:20] == match[2]


def parquet(table: pa.Table, metadata: Mapping[str, str] | None = None) -> bytes:
    """The table as a Parquet file, with these texts in its metadata."""
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({"mislabel.schema": str(SCHEMA)})
    # A dictionary pays for texts, which repeat. Metrics hardly ever do.
    texts = [field.name for field in table.schema if pa.types.is_string(field.type)]
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": texts, "write_page_checksum": True}
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=_ROW_GROUP_ROWS)
        writer.add_key_value_metadata(dict(metadata or {}))
    return bytes(sink.getvalue())


def _footer(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length :]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
