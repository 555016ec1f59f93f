"""Sweeps in the store, as a researcher uses them: tables, summaries over seeds, comparisons, front, importances."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, overload

import pandas as pd

from mislabel.analysis.statistics.checkout import commits, modified
from mislabel.analysis.statistics.comparison import compare
from mislabel.analysis.statistics.ranking import best_cells, front_of, ranked
from mislabel.analysis.statistics.tables import At, Names, SweepTables, Where, names_of
from mislabel.sweeps.errors import MislabelError, nearest
from mislabel.sweeps.formatting import count
from mislabel.sweeps.store.store import Store

if TYPE_CHECKING:
    import optuna


_FIRST = 10


@overload
def load(store: str, name: str) -> "Sweep": ...
@overload
def load(store: str, name: str, *more: str) -> "Sweep | Sweeps": ...
def load(store: str, name: str, *more: str) -> "Sweep | Sweeps":
    """Load a sweep by name from a store: a folder, or an address such as s3://bucket/path.

    Several names give one object with the same methods, whose tables have a column `sweep`.
    """
    opened = Store(store)
    found = [Sweep(opened.existing(each)) for each in dict.fromkeys((name, *more))]
    return Sweeps(found) if more else found[0]


class Sweep(SweepTables):
    """A sweep's tables, and the analyses made from them."""

    def __repr__(self) -> str:
        return f"Sweep({self.name!r}, task {self.spec.task}, {len(self.runs)} runs in {self.files.address})"

    def _repr_html_(self) -> str:
        """The first rows of the table of cells, for notebooks."""
        from mislabel.analysis.report.text_tables import to_html

        title = f"<p><b>{escape(self.name)}</b>: task {escape(self.spec.task)}, {count(len(self.runs), 'run')}</p>"
        if not self.metrics:
            return title
        table = ranked(self)
        rest = len(table) - _FIRST
        note = f"<p>… and {count(rest, 'more cell')}</p>" if rest > 0 else ""
        return title + to_html(table.head(_FIRST), self.goals) + note

    def to_markdown(self, metrics: Names = None, by: Names = None, at: At = "end") -> str:
        """The table of cells, or a row per value of `by`, as Markdown: mean ± half the interval, the best in bold."""
        from mislabel.analysis.report.text_tables import to_markdown

        return to_markdown(ranked(self, names_of(metrics), names_of(by), at), self.goals)

    def to_latex(self, metrics: Names = None, by: Names = None, at: At = "end") -> str:
        """The same table as LaTeX, with the rules of the package booktabs."""
        from mislabel.analysis.report.text_tables import to_latex

        return to_latex(ranked(self, names_of(metrics), names_of(by), at), self.goals)

    def sql(self, query: str) -> pd.DataFrame:
        """The rows of a SELECT statement over the tables `runs`, `curves` and `arrays`, by DuckDB.

        Only the columns and rows that the query needs are read. Other files can't be read.
        """
        from mislabel.analysis.statistics import sql

        return sql.query({self.name: self}, query)

    def compare(
        self, a: Mapping[str, Any] | str, b: Mapping[str, Any] | str, metric: str | None = None, at: At = "end"
    ) -> pd.DataFrame:
        """Compare two values of a parameter, such as {"dim": 20} and {"dim": 200}, or two cells by their ids.

        There is a row for each setting of the other parameters: the difference b - a with its 95 % interval, Hedges' g,
        and the p-value, also corrected for the number of rows (Holm). Runs with the same seed are compared in pairs.
        """
        where = (self._selected(a), self._selected(b))
        return compare((self, self), where, _compared(self, metric), at)

    def _selected(self, given: Mapping[str, Any] | str) -> Mapping[str, Any]:
        if not isinstance(given, str):
            return given
        cells = [cell for cell in self.read("runs", ["cell_id"])["cell_id"].unique() if cell.startswith(given)]
        if len(cells) != 1:
            found = f"the beginning of {len(cells)} cell ids" if cells else "not a cell id"
            raise MislabelError(f"{given!r} is {found} of {self.name}; name one cell, or values such as {{'dim': 20}}")
        return {"cell_id": cells[0]}

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


class Sweeps:
    """Several sweeps: the methods of `Sweep`, with a column `sweep` in every table."""

    def __init__(self, sweeps: Sequence[Sweep]) -> None:
        self._sweeps = {sweep.name: sweep for sweep in sweeps}

    def __repr__(self) -> str:
        return f"Sweeps({', '.join(map(repr, self._sweeps))})"

    def _repr_html_(self) -> str:
        return "\n".join(sweep._repr_html_() for sweep in self._sweeps.values())

    def __getitem__(self, name: str) -> Sweep:
        if name not in self._sweeps:
            raise MislabelError(f"{name!r} is not one of {', '.join(self._sweeps)}{nearest(name, self._sweeps)}")
        return self._sweeps[name]

    @property
    def runs(self) -> pd.DataFrame:
        """One row per ended run."""
        return self._joined(lambda sweep: sweep.runs)

    @property
    def curves(self) -> pd.DataFrame:
        """One row per run and measured step."""
        return self._joined(lambda sweep: sweep.curves)

    @property
    def arrays(self) -> pd.DataFrame:
        """One row per run, snapshot and array metric."""
        return self._joined(lambda sweep: sweep.arrays)

    def read(self, table: str, columns: Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        """Some columns and rows of runs, curves or arrays."""
        return self._joined(lambda sweep: sweep.read(table, columns, where))

    def cells(self, metric: str, by: Names = None, where: Where | None = None, at: At = "end") -> pd.DataFrame:
        """The metric of each cell, or of each value of `by` in each sweep; see `Sweep.cells`."""
        return self._joined(lambda sweep: sweep.cells(metric, by, where, at))

    def curve(self, metric: str, by: Names = None, where: Where | None = None) -> pd.DataFrame:
        """The metric over steps; see `Sweep.curve`."""
        return self._joined(lambda sweep: sweep.curve(metric, by, where))

    def best(self, by: Names = None, metrics: Names = None, at: At = "end") -> pd.DataFrame:
        """The best cell of each sweep, or of each value of `by` in each sweep."""
        return self._joined(lambda sweep: sweep.best(by, metrics, at))

    def front(self) -> pd.DataFrame:
        """The cells on the Pareto front of each sweep."""
        return self._joined(lambda sweep: sweep.front())

    def importance(self, metric: Names = None, method: str | None = None, goal: Names = None) -> pd.DataFrame:
        """How much each parameter matters in each sweep."""
        return self._joined(lambda sweep: sweep.importance(metric, method, goal))

    def compare(self, a: str, b: str, metric: str | None = None, at: At = "end") -> pd.DataFrame:
        """Compare the cells that two of the sweeps have in common; see `Sweep.compare`."""
        return compare((self[a], self[b]), ({}, {}), _compared(self[a], metric), at)

    def sql(self, query: str) -> pd.DataFrame:
        """The rows of a SELECT statement over the tables of all sweeps, which have a column `sweep`."""
        from mislabel.analysis.statistics import sql

        return sql.query(self._sweeps, query)

    def to_markdown(self, metrics: Names = None, by: Names = None, at: At = "end") -> str:
        """The table of cells as Markdown, with the best of all sweeps in bold."""
        from mislabel.analysis.report.text_tables import to_markdown

        return to_markdown(self._ranked(metrics, by, at), next(iter(self._sweeps.values())).goals)

    def to_latex(self, metrics: Names = None, by: Names = None, at: At = "end") -> str:
        """The table of cells as LaTeX, with the best of all sweeps in bold."""
        from mislabel.analysis.report.text_tables import to_latex

        return to_latex(self._ranked(metrics, by, at), next(iter(self._sweeps.values())).goals)

    def _ranked(self, metrics: Names, by: Names, at: At) -> pd.DataFrame:
        return self._joined(lambda sweep: ranked(sweep, names_of(metrics), names_of(by), at))

    def _joined(self, made: Callable[[Sweep], pd.DataFrame]) -> pd.DataFrame:
        tables = []
        for name, sweep in self._sweeps.items():
            table = made(sweep).copy(deep=False)
            table.insert(0, "sweep", name)
            tables.append(table)
        return pd.concat(tables, ignore_index=True)


def _compared(sweep: Sweep, metric: str | None) -> str:
    if metric is None and not sweep.spec.metric:
        raise MislabelError(f"{sweep.name} has no objective; name the metric to compare")
    return metric or sweep.spec.metric[0].name
