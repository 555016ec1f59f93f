"""Sweeps whose tables are in memory, for tests of claims and phases."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from mislabel.analysis.claims.registry import Finding, check
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep

SEEDS = 20
_KEYS = ("run_id", "cell_id", "seed", "pack_id", "step", "status")


class TableSweep(Sweep):
    """A sweep with these tables; `runs` has a row for each of the rows and seeds.

    A value that is a list has one element per seed. `varying` are the parameters that the spec varies.
    """

    def __init__(
        self, runs: Sequence[Mapping[str, Any]], seeds: int = SEEDS, varying: Sequence[str] = (),
        **others: pd.DataFrame,
    ) -> None:  # fmt: skip
        rows = [
            {"status": "done", "step": 100, "cell_id": f"cell{number}"}
            | {name: value[seed] if isinstance(value, list) else value for name, value in run.items()}
            | {"seed": seed}
            for seed in range(seeds)
            for number, run in enumerate(runs)
        ]
        table = pd.DataFrame(rows)
        self.tables = {"runs": table.assign(run_id=table.index.astype(str)), **others}
        self._varying = list(varying)

    @property
    def varying(self) -> list[str]:
        return self._varying

    @property
    def metrics(self) -> list[str]:
        columns = {**self.tables["runs"], **self.tables.get("curves", {})}
        return [name for name in columns if name not in _KEYS]

    def read(self, table: str, columns: Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        frame = self.tables[table]
        for column, value in (where or {}).items():
            frame = frame[frame[column].isin(value) if isinstance(value, list) else frame[column] == value]
        return frame[list(columns or frame.columns)].reset_index(drop=True)


def finding(experiment: str, claim: str, sweep: Sweep, quick: bool = False) -> Finding:
    """What the sweep says about one claim of the experiment."""
    return check(experiment, claim, sweep, quick)
