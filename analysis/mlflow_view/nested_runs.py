"""The contents of MLflow's nested runs: one per cell, or one per run, as plain values.

A cell's curve is the mean over its seeds at each step, and ends in the mean that `Sweep.cells` gives. If a seed was
stopped early, the curve ends at the step where the first seed was stopped. While seeds train, it ends at the last step
that all of them have reached.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mislabel.analysis.mlflow_view.points import Curves, Point, final_points, growing_points, rounded
from mislabel.analysis.mlflow_view.results import RANK, RUNNING, Results, Stage, frame_of, milliseconds
from mislabel.sweeps.formatting import count, value_text, with_interval
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.statistics import Summary, cut_at, first_stops, measured_frames, summaries, values_at_end
from mislabel.sweeps.store.outcome import WITH_RESULT, Status

INACTIVE = "–"
# The curves of about this many runs are in memory at the same time.
_RUNS_AT_ONCE = 1000
_POINTS_OF_BRIEF = 10
_METRICS_OF_BRIEF = 8
# MLflow's table shows about 25 characters of a name.
_LONGEST_NAME = 30
_LENGTH_OF_VALUE = len("=0.12 ")
_LONGEST_ERROR = 500
_RELATIVE_ERROR = 1e-5


@dataclass(frozen=True)
class NestedRun:
    kind: Literal["cell", "run"]
    key: str
    """Id of the cell or run."""
    name: str
    status: str
    started: int
    ended: int | None
    """None while it is open."""
    params: dict[str, str]
    tags: dict[str, str]
    points: list[Point]
    curves: Curves = field(repr=False)
    """All steps that were measured, of the metrics whose curves are shown."""

    def agrees_with(self, points: Collection[Point]) -> bool:
        """Whether these points, of the same nested run at an earlier time, are on its curves."""
        ends = {(point.metric, point.step): point.value for point in self.points}
        for point in points:
            steps, values = self.curves.get(point.metric, _NOTHING)
            i = int(np.searchsorted(steps, point.step))
            measured = values[i] if i < len(steps) and steps[i] == point.step else np.nan
            value = ends.get((point.metric, point.step), measured)
            if not abs(value - point.value) <= _RELATIVE_ERROR * max(abs(value), abs(point.value)):
                return False
        return True


_NOTHING = (np.empty(0, int), np.empty(0))


def nested_runs(results: Results, stages: Mapping[str, Stage], keys: Sequence[str], brief: bool) -> Iterator[NestedRun]:
    """The nested runs of these keys, in their order.

    A brief one has the last value of the first metrics, curves of the objectives alone, with few points, and no fixed
    parameters: MLflow needs longer for the rest than for this.
    """
    per_key = 1 if results.by == "run_id" else results.spec.seeds.count
    at_once = max(1, _RUNS_AT_ONCE // max(1, per_key))
    for i in range(0, len(keys), at_once):
        yield from _Some(results, stages, keys[i : i + at_once], brief).nested_runs()


class _Some:
    """Some nested runs. Their statistics are computed together, because pandas takes as long for one as for many."""

    def __init__(self, results: Results, stages: Mapping[str, Stage], keys: Sequence[str], brief: bool) -> None:
        self._results = results
        self._by = results.by
        self._stages = stages
        self._keys = keys
        self._brief = brief
        curved = (results.objectives or results.metrics[:1]) if brief else results.metrics
        self._curved = curved
        names = list(dict.fromkeys([*results.objectives, *results.metrics]))
        self._last = names[:_METRICS_OF_BRIEF] if brief else [*names, "train_seconds"]
        rows = results.rows[results.rows[self._by].isin(list(keys))]
        ended = [key for key in keys if stages[key].status == "ended"]
        rows = rows[(rows["status"] != RUNNING) | ~rows[self._by].isin(ended)]
        self._curves: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        if results.metrics:
            limits = self._limits(rows)
            frames = self._frames(rows, results.metrics if (rows["step"] > limits).any() else curved)
            frames = frames.assign(limit=frames["run_id"].map(limits.set_axis(rows["run_id"])))
            frames = frames[~(frames["step"] > frames["limit"])].drop(columns="limit")
            self._curves = _means(frames, self._by, curved)
            rows = cut_at(rows, limits, frames, [name for name in results.metrics if name in frames])
        self._runs = dict(_parts(rows, self._by))
        self._finals = self._summaries(rows[rows[self._by].isin(ended)])

    def _limits(self, rows: pd.DataFrame) -> "pd.Series[float]":
        """For each run, the last step of its cell's curve; NaN if it ends with its runs."""
        stops = first_stops(rows, [self._by])
        training = rows["step"].where(rows["status"] == RUNNING).groupby(rows[self._by]).transform("min")
        return pd.Series(np.fmin(stops.to_numpy(float), training.to_numpy(float)), rows.index)

    def _frames(self, rows: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
        columns = list(dict.fromkeys([self._by, "run_id", "step", *metrics]))
        where = pc.field(self._by).cast(pa.string()).isin(list(self._keys))
        frames = frame_of(self._results.files.read("curves", columns, where, running=True), metrics)
        return measured_frames(frames, rows[["run_id", "status", "step"]])[columns]

    def _summaries(self, rows: pd.DataFrame) -> dict[str, dict[str, Summary]]:
        """By key: the summary over seeds of each metric that has a value at the end."""
        out: dict[str, dict[str, Summary]] = {}
        measured = rows[rows["status"].isin(WITH_RESULT)]
        if measured.empty:
            return out
        values = {name: values_at_end(measured, name) for name in self._last if name != "train_seconds"}
        times = {name: measured[name].astype(float) for name in self._last if name == "train_seconds"}
        table = pd.DataFrame({**values, **times})
        ids = measured[list(dict.fromkeys([self._by, "cell_id", "seed"]))]
        long = pd.concat([ids.assign(metric=name, value=table[name]) for name in table.columns.astype(str)])
        ends = summaries(long, "value", [self._by, "metric"])
        for key, name, *numbers in zip(
            *(ends[end].tolist() for end in (self._by, "metric", *Summary._fields)), strict=True
        ):
            final = Summary(*numbers)
            if final.n:
                out.setdefault(key, {})[name] = final
        return out

    def nested_runs(self) -> Iterator[NestedRun]:
        for key in self._keys:
            yield self._nested_run(key, self._runs[key])

    def _nested_run(self, key: str, runs: "_Runs") -> NestedRun:
        results, stage = self._results, self._stages[key]
        finals, curves = self._finals.get(key, {}), self._curves.get(key, {})
        statuses, cell = runs["status"], runs["cell_id"][0]
        started = min(map(milliseconds, runs["started_at"]))
        ends = [milliseconds(end) for end in runs["finished_at"] if not pd.isna(end)]
        ended = max(ends) if stage.status == "ended" else results.now
        last = max(runs["step"])
        setting = dict(zip(results.settings.columns, results.settings.loc[key], strict=True))
        named = results.varying if self._brief else setting
        params = {name: _param(setting[name]) for name in named if setting[name] is None or not pd.isna(setting[name])}
        tags = {
            "mislabel.cell": cell,
            "status": _counted(statuses, stage),
            "seeds": str(len(statuses)),
            "step": _progress(runs, stage, last),
        }
        if self._by == "run_id":
            params["seed"] = str(runs["seed"][0])
            tags["mislabel.run"] = key
            del tags["seeds"]
        elif finals and not self._brief:
            tags["mlflow.note.content"] = self._note(finals, len(statuses))
        if stopped := statuses.count(Status.STOPPED):
            tags["mislabel.stopped"] = str(stopped)
        failed = [error for status, error in zip(statuses, runs["error"], strict=True) if status in _FAILED]
        if failed:
            reason = next(iter(str(failed[0] or "").splitlines()), "") or "no error message"
            tags["mislabel.error"] = redacted(reason)[:_LONGEST_ERROR]
        is_ended = stage.status == "ended"
        most = min(results.spec.track.points, _POINTS_OF_BRIEF) if self._brief else results.spec.track.points
        points = [
            *(final_points(curves, (started, ended), last, most) if is_ended else ()),
            *(growing_points(curves, (started, ended), most) if not is_ended else ()),
            *self._end_points(finals, ended, last),
        ]
        if is_ended and cell in results.ranks.index:
            points.append(Point(RANK, float(results.ranks[cell]), ended, last))
        closed = "FAILED" if failed else "FINISHED" if is_ended else "KILLED"
        return NestedRun(
            kind="cell" if self._by == "cell_id" else "run",
            key=key,
            name=_name({name: setting[name] for name in results.varying}, cell, runs["seed"][0], self._by),
            status="RUNNING" if stage.status == "open" else closed,
            started=started,
            ended=None if stage.status == "open" else ended,
            params=params,
            tags=tags,
            points=points,
            curves=curves,
        )

    def _end_points(self, finals: Mapping[str, Summary], ended: int, last: int) -> Iterator[Point]:
        for name, final in finals.items():
            yield Point(name, rounded(final.mean), ended, last)
            if final.n > 1 and name in self._curved and f"{name}_std" not in finals:
                yield Point(f"{name}_std", rounded(final.std), ended, last)

    def _note(self, finals: Mapping[str, Summary], seeds: int) -> str:
        """The cell's means as a Markdown table."""
        first = [name for name in self._results.objectives if name in finals]
        lines = [
            f"| {name} | {with_interval(finals[name].mean, finals[name].high)} |"
            for name in dict.fromkeys([*first, *finals])
        ]
        return "\n".join([f"| {count(seeds, 'seed')} | mean ± 95 % interval |", "|---|---|", *lines])


_Runs = dict[str, list[Any]]
"""The runs of one key, by column."""
_FAILED = {status for status in Status if status not in WITH_RESULT}
_SHOWN = ("cell_id", "seed", "status", "step", "started_at", "finished_at", "error", "steps", "trained_steps")


def _parts(rows: pd.DataFrame, by: str) -> Iterator[tuple[str, _Runs]]:
    """The rows of each key as lists: a table for each would be slow and large."""
    rows = rows.sort_values(by, kind="stable")
    columns = {name: rows[name].tolist() if name in rows else [None] * len(rows) for name in _SHOWN}
    keys = rows[by].to_numpy()
    starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
    for start, stop in pairwise(starts):
        if start < stop:
            yield str(keys[start]), {name: column[start:stop] for name, column in columns.items()}


def _means(
    frames: pd.DataFrame, by: str, metrics: Sequence[str]
) -> dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """By key and metric: the mean over runs at each step."""
    if frames.empty or not metrics:
        return {}
    means = frames.groupby([by, "step"], sort=True)[list(metrics)].mean()
    keys, steps = (means.index.get_level_values(level).to_numpy() for level in (0, 1))
    starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
    values = means.to_numpy()
    return {
        str(keys[start]): {name: (steps[start:stop], values[start:stop, i]) for i, name in enumerate(metrics)}
        for start, stop in pairwise(starts)
    }


def _param(value: Any) -> str:
    return INACTIVE if value is None else value_text(value, digits=None)


def _name(setting: Mapping[str, Any], cell: str, seed: int, by: str) -> str:
    """Such as 'width=20 rate=0.1'. Only the values if the names are long, or the start of the cell's id."""
    texts = {name: INACTIVE if value is None else value_text(value) for name, value in setting.items()}
    if sum(len(name) + _LENGTH_OF_VALUE for name in setting) <= _LONGEST_NAME:
        name = " ".join(f"{name}={text}" for name, text in texts.items())
    else:
        name = " ".join(texts.values())
    name = name if 0 < len(name) <= _LONGEST_NAME else f"cell {cell[:8]}"
    return f"{name} seed={seed}" if by == "run_id" else name


def _counted(statuses: Sequence[str], stage: Stage) -> str:
    is_unfinished = stage.status == "unfinished"
    return counted("unfinished" if is_unfinished and status == RUNNING else status for status in statuses)


def counted(statuses: Iterable[str]) -> str:
    """Such as '18 done, 2 diverged'."""
    return ", ".join(f"{number:,} {status}" for status, number in Counter(statuses).most_common())


def _progress(runs: _Runs, stage: Stage, last: int) -> str:
    """The step of the values, or the present step of the slowest seed and the number of steps."""
    now = [int(step) for status, step in zip(runs["status"], runs["trained_steps"], strict=True) if status == RUNNING]
    return str(last) if stage.status == "ended" or not now else f"{min(now)}/{int(max(runs['steps']))}"
