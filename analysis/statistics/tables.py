"""The tables of a sweep: runs, curves and arrays as pandas tables, and their summaries over seeds."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import and_
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mislabel.analysis.statistics.frames import read_frames
from mislabel.sweeps.cells.activity import Activity
from mislabel.sweeps.errors import MislabelError, nearest
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.statistics import (
    Frames,
    at_best_step,
    at_step,
    cell_table,
    curve_table,
    first_stops,
    last_values,
    pooled_table,
    values_at_end,
)
from mislabel.sweeps.store.outcome import WITH_RESULT, Status
from mislabel.sweeps.store.parts import TABLES
from mislabel.sweeps.store.store import SweepFiles

Where = Mapping[str, Any]
"""Rows to read: column name to a value, or to a list of values."""

Names = str | Sequence[str] | None
"""One name, several, or None for the default."""

At = Literal["end", "best"] | int
"""When a metric is taken: at the end of training, at the best step of each cell, or at a step."""


class SweepTables:
    """Reads a sweep's tables from the store when they are needed."""

    def __init__(self, files: SweepFiles) -> None:
        self.files = files
        self.name = files.name

    @cached_property
    def spec(self) -> Spec:
        spec = self.files.spec()
        if spec is None:
            raise MislabelError(f"{self.files.address}: has no spec.yaml, so it is not a sweep")
        return spec

    @cached_property
    def runs(self) -> pd.DataFrame:
        """One row per ended run: ids, parameters, seed, status, last metrics, timings."""
        return self.read("runs")

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per run and measured step, also of runs that are still training."""
        return self.read("curves")

    @cached_property
    def running(self) -> pd.DataFrame:
        """One row per run that is still training: like `runs`, and `trained_steps`, `updated_at`, `expected_end`."""
        found: pd.DataFrame = self.files.running().to_pandas()
        added = ["trained_steps", "updated_at", "expected_end"]
        return found if len(found) else pd.DataFrame(columns=[*self.files.columns("runs"), *added])

    @cached_property
    def arrays(self) -> pd.DataFrame:
        """One row per run, snapshot and array metric; `values` holds a list."""
        return self.read("arrays")

    def read(self, table: str, columns: Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        """Some columns and rows of runs, curves or arrays. Nothing else is read from disk.

        `where` may also name parameters when it selects rows of curves and arrays: {"noise_rate": 0.2, "seed": [0, 1]}.
        """
        if table not in TABLES:
            raise MislabelError(f"{table!r} is not a table; the tables are {', '.join(reversed(TABLES))}")
        condition = self._condition(table, where or {})
        frame: pd.DataFrame = self.files.read(table, columns, condition, running=table != "runs").to_pandas()
        return frame

    @property
    def varying(self) -> list[str]:
        """Parameters that the spec varies, in its order."""
        return list(self.spec.axes())

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics that are measured at every frame."""
        keys = {"run_id", "cell_id", "seed", "pack_id", "step"}
        return [name for name in self.files.columns("curves") if name not in keys]

    @cached_property
    def array_metrics(self) -> list[str]:
        """Metrics that are stored as arrays, at snapshots."""
        if "metric" not in self.files.columns("arrays"):
            return []
        return sorted(self.read("arrays", ["metric"])["metric"].unique())

    def cells(self, metric: str, by: Names = None, where: Where | None = None, at: At = "end") -> pd.DataFrame:
        """The metric of each cell, or of each value of `by`: mean, std, n and 95 % interval over seeds.

        `at` is "end", "best" or a step. "best" takes each cell at the step where its mean is best. A step takes the
        last frame up to it. `n` is the number of seeds with a value. `runs`, `diverged` and `stopped` count the runs
        of the row. A diverged run has no value. Parameters that are inactive in a cell are missing.

        If a run of a cell was stopped early, all runs of the cell are taken at `step`, where the first of them was
        stopped: the runs that continued are the better ones. A row that joins cells averages within cells first. It
        leaves out the cells that were stopped and counts them in `stopped_cells`; `cells` is the number of the others.
        `where={"status": "done"}` selects the runs that were trained to the end.
        """
        self.require_metric(metric)
        by = self._grouping(by)
        runs = self._taken(self.ended_runs([*by, metric], where), metric, by, at)
        return (cell_table if "cell_id" in by else pooled_table)(runs, metric, by)

    def curve(self, metric: str, by: Names = None, where: Where | None = None) -> pd.DataFrame:
        """The metric over steps: mean, std, n and 95 % interval over seeds, per cell or per value of `by`.

        A run has no value after it was stopped early, nor from the step at which it diverged. `runs` counts the runs
        with a value. `stopped` and `diverged` count the runs that ended before the step: where they are not 0, the mean
        is over the remaining runs, which are the better ones. `running` counts the runs that are still training and
        have not reached the step.
        """
        self.require_metric(metric)
        by = self._grouping(by)
        own, of_runs = self._divided(where)
        runs = self.curve_runs(by, of_runs)
        return curve_table(runs, self.frames(metric, runs, own), by)

    def _taken(self, runs: pd.DataFrame, metric: str, by: Sequence[str], at: At) -> pd.DataFrame:
        """The runs with the metric as it was at the end, at the best step, or at a step."""
        if at == "best":
            return at_best_step(runs, self.frames(metric, runs), metric, self.goal_of(metric))
        if isinstance(at, int):
            return at_step(runs, self.frames(metric, runs), metric, at)
        if at != "end":
            raise MislabelError(f'at={at!r} is not a time; use "end", "best" or a step')
        stops = first_stops(runs, by)
        longer = runs["step"] > stops
        if "cell_id" not in by or not longer.any():
            return runs
        some = runs[longer].reset_index(drop=True)
        value = last_values(self.frames(metric, some), stops[longer].to_numpy(np.int64))
        runs = runs.assign(step=runs["step"].where(~longer, stops).astype(int))
        runs.loc[longer, metric] = value
        return runs

    def taken(
        self, metric: str, columns: Sequence[str] = (), where: Where | None = None, at: At = "end"
    ) -> pd.DataFrame:
        """Each run's `cell_id`, `seed`, `value` and these columns; see `cells` for `at`.

        The value is NaN if the run diverged, or if a run of its cell was stopped early (at a step: before it).
        """
        self.require_metric(metric)
        runs = self._taken(self.ended_runs([*columns, metric], where), metric, ["cell_id"], at)
        stopped = (runs["status"] == Status.STOPPED).groupby(runs["cell_id"]).transform("any")
        runs["value"] = values_at_end(runs, metric).where(~stopped)
        return runs[list(dict.fromkeys(["cell_id", "seed", *columns, "value"]))]

    @property
    def goals(self) -> dict[str, str]:
        """By objective: minimize or maximize."""
        return {objective.name: objective.goal for objective in self.spec.metric}

    def goal_of(self, metric: str) -> str:
        """The goal of the metric in the spec. MislabelError if it has none."""
        if metric not in self.goals:
            raise MislabelError(f"{metric} has no goal in the spec of {self.name}, so no value of it is the best one")
        return self.goals[metric]

    def ended_runs(self, columns: Sequence[str] = (), where: Where | None = None) -> pd.DataFrame:
        """The runs with a result: ids, seed, status, step and these columns. Inactive parameters are missing."""
        keys = ["run_id", "cell_id", "seed", "status", "step"]
        wanted = list(dict.fromkeys([*keys, *columns]))
        conditional = [name for name in wanted if name in self.activity.conditions]
        read = [*wanted, *(name for name in self.activity.reads if conditional and name not in wanted)]
        runs = self.read("runs", read, where)
        runs = runs[runs["status"].isin(WITH_RESULT)].reset_index(drop=True)
        return self._masked(runs, wanted)

    def _training_runs(self, columns: Sequence[str], where: Where | None) -> pd.DataFrame:
        """The runs that are still training, with these columns. Inactive parameters are missing."""
        rows = self.files.running()
        if not rows.num_rows:
            return pd.DataFrame(columns=list(columns))
        condition = self._condition("runs", where or {})
        runs: pd.DataFrame = (rows if condition is None else rows.filter(condition)).to_pandas()
        return self._masked(runs, columns)

    def _masked(self, runs: pd.DataFrame, wanted: Sequence[str]) -> pd.DataFrame:
        """These columns of the runs, without the values of inactive parameters."""
        conditional = [name for name in wanted if name in self.activity.conditions]
        values = {name: runs[name].to_numpy() for name in self.activity.reads if conditional}
        for name in conditional:
            runs[name] = masked(runs[name], self.activity.column(name, values, len(runs)))
        return runs[list(wanted)]

    def curve_runs(self, columns: Sequence[str] = (), where: Where | None = None) -> pd.DataFrame:
        """The runs whose frames are in curves, with these columns: ended ones and those that are still training."""
        ended = self.ended_runs(columns, where)
        training = self._training_runs(list(ended.columns), where)
        training = training[~training["run_id"].isin(ended["run_id"])]
        both = [runs for runs in (ended, training) if len(runs)]
        return pd.concat(both, ignore_index=True) if len(both) > 1 else (both or [ended])[0].reset_index(drop=True)

    def frames(self, metric: str, runs: pd.DataFrame, where: Where | None = None) -> list[Frames]:
        """The metric of these runs in all frames, or in those that `where` selects."""
        condition = self._condition("curves", where) if where else None
        return read_frames(self.files, metric, runs, self._total, condition)

    @cached_property
    def activity(self) -> Activity:
        """Which parameters are active in a cell."""
        return Activity(self.spec)

    @cached_property
    def _total(self) -> int:
        return len(self.files.read("runs", ["run_id"]))

    def _divided(self, where: Where | None) -> tuple[Where, Where]:
        """What `where` says about frames, and what it says about their runs."""
        names = {"step", *self.metrics}
        given = where or {}
        own = {name: value for name, value in given.items() if name in names}
        return own, {name: value for name, value in given.items() if name not in names}

    def first_stop(self) -> int | None:
        """The step at which the first run was stopped early; None if no run was.

        It is the last step at which all cells can be compared. The cells that were trained to the end are the better
        ones, and what holds for them need not hold for all.
        """
        stops = self.read("runs", ["step"], {"status": Status.STOPPED})["step"]
        return int(stops.min()) if len(stops) else None

    def values(self, metric: str, step: int | None = None, where: Where | None = None) -> pd.DataFrame:
        """Each ended run's `cell_id`, `seed`, `status` and `value`: the metric at its end, or at a step.

        The value at a step is that of the last frame up to it. It is NaN if the run has none, diverged, failed, or was
        stopped before that step (at the end: was stopped at all).
        """
        runs = self.read("runs", ["run_id", "cell_id", "seed", "status", "step", metric], where)
        if step is None:
            value = runs[metric].where(runs["status"] == Status.DONE)
        else:
            ended = runs["status"].isin(WITH_RESULT)
            reached = (runs["status"] == Status.DONE) | (ended & (runs["step"] >= step))
            found = last_values(self.frames(metric, runs), np.full(len(runs), step))
            value = pd.Series(found, runs.index).where(reached)
        value = values_at_end(runs.assign(**{metric: value}), metric)
        return runs[["cell_id", "seed", "status"]].assign(value=value)

    def complete_values(self, metric: str, step: int | None = None) -> dict[str, np.ndarray]:
        """The runs' values by cell, at their end or at a step, for the cells whose runs all have a value there.

        Failed runs are left out.
        """
        table = self.values(metric, step)
        table = table[table["status"].isin(WITH_RESULT)]
        groups = table["value"].groupby(table["cell_id"], sort=False)
        return {str(cell): own.to_numpy() for cell, own in groups if own.notna().all()}

    def require_metric(self, metric: str) -> None:
        """MislabelError if the metric is not measured."""
        if metric not in self.metrics:
            hint = nearest(metric, [*self.metrics, *self.array_metrics])
            raise MislabelError(
                f"{metric!r} is not a metric of {self.name}{hint}; it has {', '.join(self.metrics) or 'no runs yet'}"
            )

    def _grouping(self, by: Names) -> list[str]:
        if by is None:
            return [*self.varying, "cell_id"]
        names = names_of(by)
        for name in names:
            self.require_column("runs", name)
        return names

    def require_column(self, table: str, name: str) -> None:
        columns = self.files.columns(table)
        if name not in columns:
            raise MislabelError(
                f"{name!r} is not a column of {table}{nearest(name, columns)}; it has {', '.join(columns)}"
            )

    def _condition(self, table: str, where: Where) -> Any:
        own = self.files.schema(table)
        conditions = [_is_in(name, value, own.field(name).type) for name, value in where.items() if name in own.names]
        elsewhere = {name: value for name, value in where.items() if name not in own.names}
        if elsewhere:
            for name in elsewhere:
                self.require_column("runs", name)
            ids = self.read("runs", ["run_id"], elsewhere)["run_id"].tolist()
            ids += self._training_runs(["run_id"], elsewhere)["run_id"].tolist()
            conditions.append(pc.field("run_id").isin(pa.array(ids, pa.string())))
        return reduce(and_, conditions) if conditions else None


def names_of(given: Names) -> list[str]:
    return [] if given is None else [given] if isinstance(given, str) else list(given)


def masked(values: "pd.Series[Any]", active: np.ndarray) -> "pd.Series[Any]":
    """The values where the parameter is active; elsewhere they are missing. Whole numbers and booleans stay such."""
    kind = getattr(values.dtype, "kind", "")
    if active.all() or kind not in "ib":
        return values.where(active)
    return values.astype("Int64" if kind == "i" else "boolean").where(active)


def _is_in(name: str, value: Any, kind: pa.DataType) -> Any:
    values = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    # Parquet's statistics of a column of zeros are -0 to 0. Arrow then reads its values as -0, which is not in [0].
    values += [0.0, -0.0] if pa.types.is_floating(kind) and 0 in values else []
    try:
        return pc.field(name).isin(pa.array(values, kind))
    except (pa.ArrowException, TypeError, ValueError):
        raise MislabelError(f"where {name}: {value!r} does not fit the column's type, {kind}") from None
