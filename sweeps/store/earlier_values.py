"""Runs from before a parameter was added to their task: their rows lack its column, and get its earlier value.

`Task.earlier` has these values, by parameter.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value


def read_runs(
    files: SweepFiles, earlier: Mapping[str, Value], columns: Sequence[str] | None = None, where: Any = None
) -> pa.Table:
    """`files.read("runs", columns, where)`, with the earlier values where a run has none."""
    if not earlier or not files.parts("runs"):
        return files.read("runs", columns, where)
    absent = set(earlier) - set(files.columns("runs"))
    stored = None if columns is None else [name for name in columns if name not in absent]
    table = _filled(files.read("runs", stored, where), earlier)
    return table if columns is None else table.select(columns)


def write_earlier_values(files: SweepFiles, earlier: Mapping[str, Value]) -> None:
    """Write the earlier values into all rows of `runs` that lack them, so that every reader sees them."""
    parts = files.parts("runs") if earlier else []
    if not parts or _has_values(files, list(earlier)):
        return
    for part in parts:
        table = pq.read_table(io.BytesIO(files.read_bytes(f"runs/{part}.parquet") or b""))
        files.write_part(part, {"runs": _filled(table, earlier)})


def _has_values(files: SweepFiles, names: Sequence[str]) -> bool:
    if not set(names) <= set(files.columns("runs")):
        return False
    table = files.read("runs", names)
    return not any(table[name].null_count for name in names)


def _filled(table: pa.Table, earlier: Mapping[str, Value]) -> pa.Table:
    for name, value in earlier.items():
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, pc.fill_null(table[name], value))
        else:
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    return table
