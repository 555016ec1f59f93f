"""Sweeps whose tables are in memory, for tests of claims."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mislabel.analysis.claims.claim import Verdict, judged
from mislabel.analysis.claims.registry import CLAIMS
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep

SEEDS = 20


class TableSweep(Sweep):
    """A sweep with these tables; `runs` has a row for each of the rows and seeds."""

    def __init__(self, runs: Sequence[Mapping[str, Any]], **others: pd.DataFrame) -> None:
        rows = [{"status": "done", "step": 100, **run, "seed": seed} for seed in range(SEEDS) for run in runs]
        table = pd.DataFrame(rows)
        self.tables = {"runs": table.assign(run_id=table.index.astype(str), cell_id="cell"), **others}

    def read(self, table: str, columns: Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        frame = self.tables[table]
        for column, value in (where or {}).items():
            frame = frame[frame[column] == value]
        return frame[list(columns or frame.columns)].reset_index(drop=True)


def verdict(experiment: str, beginning: str, sweep: Sweep) -> Verdict:
    """The sweep's verdict on the one claim of the experiment that begins like this."""
    (paper,) = [paper for paper in CLAIMS[experiment] if paper.startswith(beginning)]
    return judged(paper, CLAIMS[experiment][paper], sweep).verdict
