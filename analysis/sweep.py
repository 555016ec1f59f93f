"""A sweep in the store, as a researcher uses it: tables, summaries over seeds, front, study and importances."""

from typing import TYPE_CHECKING

import pandas as pd

from mislabel.analysis.statistics.checkout import commits, modified
from mislabel.analysis.statistics.ranking import best_cells, front_of, ranked
from mislabel.analysis.statistics.tables import At, Names, SweepTables, names_of
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store

if TYPE_CHECKING:
    import optuna


def load(store: str, name: str) -> "Sweep":
    """Load a sweep by name from a store: a folder, or an address such as s3://bucket/path."""
    return Sweep(Store(store).existing(name))


class Sweep(SweepTables):
    """A sweep's tables, and the analyses made from them."""

    def __repr__(self) -> str:
        return f"Sweep({self.name!r}, task {self.spec.task}, {len(self.runs)} runs in {self.files.address})"

    @property
    def commits(self) -> "pd.Series[str]":
        """By run id, the commit of the code that trained the run; `-dirty` at its end marks a modified checkout."""
        return commits(self)

    @property
    def modified_runs(self) -> pd.DataFrame:
        """Those of `runs` that come from a modified checkout: their code is in no commit."""
        return self.runs[self.runs["run_id"].isin(modified(self.commits).index)]

    def best(self, by: Names = None, metrics: Names = None, at: At = "end") -> pd.DataFrame:
        """The best cell by the first objective, or the best cell for each value of `by`; see `cells` for `at`.

        Cells that were stopped early are worse than all others. The means of other metrics are shown beside it.
        """
        return best_cells(self, names_of(by), names_of(metrics), at).reset_index(drop=True)

    def front(self) -> pd.DataFrame:
        """The cells on the Pareto front of the objectives, sorted by the first objective, with the mean of each.

        No other cell dominates them: is as good in all means and better in one. A cell is not on the front if one of
        its runs was stopped early or has no value. With one objective, the front is the best cell.
        """
        if not self.spec.metric:
            raise MislabelError(f"{self.name} has no front, because its spec names no metric to optimize; see cells")
        table = ranked(self)
        front = table[table["cell_id"].isin(front_of(self))]
        return front.drop(columns="front", errors="ignore").reset_index(drop=True)

    def study(self, metric: Names = None, goal: Names = None, curves: bool = True) -> "optuna.Study":
        """The sweep as an Optuna study in memory: one trial per cell; see `mislabel.analysis.studies.study`."""
        from mislabel.analysis.studies.study import study_of  # loads Optuna

        return study_of(self, metric, goal, curves)

    def importance(
        self, metric: Names = None, method: str | None = None, goal: Names = None, step: int | None = None
    ) -> pd.DataFrame:
        """How much each parameter matters for the metric, or for each objective; see `analysis/studies`."""
        from mislabel.analysis.studies.importance import importance_of  # loads Optuna

        return importance_of(self, metric, method, goal, step)
