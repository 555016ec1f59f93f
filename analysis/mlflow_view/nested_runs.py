"""What the MLflow view shows of a sweep's tables: a nested run per cell, or per run, as plain values.

A cell's curve is the mean over its seeds at each step; a seed that was stopped early counts with its last value from
there on, so that the curve ends in the mean of `runs`. Values that are not finite are left out: MLflow's databases
can't hold them (infinity becomes 1.8e308, which ruins every chart).
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mislabel.analysis.mlflow_view.points import Final, Point, Span, finals_of, points_of, with_interval
from mislabel.analysis.statistics.pareto import on_front
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.spec.model import spec_from_stored
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import RESERVED

# Part of every digest: raise it when nested runs are to look different, and the next sync writes them anew.
FORM = 1
# Curves of about this many runs are in memory at a time.
_RUNS_AT_ONCE = 20_000
WITHOUT_RESULT = ("failed", "lost")
_LONGEST_NAME = 200
_LONGEST_ERROR = 500


@dataclass(frozen=True)
class NestedRun:
    kind: Literal["cell", "run"]
    key: str
    """Id of the cell, or of the run."""
    name: str
    status: str
    started: int
    ended: int
    params: dict[str, str]
    tags: dict[str, str]
    points: list[Point]


class Results:
    """One reading of a sweep: its spec and its `runs`. Curves are read for those nested runs that are asked for."""

    def __init__(self, files: SweepFiles) -> None:
        text = files.read_text("spec.yaml")
        if text is None:
            raise MislabelError(f"{files.address}: has no spec.yaml, so it is not a sweep")
        self.files = files
        self.spec_text = text
        self.spec = spec_from_stored(text)
        self.by = "run_id" if self.spec.track.per == "run" else "cell_id"
        table = files.read("runs")
        measured = files.read("curves", where=pc.scalar(False)).column_names
        self.metrics = [name for name in table.column_names if name in measured and name not in RESERVED]
        self.parameters = [name for name in table.column_names if name not in RESERVED and name not in measured]
        runs = _frame(table, self.metrics) if table.num_rows else pd.DataFrame(columns=sorted(RESERVED))
        self.runs = runs.sort_values("started_at", kind="stable")

    def __len__(self) -> int:
        return len(self.runs)

    @cached_property
    def cells(self) -> int:
        return int(self.runs["cell_id"].nunique()) if len(self) else 0

    @cached_property
    def started(self) -> int:
        """Milliseconds since 1970, as all times here."""
        return _milliseconds(self.runs["started_at"].min()) if len(self) else int(time.time() * 1000)

    @cached_property
    def ended(self) -> int:
        return _milliseconds(self.runs["finished_at"].max()) if len(self) else self.started

    @cached_property
    def varying(self) -> list[str]:
        """Parameters that tell cells apart: the spec's axes, then others of which the store has several values."""
        axes = [name for name, axis in self.spec.axes().items() if (axis.values or [0, 1])[1:] and axis.points != 1]
        others = [name for name in self.parameters if name not in axes and self.runs[name].nunique() > 1]
        return [name for name in [*axes, *others] if name in self.parameters]

    @cached_property
    def digests(self) -> dict[str, str]:
        """What each nested run is made from, in short: equal digests, equal nested runs."""
        form = [FORM, self.spec.track.points, *self.varying]
        marks = self.runs["run_id"] + ":" + self.runs["status"] + ":" + self.runs["attempt"].astype(str)
        return {key: digest_of([*form, *sorted(own)]) for key, own in marks.groupby(self.runs[self.by], sort=False)}

    @cached_property
    def comparable(self) -> pd.DataFrame:
        """The objectives' means of each cell of which every run was trained to the end and has a value."""
        names = [objective.name for objective in self.spec.metric if objective.name in self.metrics]
        ended = self.runs[~self.runs["status"].isin(WITHOUT_RESULT)]
        whole = (ended["status"] == "done") & ended[names].notna().all(axis=1)
        cells = ended["cell_id"]
        return ended.groupby("cell_id")[names].mean()[whole.groupby(cells).all()]

    @cached_property
    def front(self) -> set[str]:
        """Cells on the Pareto front; none where there is one objective, or none."""
        objectives = self.spec.metric
        if len(objectives) < 2 or not {objective.name for objective in objectives} <= set(self.metrics):
            return set()
        return set(self.comparable.index[on_front(self.comparable.to_numpy(), objectives)])

    def complete(self) -> set[str]:
        """Keys of nested runs whose seeds have all ended."""
        if self.by == "run_id":
            return set(self.digests)
        seeds = self.spec.seed_range
        ended = self.runs[self.runs["seed"].isin(seeds)].groupby("cell_id")["seed"].nunique()
        return set(ended.index[ended >= len(seeds)])

    def nested_runs(self, keys: Sequence[str]) -> Iterator[NestedRun]:
        """The nested runs of these keys, in their order."""
        rows = dict(iter(self.runs[self.runs[self.by].isin(keys)].groupby(self.by)))
        at_once = max(1, _RUNS_AT_ONCE // max(1, self.spec.seeds.count))
        for i in range(0, len(keys), at_once):
            some = keys[i : i + at_once]
            curves = self._curves(some, pd.concat([rows[key] for key in some]))
            for key in some:
                yield self._nested_run(key, rows[key], curves.get(key))

    def _curves(self, keys: Sequence[str], runs: pd.DataFrame) -> dict[Any, pd.DataFrame]:
        """By key that has any: means over seeds, indexed by step."""
        where = pc.field(self.by).cast(pa.string()).isin(list(keys))
        columns = [self.by, "step", *self.metrics]
        curves = _frame(self.files.read("curves", columns, where), self.metrics)
        if curves.empty:
            return {}
        short = runs[runs["step"] < runs.groupby(self.by)["step"].transform("max")]
        steps = curves[[self.by, "step"]].drop_duplicates()
        carried = short[columns].merge(steps, on=self.by, suffixes=("_ended", ""))
        carried = carried[carried["step"] > carried["step_ended"]]
        whole = pd.concat([curves, carried[columns]]) if len(carried) else curves
        means = whole.groupby([self.by, "step"])[self.metrics].mean()
        return {key: mean.droplevel(0) for key, mean in means.groupby(level=0)}

    def _nested_run(self, key: str, runs: pd.DataFrame, curve: pd.DataFrame | None) -> NestedRun:
        first = runs.iloc[0]
        started, ended = _milliseconds(runs["started_at"].min()), _milliseconds(runs["finished_at"].max())
        params = {name: shown(first[name]) for name in [*self.varying, *self.parameters] if not pd.isna(first[name])}
        tags = {"mislabel.cell": first["cell_id"], "mislabel.status": counted(runs["status"])}
        if self.by == "run_id":
            params["seed"] = str(first["seed"])
            tags["mislabel.run"] = key
        else:
            tags["mislabel.seeds"] = str(len(runs))
        finals = finals_of(runs, [*self.metrics, "train_seconds"])
        if self.by == "cell_id":
            tags["mlflow.note.content"] = self._note(finals, len(runs))
        if stopped := int((runs["status"] == "stopped").sum()):
            tags["mislabel.stopped"] = str(stopped)
        failed = runs[runs["status"].isin(WITHOUT_RESULT)]
        if len(failed):
            tags["mislabel.error"] = str(failed["error"].iloc[0] or "no reason given").splitlines()[0][:_LONGEST_ERROR]
        return NestedRun(
            kind="cell" if self.by == "cell_id" else "run",
            key=key,
            name=self.name(first),
            status="FAILED" if len(failed) else "FINISHED",
            started=started,
            ended=ended,
            params=params,
            tags=tags,
            points=list(
                points_of(finals, curve, Span(started, ended, int(runs["step"].max())), self.spec.track.points)
            ),
        )

    def name(self, run: "pd.Series[Any]") -> str:
        """What tells this cell, or run, from the others."""
        names = [*self.varying, "seed"] if self.by == "run_id" else self.varying
        parts = [f"{name}={shown(run[name], digits=4)}" for name in names if not pd.isna(run[name])]
        return " ".join(parts)[:_LONGEST_NAME] or f"cell {run['cell_id'][:8]}"

    def _note(self, finals: dict[str, Final], seeds: int) -> str:
        """The cell's means in Markdown."""
        first = [objective.name for objective in self.spec.metric if objective.name in finals]
        lines = [f"| {name} | {with_interval(finals[name])} |" for name in dict.fromkeys([*first, *finals])]
        return "\n".join([f"| {seeds} seeds | mean ± 95 % interval |", "|---|---|", *lines])


def shown(value: Any, digits: int | None = None) -> str:
    """A parameter's value as a researcher would write it."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float):
        return f"{value:.{digits}g}" if digits else repr(float(value))
    return str(value)


def counted(statuses: "pd.Series[str]") -> str:
    """Such as '18 done, 2 diverged'."""
    return ", ".join(f"{count} {status}" for status, count in statuses.value_counts().items())


def _frame(table: pa.Table, metrics: Sequence[str]) -> pd.DataFrame:
    words = [i for i, field in enumerate(table.schema) if pa.types.is_dictionary(field.type)]
    for i in words:
        table = table.set_column(i, table.column_names[i], table.column(i).cast(pa.string()))
    frame: pd.DataFrame = table.to_pandas()
    if metrics:
        values = frame[list(metrics)].to_numpy(float)
        frame[list(metrics)] = np.where(np.isfinite(values), values, np.nan)
    return frame


def digest_of(parts: Sequence[object]) -> str:
    return hashlib.blake2b("\n".join(map(str, parts)).encode(), digest_size=10).hexdigest()


def _milliseconds(when: pd.Timestamp) -> int:
    return int(when.timestamp() * 1000)
