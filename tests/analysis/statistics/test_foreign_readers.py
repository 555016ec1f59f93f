"""DuckDB, pyarrow and pandas read a sweep's folders without our code, also while the sweep runs."""

from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pytest

import mislabel
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.store import Store
from tests.bowls import run

PARAMETERS = {"x": {"values": [0, 1, 2]}, "snapshots": 2}


def counts(folder: Path) -> list[dict[str, int]]:
    """The number of rows of each table, as each reader sees it."""
    tables = [name for name in ("runs", "curves", "arrays") if any((folder / name).glob("*.parquet"))]
    return [
        {name: len(pd.read_parquet(folder / name)) for name in tables},
        {name: ds.dataset(folder / name).count_rows() for name in tables},
        {name: _rows(f"select count(*) from '{folder}/{name}/*.parquet'") for name in tables},
    ]


def _rows(query: str) -> Any:
    (row,) = duckdb.connect().execute(query).fetchall()
    return row[0]


def test_a_finished_sweep_is_read_like_any_parquet_files(store: Store) -> None:
    files = run(store, parameters=PARAMETERS, seeds=2, resources={"pack": 6}).files
    sweep = mislabel.load(store.address, "bowls")
    expected = {"runs": len(sweep.runs), "curves": len(sweep.curves), "arrays": len(sweep.arrays)}
    assert counts(Path(files.address)) == [expected] * 3
    query = f"select x, avg(loss) from '{files.address}/runs/*.parquet' group by x order by x"
    found = dict(duckdb.connect().execute(query).fetchall())
    assert found == pytest.approx(sweep.cells("loss", by="x").set_index("x")["mean"].to_dict())


def test_a_running_sweep_is_read_at_any_time(store: Store) -> None:
    """After each report of a worker, all readers see the same rows, and those of ended runs are complete."""
    seen = []

    def look(launch: Launch) -> None:
        folder = Path(launch.files.address)
        if any((folder / "runs").glob("*.parquet")):
            found = counts(folder)
            assert found[0] == found[1] == found[2]
            seen.append(found[0]["runs"])
            runs = pd.read_parquet(folder / "runs")["run_id"]
            curves = pd.read_parquet(folder / "curves")
            assert set(runs) <= set(curves["run_id"])

    run(store, look, parameters=PARAMETERS, seeds=2, resources={"pack": 2})
    assert len(set(seen)) > 1
