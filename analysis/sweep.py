"""A sweep of a store as pandas tables, read when they are asked for."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mislabel.analysis.statistics.intervals import summarized
from mislabel.sweeps.errors import MislabelError, nearest
from mislabel.sweeps.spec.model import Spec, spec_from_stored
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.sweeps.store.tables import TABLES

if TYPE_CHECKING:
    import optuna

Where = Mapping[str, Any]
"""Column to value, or to a list of values, that rows must have."""


def load(store: str, name: str) -> "Sweep":
    """The sweep of that name in the store: a folder, or an address such as s3://bucket/path."""
    return Sweep(Store(store).existing(name))


class Sweep:
    def __init__(self, files: SweepFiles) -> None:
        self.files = files
        self.name = files.name

    def __repr__(self) -> str:
        return f"Sweep({self.name!r}, task {self.spec.task}, {len(self.runs)} runs in {self.files.address})"

    @cached_property
    def spec(self) -> Spec:
        return spec_from_stored(self.files.read_text("spec.yaml") or "")

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per ended run: ids, parameters, seed, status, last metrics, timings."""
        return self.read("runs")

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per run and measured step."""
        return self.read("curves")

    @cached_property
    def arrays(self) -> pd.DataFrame:
        """One row per run, snapshot and array metric; `values` holds a list."""
        return self.read("arrays")

    def read(self, table: str, columns: Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        """Some columns and rows of runs, curves or arrays; only these are read from disk.

        `where` may name parameters for curves and arrays too: {"noise_rate": 0.2, "seed": [0, 1]}.
        """
        if table not in TABLES:
            raise MislabelError(f"{table!r} is not a table; there are {', '.join(reversed(TABLES))}")
        condition = self._condition(table, where or {})
        frame: pd.DataFrame = self.files.read(table, columns, condition).to_pandas()
        return frame

    @property
    def varying(self) -> list[str]:
        """Parameters that the spec varies, in its order."""
        return list(self.spec.axes())

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics that were measured at every frame."""
        keys = {"run_id", "cell_id", "seed", "pack_id", "step"}
        return [name for name in self.files.columns("curves") if name not in keys]

    @cached_property
    def array_metrics(self) -> list[str]:
        """Metrics that were kept as arrays, at snapshots."""
        if "metric" not in self.files.columns("arrays"):
            return []
        return sorted(self.read("arrays", ["metric"])["metric"].unique())

    def cells(self, metric: str, by: str | Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        """The metric at the end of the runs: mean, std, n and 95 % interval over seeds, per cell or per value of `by`.

        `runs`, `diverged` and `stopped` count what each row is made of. Diverged runs have no finite value and are not
        averaged. Where a run was stopped early, all runs of the row are taken at `step`, where the first of them was:
        what the others came to later would flatter. `where={"status": "done"}` gives the mean over those alone.
        """
        self.require_metric(metric)
        by = self._grouping(by)
        columns = list(dict.fromkeys([*by, "run_id", "status", "step", metric]))
        table = self.read("runs", columns, where)
        table = table[table["status"].isin(["done", "stopped", "diverged"])]
        table = table.assign(diverged=table["status"] == "diverged", stopped=table["status"] == "stopped")
        if table["stopped"].any():
            table = self._cut_short(table, metric, by)
        counts = table.groupby(by, observed=True, dropna=False).agg(
            runs=("run_id", "size"), diverged=("diverged", "sum"), stopped=("stopped", "sum"), last=("step", "max")
        )
        counts = counts.rename(columns={"last": "step"}).drop(columns=[name for name in by if name == "step"])
        return summarized(table, metric, by).merge(counts.reset_index(), on=by)

    def _cut_short(self, table: pd.DataFrame, metric: str, by: Sequence[str]) -> pd.DataFrame:
        """All runs of a group at the step where the first of them was stopped."""
        groups = table.groupby(list(by), observed=True, dropna=False).ngroup()
        stop = table["step"].where(table["stopped"]).groupby(groups).transform("min")
        longer = table[table["step"] > stop]
        curves = self.read("curves", ["run_id", "step", metric], {"run_id": longer["run_id"]})
        curves = curves.merge(pd.DataFrame({"run_id": longer["run_id"], "stop": stop}).dropna(), on="run_id")
        curves = curves[curves["step"] <= curves["stop"]].sort_values("step").drop_duplicates("run_id", keep="last")
        earlier = table["run_id"].map(curves.set_index("run_id")[metric])
        return table.assign(
            **{metric: table[metric].where(~table["run_id"].isin(curves["run_id"]), earlier)},
            step=table["step"].where(~(table["step"] > stop), stop).astype(int),
        )

    def curve(self, metric: str, by: str | Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        """The metric over steps: mean, std, n and 95 % interval over seeds, per cell or per value of `by`.

        A run that was stopped early has no values after that: where `n` falls, the mean is over those that remain, and
        flatters.
        """
        self.require_metric(metric)
        by = self._grouping(by)
        runs = self.read("runs", list(dict.fromkeys(["run_id", *by])))
        table = self.read("curves", ["run_id", "step", metric], where)
        return summarized(table.merge(runs, on="run_id"), metric, [*by, "step"])

    def front(self) -> pd.DataFrame:
        """The cells on the Pareto front of the objectives, in the first objective's order, with the mean of each.

        No other cell is better in one of the means and as good in all. Cells that were stopped early, or of which a run
        has no value, are not on it.
        """
        from mislabel.analysis.statistics.ranking import ranked

        if len(self.spec.metric) < 2:
            raise MislabelError(f"{self.name} has no front: that takes several objectives; see cells")
        table = ranked(self)
        return table[table["front"]].drop(columns="front").reset_index(drop=True)

    def study(
        self, metric: str | Sequence[str] | None = None, goal: str | Sequence[str] | None = None, curves: bool = True
    ) -> "optuna.Study":
        """The sweep as an Optuna study in memory: one trial per cell; see `mislabel.analysis.studies.study`."""
        from mislabel.analysis.studies.study import study_of

        return study_of(self, metric, goal, curves)

    def importance(
        self,
        metric: str | Sequence[str] | None = None,
        method: str | None = None,
        goal: str | None = None,
        step: int | None = None,
    ) -> pd.DataFrame:
        """How much each parameter matters for the metric, or for each objective; see `analysis/studies`."""
        from mislabel.analysis.studies.importance import importance_of

        return importance_of(self, metric, method, goal, step)

    def _grouping(self, by: str | Sequence[str] | None) -> list[str]:
        if by is None:
            return [*self.varying, "cell_id"] if self.varying else ["cell_id"]
        names = [by] if isinstance(by, str) else list(by)
        for name in names:
            self._known_column("runs", name)
        return names

    def require_metric(self, metric: str) -> None:
        if metric not in self.metrics:
            hint = nearest(metric, [*self.metrics, *self.array_metrics])
            raise MislabelError(
                f"{metric!r} is not a metric of {self.name}{hint}; it has {', '.join(self.metrics) or 'no runs yet'}"
            )

    def _known_column(self, table: str, name: str) -> None:
        columns = self.files.columns(table)
        if name not in columns:
            raise MislabelError(
                f"{name!r} is not a column of {table}{nearest(name, columns)}; it has {', '.join(columns)}"
            )

    def _condition(self, table: str, where: Where) -> Any:
        own = self.files.schema(table)
        elsewhere = {name: value for name, value in where.items() if name not in own.names}
        condition = None
        for name, value in where.items():
            if name in own.names:
                condition = _and(condition, _is(name, value, own.field(name).type))
        if elsewhere:
            for name in elsewhere:
                self._known_column("runs", name)
            ids = self.read("runs", ["run_id"], elsewhere)["run_id"]
            condition = _and(condition, pc.field("run_id").isin(pa.array(ids.tolist(), pa.string())))
        return condition


def _is(name: str, value: Any, kind: pa.DataType) -> Any:
    values = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    # Of a column that holds 0 alone, Parquet's statistics say -0 to 0, and Arrow takes its values for -0, unlike 0.
    values += [0.0, -0.0] if pa.types.is_floating(kind) and 0 in values else []
    try:
        return pc.field(name).isin(pa.array(values, kind))
    except (pa.ArrowException, TypeError, ValueError):
        raise MislabelError(f"where {name}: {value!r} is not a value of that column, which holds {kind}") from None


def _and(first: Any, second: Any) -> Any:
    return second if first is None else first & second
