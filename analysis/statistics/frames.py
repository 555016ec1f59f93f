"""Read the values of a metric in all frames as arrays: a run is a position in a table of runs."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mislabel.analysis.statistics.scans import EncodedTables
from mislabel.sweeps.statistics import Frames
from mislabel.sweeps.store.running import RUNNING
from mislabel.sweeps.store.store import SweepFiles

# Selecting more than this share of the runs does not save reading.
_FEW = 0.2


def read_frames(files: SweepFiles, metric: str, runs: pd.DataFrame, total: int, where: Any = None) -> list[Frames]:
    """The metric of these runs in all frames that satisfy `where`, a pyarrow expression on `curves`.

    `runs` has a row per run with `run_id`, `cell_id` and `status`. If there are few of the sweep's `total`, row groups
    without their cells are not read.
    """
    near = None
    if 0 < len(runs) < _FEW * total and "cell_id" in files.columns("curves"):
        cells = sorted(runs["cell_id"].unique())
        column = pc.field("cell_id")
        near = (column >= cells[0]) & (column <= cells[-1]) & column.isin(pa.array(cells, pa.string()))
    names = ["run_id", "step", metric]
    tables = [EncodedTables(files, near).read("curves", names, where)]
    if (runs["status"] == RUNNING).any() and (rows := files.read_running("curves", names, where)) is not None:
        tables.append(rows.set_column(0, "run_id", rows["run_id"].combine_chunks().dictionary_encode()))
    known = pa.array(runs["run_id"], pa.string())
    found, last, place = [], None, np.empty(0, np.int32)
    for batch in (batch for table in tables if table.num_rows for batch in table.to_batches()):
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
