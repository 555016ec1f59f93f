"""Results of runs as workers write them to a store: a part of each table for a pack."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from mislabel.sweeps.store.store import SweepFiles


def tables(
    runs: Sequence[str], pack: str, status: str = "done", attempt: int = 1, loss: float = 1.0
) -> dict[str, pa.Table]:
    """Rows of some runs as a worker writes them; runs without a result have no curves and no metrics."""
    table = pa.table(
        {
            "run_id": pa.array(runs, pa.string()),
            "cell_id": pa.array([name.split("-")[0] for name in runs], pa.string()),
            "seed": pa.array([int(name.split("-")[1]) for name in runs], pa.int64()),
            "status": pa.array([status] * len(runs), pa.string()),
            "step": pa.array([2] * len(runs), pa.int64()),
            "pack_id": pa.array([pack] * len(runs), pa.string()),
            "attempt": pa.array([attempt] * len(runs), pa.int64()),
        }
    )
    if status in ("failed", "lost"):
        return {"runs": table}
    steps = [0, 1, 2]
    curves = pa.table(
        {
            "run_id": [name for name in runs for _ in steps],
            "pack_id": [pack for _ in runs for _ in steps],
            "step": [step for _ in runs for step in steps],
            "loss": [loss / (step + 1) for _ in runs for step in steps],
        }
    )
    return {"runs": table.append_column("loss", pa.array([loss / 3] * len(runs))), "curves": curves}


def rows(files: SweepFiles, table: str = "runs", *columns: str) -> list[tuple[Any, ...]]:
    read = files.read(table, columns or ["run_id", "status"])
    return sorted(zip(*(column.to_pylist() for column in read.columns), strict=True))


def part_file(files: SweepFiles, table: str, part: str) -> Path:
    return Path(files.address) / table / f"{part}.parquet"
