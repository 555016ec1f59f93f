"""Read the values of a metric in all frames as arrays: a run is a position in a table of runs, not a text per row.

The run ids of ten million rows take longer to read than everything else, and most of the memory. Parquet stores them as
numbers in a dictionary, so we read them like that.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mislabel.sweeps.statistics import Frames
from mislabel.sweeps.store.store import SweepFiles

# Selecting more than this share of the runs does not save reading.
_FEW = 0.2


class EncodedTables(SweepFiles):
    """The tables of a sweep, with run ids as dictionaries."""

    def __init__(self, files: SweepFiles) -> None:
        super().__init__(files._fs, files._root, files.name, files.store, files.generation)
        self._manifests = files._manifests

    def _scanned(
        self, table: str, parts: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None, where: Any = None
    ) -> pa.Table:
        import pyarrow.dataset as ds

        paths = [self._part(table, part) for part in parts]
        encoded = schema.set(
            schema.get_field_index("run_id"), pa.field("run_id", pa.dictionary(pa.int32(), pa.string()))
        )
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        parquet = ds.ParquetFileFormat(dictionary_columns={"run_id"}, default_fragment_scan_options=checked)

        def scanned() -> pa.Table:
            dataset = ds.dataset(paths, schema=encoded, filesystem=self._fs.arrow, format=parquet)
            return dataset.to_table(columns=columns and list(columns), filter=where, batch_readahead=4)

        def damaged() -> str:
            return next((self._part(table, part) for part in parts if self._unreadable(table, part, True)), self._root)

        with self._damage_as_store_errors(damaged):
            return self._fs.with_retries(scanned)


def read_frames(files: SweepFiles, metric: str, runs: pd.DataFrame, total: int, where: Any = None) -> list[Frames]:
    """The metric of these runs in all frames that satisfy `where`, a pyarrow expression on `curves`.

    `runs` has a row per run with `run_id` and `cell_id`. If there are few of the sweep's `total`, row groups without
    their cells are not read.
    """
    if 0 < len(runs) < _FEW * total:
        has_cells = "cell_id" in files.columns("curves")
        chosen = sorted(runs["cell_id" if has_cells else "run_id"].unique())
        column = pc.field("cell_id" if has_cells else "run_id")
        # The ends are compared with the row groups' statistics.
        near = (column >= chosen[0]) & (column <= chosen[-1]) & column.isin(pa.array(chosen, pa.string()))
        where = near if where is None else where & near
    table = EncodedTables(files).read("curves", ["run_id", "step", metric], where)
    known = pa.array(runs["run_id"], pa.string())
    found, last, place = [], None, np.empty(0, np.int32)
    for batch in table.to_batches():
        ids = batch["run_id"]
        if last is None or not ids.dictionary.equals(last):  # batches of a row group share their dictionary
            last = ids.dictionary
            place = pc.fill_null(pc.index_in(last, value_set=known), -1).to_numpy(zero_copy_only=False)
        run = place[ids.indices.to_numpy(zero_copy_only=False)]
        step = batch["step"].to_numpy(zero_copy_only=False)
        value = batch[metric].cast(pa.float64()).to_numpy(zero_copy_only=False)
        if len(place) and place.min() < 0:
            kept = run >= 0
            run, step, value = run[kept], step[kept], value[kept]
        found.append(Frames(run, step, value))
    return found
