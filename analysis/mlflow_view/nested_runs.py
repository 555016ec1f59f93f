"""The contents of MLflow's nested runs: one per cell, or one per run, as plain values.

A cell's curve is the mean over its seeds at each step, and ends in the mean that `Sweep.cells` gives. If a seed was
stopped early, the curve ends at the step where the first seed was stopped. Missing values are left out: MLflow's
databases can't store them (infinity becomes 1.8e308, which ruins every chart).
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

from mislabel.analysis.statistics.ranking import cells_on_front
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.formatting import count, value_text, with_interval
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.statistics import Summary, cell_table, cut_at, first_stops, measured_frames, summary, values_at_end
from mislabel.sweeps.store.outcome import WITH_RESULT, Status
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import RESERVED

# Part of every digest. Raise it when the contents of nested runs change: the next sync then writes them again.
FORM = 2
# The curves of about this many runs are in memory at the same time, as a small table for each nested run.
_RUNS_AT_ONCE = 500
_LONGEST_NAME = 200
_LONGEST_ERROR = 500


@dataclass(frozen=True)
class Point:
    metric: str
    value: float
    time: int
    """Milliseconds since 1970."""
    step: int


@dataclass(frozen=True)
class NestedRun:
    kind: Literal["cell", "run"]
    key: str
    """Id of the cell or run."""
    name: str
    status: str
    started: int
    ended: int
    params: dict[str, str]
    tags: dict[str, str]
    points: list[Point]


class Results:
    """A sweep's spec and its table `runs`, read once. Curves are read for the nested runs that are written."""

    def __init__(self, files: SweepFiles) -> None:
        spec = files.spec()
        if spec is None:
            raise MislabelError(f"{files.address}: no spec.yaml found, so this is not a sweep")
        self.files = files
        self.spec = spec
        self.spec_text = files.read_text("spec.yaml") or spec.to_yaml()
        self.by = "run_id" if self.spec.track.per == "run" else "cell_id"
        table = files.read("runs")
        measured = files.read("curves", where=pc.scalar(False)).column_names
        self.metrics = [name for name in table.column_names if name in measured and name not in RESERVED]
        self.parameters = [name for name in table.column_names if name not in RESERVED and name not in measured]
        runs = _frame(table, self.metrics) if table.num_rows else pd.DataFrame(columns=sorted(RESERVED))
        self.runs = runs.sort_values("started_at", kind="stable")
        self.cells = int(self.runs["cell_id"].nunique())
        # Milliseconds since 1970, like all times in this module.
        now = int(time.time() * 1000)
        self.started = _milliseconds(self.runs["started_at"].min()) if len(self) else now
        self.ended = _milliseconds(self.runs["finished_at"].max()) if len(self) else now

    def __len__(self) -> int:
        return len(self.runs)

    @cached_property
    def varying(self) -> list[str]:
        """Parameters that differ between cells: the spec's axes, then others with several values in the store."""
        axes = [name for name, axis in self.spec.axes().items() if (axis.values or [0, 1])[1:] and axis.points != 1]
        others = [name for name in self.parameters if name not in axes and self.runs[name].nunique() > 1]
        return [name for name in [*axes, *others] if name in self.parameters]

    @cached_property
    def digests(self) -> dict[str, str]:
        """By key: a digest of what the nested run is made from. Equal digests mean equal nested runs."""
        form = [FORM, self.spec.track.points, *self.varying]
        marks = self.runs["run_id"] + ":" + self.runs["status"] + ":" + self.runs["attempt"].astype(str)
        return {key: digest_of([*form, *sorted(own)]) for key, own in marks.groupby(self.runs[self.by], sort=False)}

    @cached_property
    def cell_tables(self) -> dict[str, pd.DataFrame]:
        """By objective: the cells' summaries over seeds, indexed by cell id."""
        ended = self.runs[self.runs["status"].isin(WITH_RESULT)]
        names = [objective.name for objective in self.spec.metric if objective.name in self.metrics]
        return {name: cell_table(ended, name, ["cell_id"]).set_index("cell_id") for name in names}

    @cached_property
    def front(self) -> set[str]:
        """The cells on the Pareto front; empty if there are fewer than two objectives."""
        objectives = self.spec.metric
        if len(objectives) < 2 or not {objective.name for objective in objectives} <= set(self.metrics):
            return set()
        return set(cells_on_front(self.cell_tables, objectives))

    def complete(self) -> set[str]:
        """Keys of nested runs whose seeds have all ended."""
        if self.by == "run_id":
            return set(self.digests)
        seeds = self.spec.seed_range
        ended = self.runs[self.runs["seed"].isin(seeds)].groupby("cell_id")["seed"].nunique()
        return set(ended.index[ended >= len(seeds)])

    def nested_runs(self, keys: Sequence[str]) -> Iterator[NestedRun]:
        """The nested runs of these keys, in their order."""
        seeds = 1 if self.by == "run_id" else self.spec.seeds.count
        at_once = max(1, _RUNS_AT_ONCE // max(1, seeds))
        for i in range(0, len(keys), at_once):
            some = keys[i : i + at_once]
            runs = self.runs[self.runs[self.by].isin(some)]
            curves: dict[Any, pd.DataFrame] = {}
            if self.metrics:
                stops = first_stops(runs, [self.by])
                where = pc.field(self.by).cast(pa.string()).isin(list(some))
                columns = list(dict.fromkeys([self.by, "run_id", "step", *self.metrics]))
                frames = _frame(self.files.read("curves", columns, where), self.metrics)
                frames = measured_frames(frames, runs[["run_id", "status", "step"]].assign(stop=stops))
                frames = frames.loc[~(frames["step"] > frames["stop"]), columns]
                means = frames.groupby([self.by, "step"])[self.metrics].mean()
                curves = {key: own.droplevel(0) for key, own in means.groupby(level=0)}
                runs = cut_at(runs, stops, frames, self.metrics)
            rows = dict(iter(runs.groupby(self.by)))
            for key in some:
                yield self._nested_run(key, rows[key], curves.get(key))

    def _nested_run(self, key: str, runs: pd.DataFrame, curve: pd.DataFrame | None) -> NestedRun:
        first = runs.iloc[0]
        started, ended = _milliseconds(runs["started_at"].min()), _milliseconds(runs["finished_at"].max())
        names = [name for name in [*self.varying, *self.parameters] if not pd.isna(first[name])]
        params = {name: value_text(first[name], digits=None) for name in names}
        shown = [*self.varying, "seed"] if self.by == "run_id" else self.varying
        differing = [f"{name}={value_text(first[name])}" for name in shown if not pd.isna(first[name])]
        tags = {"mislabel.cell": first["cell_id"], "mislabel.status": counted(runs["status"])}
        if self.by == "run_id":
            params["seed"] = str(first["seed"])
            tags["mislabel.run"] = key
        else:
            tags["mislabel.seeds"] = str(len(runs))
        measured = runs[runs["status"].isin(WITH_RESULT)]
        values = {name: values_at_end(measured, name) for name in self.metrics}
        finals = finals_of(pd.DataFrame({**values, "train_seconds": measured["train_seconds"]}))
        if self.by == "cell_id":
            tags["mlflow.note.content"] = self._note(finals, len(runs))
        if stopped := int((runs["status"] == Status.STOPPED).sum()):
            tags["mislabel.stopped"] = str(stopped)
        failed = runs[~runs["status"].isin(WITH_RESULT)]
        if len(failed):
            reason = str(failed["error"].iloc[0] or "no error message").splitlines()[0]
            tags["mislabel.error"] = redacted(reason)[:_LONGEST_ERROR]
        return NestedRun(
            kind="cell" if self.by == "cell_id" else "run",
            key=key,
            name=" ".join(differing)[:_LONGEST_NAME] or f"cell {first['cell_id'][:8]}",
            status="FAILED" if len(failed) else "FINISHED",
            started=started,
            ended=ended,
            params=params,
            tags=tags,
            points=list(points_of(finals, curve, (started, ended), int(runs["step"].max()), self.spec.track.points)),
        )

    def _note(self, finals: dict[str, Summary], seeds: int) -> str:
        """The cell's means as a Markdown table."""
        first = [objective.name for objective in self.spec.metric if objective.name in finals]
        lines = [
            f"| {name} | {with_interval(finals[name].mean, finals[name].high)} |"
            for name in dict.fromkeys([*first, *finals])
        ]
        return "\n".join([f"| {count(seeds, 'seed')} | mean ± 95 % interval |", "|---|---|", *lines])


def counted(statuses: "pd.Series[str]") -> str:
    """Such as '18 done, 2 diverged'."""
    return ", ".join(f"{number} {status}" for status, number in statuses.value_counts().items())


def _frame(table: pa.Table, metrics: Sequence[str]) -> pd.DataFrame:
    encoded = [i for i, field in enumerate(table.schema) if pa.types.is_dictionary(field.type)]
    for i in encoded:
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


def finals_of(values: pd.DataFrame) -> dict[str, Summary]:
    """The summary over runs of each column that has a value."""
    found = {str(name): summary(values[name]) for name in values.columns}
    return {name: final for name, final in found.items() if final.n}


def points_of(
    finals: dict[str, Summary], curves: pd.DataFrame | None, span: tuple[int, int], last: int, most: int
) -> Iterator[Point]:
    """At most `most` points per metric, and its standard deviation. The last point is the mean at the end.

    `curves` has a column per metric and a row per step. `span` is the start and end of training, in milliseconds.
    """
    started, ended = span
    if curves is not None:
        steps = curves.index.to_numpy()
        for name, values in zip(curves.columns, curves.to_numpy().T, strict=True):
            held = np.isfinite(values)
            for step, value in _thinned(steps[held], values[held], most):
                if step < last:
                    roughly = started + (ended - started) * step // max(1, last)
                    yield Point(name, _rounded(value), roughly, step)
    for name, final in finals.items():
        yield Point(name, _rounded(final.mean), ended, last)
        if final.n > 1 and f"{name}_std" not in finals:
            yield Point(f"{name}_std", _rounded(final.std), ended, last)


def _thinned(steps: np.ndarray, values: np.ndarray, most: int) -> Iterator[tuple[int, float]]:
    """At most `most` points, spread evenly over the measured steps, with both ends.

    Only the ends of a flat stretch are kept: they draw the same line, and MLflow writes points slowly. The second point
    is always kept, because a logarithmic axis can't show step 0.
    """
    chosen = np.unique(np.rint(np.linspace(0, len(steps) - 1, min(len(steps), most))).astype(int))
    kept = values[chosen]
    flat = np.zeros(len(chosen), bool)
    flat[2:-1] = (kept[1:-2] == kept[2:-1]) & (kept[2:-1] == kept[3:])
    return zip(steps[chosen[~flat]].tolist(), kept[~flat].tolist(), strict=True)


def _rounded(value: float) -> float:
    """The value rounded to single precision: 0.9, not 0.8999999761581421. The store has all digits."""
    return float(f"{value:.7g}")
