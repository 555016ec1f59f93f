"""What the MLflow view shows of a sweep, read once from the store: its spec, its ended runs and its running runs."""

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa

from mislabel.analysis.statistics.ranking import cells_on_front
from mislabel.sweeps.cells.activity import Activity
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.statistics import cell_table, comparable
from mislabel.sweeps.store.outcome import WITH_RESULT
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import RESERVED

# Part of every digest. Raise it when the contents of nested runs change: the next sync then writes them again.
FORM = 3
RUNNING = "running"
RANK = "rank"
"""The metric that sorts nested runs as the command line does: see `Results.ranks`."""
# Columns of running runs that ended runs do not have.
_OF_RUNNING = ("trained_steps", "updated_at", "expected_end")
# Nested runs of larger sweeps are brief, except for the best ones when the sweep ends: MLflow writes slowly.
FEW_CELLS = 50


@dataclass(frozen=True)
class Stage:
    """How far a nested run is."""

    status: Literal["open", "ended", "unfinished"]
    """Whether its runs are training or will, have ended, or did not end because the sweep was stopped."""
    digest: str
    """A digest of what the nested run is made from. Equal digests mean equal nested runs."""


class Results:
    def __init__(self, files: SweepFiles) -> None:
        spec = files.spec()
        if spec is None:
            raise MislabelError(f"{files.address}: no spec.yaml found, so this is not a sweep")
        self.files = files
        self.spec = spec
        self.spec_text = files.read_text("spec.yaml") or spec.to_yaml()
        self.by = "run_id" if spec.track.per == "run" else "cell_id"
        running, ended = files.running(), files.read("runs")  # a run that ends in between is read as ended
        measured = files.schema("curves").names
        columns = [
            name for name in dict.fromkeys([*ended.column_names, *running.column_names]) if name not in _OF_RUNNING
        ]
        self.metrics = [name for name in columns if name in measured and name not in RESERVED]
        self.parameters = [name for name in columns if name not in RESERVED and name not in measured]
        empty = pd.DataFrame(columns=[*sorted(RESERVED), *self.parameters, *self.metrics])
        self.runs = frame_of(ended, self.metrics).sort_values("started_at", kind="stable") if len(ended) else empty
        """The runs that have ended, in the order of their starts."""
        training = frame_of(running, self.metrics) if len(running) else empty
        training = training[~training["run_id"].isin(self.runs["run_id"])]
        self.rows = self.runs
        """The same, and the runs that are training or were when the sweep was stopped, with status `running`."""
        if len(training):
            held = [self.runs] if len(self.runs) else []
            self.rows = pd.concat([*held, training.sort_values("started_at", kind="stable")], ignore_index=True)
        self.cells = int(self.rows["cell_id"].nunique())
        # Milliseconds since 1970, like all times of the view.
        self.now = int(time.time() * 1000)
        self.started = milliseconds(self.rows["started_at"].min()) if len(self.rows) else self.now
        self.ended = milliseconds(self.runs["finished_at"].max()) if len(self) else self.now

    def __len__(self) -> int:
        return len(self.runs)

    @cached_property
    def varying(self) -> list[str]:
        """Parameters that differ between cells: the spec's axes, then others with several values in the store."""
        axes = [name for name, axis in self.spec.axes().items() if (axis.values or [0, 1])[1:] and axis.points != 1]
        others = [name for name in self.parameters if name not in axes and self.rows[name].nunique() > 1]
        return [name for name in [*axes, *others] if name in self.parameters]

    @cached_property
    def settings(self) -> pd.DataFrame:
        """The parameters of each nested run, by its key; None where a conditional parameter is inactive."""
        return self._settings(self.by)

    @cached_property
    def cell_settings(self) -> pd.DataFrame:
        """The same by cell id."""
        return self._settings("cell_id")

    def _settings(self, by: str) -> pd.DataFrame:
        cells = self.rows.drop_duplicates(by).set_index(by)
        out = cells[[*dict.fromkeys([*self.varying, *self.parameters])]].astype(object)
        activity = Activity(self.spec)
        read = {name: cells[name].to_numpy() for name in activity.reads}
        for name in activity.conditions.keys() & set(out):
            out[name] = out[name].where(activity.column(name, read, len(out)), None)
        return out

    @property
    def objectives(self) -> list[str]:
        return [objective.name for objective in self.spec.metric if objective.name in self.metrics]

    @property
    def has_few(self) -> bool:
        """Whether no nested run is brief: see `nested_runs`."""
        return _planned_cells(self) * (self.spec.seeds.count if self.by == "run_id" else 1) <= FEW_CELLS

    def stages(self, final: bool) -> dict[str, Stage]:
        """By key of a nested run. `final` means that no runs train any more."""
        rows, ended = self.rows, self._complete()
        # Seeds that a race adds to a complete cell count when they have ended.
        rows = rows[(rows["status"] != RUNNING) | ~rows[self.by].isin(ended)]
        steps = rows["trained_steps"].fillna(0).astype(int).astype(str) if "trained_steps" in rows else ""
        marks = rows["run_id"] + ":" + rows["status"] + ":" + rows["attempt"].astype(str) + ":"
        marks += np.where(rows["status"] == RUNNING, steps, "")
        unfinished = set(rows.loc[rows["status"] == RUNNING, self.by])
        form = [FORM, self.spec.track.points, self.has_few, *self.varying]
        stages = {}
        for key, own in marks.groupby(rows[self.by], sort=False):
            status: Literal["open", "ended", "unfinished"]
            status = "ended" if key in ended or (final and key not in unfinished) else "unfinished" if final else "open"
            stages[str(key)] = Stage(status, digest_of([*form, status, *sorted(own)]))
        return stages

    def _complete(self) -> set[str]:
        """Keys of nested runs whose seeds have all ended."""
        if self.by == "run_id":
            return set(self.runs["run_id"])
        seeds = self.spec.seed_range
        ended = self.runs[self.runs["seed"].isin(seeds)].groupby("cell_id")["seed"].nunique()
        return set(ended.index[ended >= len(seeds)])

    @cached_property
    def cell_tables(self) -> dict[str, pd.DataFrame]:
        """By objective: the cells' summaries over the seeds that have ended, indexed by cell id."""
        ended = self.runs[self.runs["status"].isin(WITH_RESULT)]
        return {name: cell_table(ended, name, ["cell_id"]).set_index("cell_id") for name in self.objectives}

    @cached_property
    def front(self) -> set[str]:
        """The cells on the Pareto front; empty if there are fewer than two objectives."""
        objectives = self.spec.metric
        if len(objectives) < 2 or not {objective.name for objective in objectives} <= set(self.metrics):
            return set()
        return set(cells_on_front(self.cell_tables, objectives))

    @cached_property
    def ranks(self) -> "pd.Series[float]":
        """By cell: a number that grows from the best cell to the worst, in the order of `mislabel results`.

        It is between 0 and 1 if all seeds have a value at the end, up to 2 if some do not, and above 2 if seeds were
        stopped early: the later they were stopped, the smaller it is. Cells on the Pareto front have a negative number.
        A cell's number depends on no other cell, so it need not be written again when other cells end.
        """
        if not self.objectives:
            return pd.Series(dtype=float)
        objective = self.spec.metric[0]
        cells = self.cell_tables[self.objectives[0]]
        cost = (1 if objective.goal == "minimize" else -1) * cells["mean"].fillna(math.inf)
        place = 0.5 + np.arctan(cost.to_numpy(float)) / math.pi  # grows with the cost, from 0 to 1
        steps = self.runs.drop_duplicates("cell_id").set_index("cell_id")["steps"].loc[cells.index].to_numpy(float)
        late = 1 - cells["step"].to_numpy(float) / np.maximum(steps, 1)
        out = np.where(comparable(cells), place, 1 + place)
        out = np.where(cells["stopped"] > 0, 2 + late + 1e-9 * place, out)
        return pd.Series(np.where(cells.index.isin(list(self.front)), out - 1, out), cells.index)

    def best(self, most: int) -> list[str]:
        """Keys of the nested runs of the best cells, the best first."""
        cells = self.ranks.sort_values(kind="stable").index[:most]
        if self.by == "cell_id":
            return [str(cell) for cell in cells]
        return [str(run) for run in self.runs.loc[self.runs["cell_id"].isin(cells[:1]), "run_id"][:most]]

    @property
    def last_step(self) -> int:
        return int(self.rows["step"].max()) if len(self.rows) else 0


def _planned_cells(results: Results) -> float:
    """The number of cells that the spec asks for, or that the store has if that is larger."""
    spec, axes = results.spec, results.spec.axes()
    if spec.budget.cells is not None:
        return max(spec.budget.cells, results.cells)
    paired = {name for group in spec.zip for name in group[1:]}
    points = [len(axis.values) if axis.values else axis.points for name, axis in axes.items() if name not in paired]
    return max(math.prod(points) if None not in points else math.inf, results.cells)  # type: ignore[arg-type]


def frame_of(table: pa.Table, metrics: Sequence[str]) -> pd.DataFrame:
    """The table in pandas, with NaN for values of metrics that are not finite."""
    encoded = [i for i, field in enumerate(table.schema) if pa.types.is_dictionary(field.type)]
    for i in encoded:
        table = table.set_column(i, table.column_names[i], table.column(i).cast(pa.string()))
    frame: pd.DataFrame = table.to_pandas()
    held = [name for name in metrics if name in frame]
    if held:
        values = frame[held].to_numpy(float)
        frame[held] = np.where(np.isfinite(values), values, np.nan)
    return frame


def digest_of(parts: Sequence[object]) -> str:
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=10).hexdigest()


def milliseconds(when: pd.Timestamp) -> int:
    return int(when.timestamp() * 1000)
