"""A sweep as an Optuna study, in memory: everything that Optuna can say or draw of a study it then can of a sweep.

There is one trial per cell, in the order in which cells were begun. A trial is complete, with the mean over the cell's
seeds, where every run was trained to the end and has a value; pruned, with no value, where a run was stopped early;
and failed elsewhere: where a run diverged or has no such metric, or none has ended but by an error. Runs that failed
are otherwise left out. A parameter is there where it varies: not where its condition does not hold.

A list of numbers becomes a range of numbers, on a log scale where they are spread like that, so that axes of plots and
distances are right; a list of words, or of true and false, is categorical.
"""

import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import optuna
import pyarrow as pa
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.spec.condition import parse_expression
from mislabel.sweeps.spec.distribution import distribution
from mislabel.sweeps.spec.model import Axis, Objective

if TYPE_CHECKING:
    from mislabel.analysis.sweep import Sweep


def study_of(
    sweep: "Sweep",
    metric: str | Sequence[str] | None = None,
    goal: str | Sequence[str] | None = None,
    curves: bool = True,
) -> optuna.Study:
    """The study of the objectives, or of any other metrics with a goal each.

    Trials have the cell's id, its number of seeds, and for each objective the standard error of the mean as user
    attributes, and as intermediate values the mean curve of the first objective as far as every run has one; without
    `curves`, which take longest to read, they have none.
    """
    objectives = objectives_of(sweep, metric, goal)
    cells = Cells(sweep)
    tables = [
        {row["cell_id"]: row for row in sweep.cells(objective.name, by="cell_id").to_dict("records")}
        for objective in objectives
    ]
    shown = _mean_curves(sweep, objectives[0].name) if curves else {}
    with quietly():
        study = optuna.create_study(directions=[o.goal for o in objectives], study_name=sweep.name)
        study.set_metric_names([objective.name for objective in objectives])
        for i, cell in enumerate(cells.ids):
            rows = [table.get(cell) for table in tables]
            study.add_trial(_trial(cells, i, objectives, rows, shown.get(cell, {})))
    return study


def objectives_of(
    sweep: "Sweep", metric: str | Sequence[str] | None = None, goal: str | Sequence[str] | None = None
) -> list[Objective]:
    """The objectives of the spec, or these metrics with the goals given, or else those that the spec has for them."""
    known = {objective.name: objective.goal for objective in sweep.spec.metric}
    names = list(known) if metric is None else [metric] if isinstance(metric, str) else list(metric)
    goals = [goal] * len(names) if goal is None or isinstance(goal, str) else list(goal)
    if not names:
        raise MislabelError(f'{sweep.name} names no objective; name one, such as metric="loss", goal="minimize"')
    if len(goals) != len(names):
        raise MislabelError(f"{len(names)} metrics need a goal each, not {len(goals)}")
    objectives = []
    for name, wanted in zip(names, goals, strict=True):
        sweep.require_metric(name)
        chosen = wanted or known.get(name)
        if chosen not in ("minimize", "maximize"):
            given = "has no goal in the spec" if chosen is None else f"can't have the goal {chosen!r}"
            raise MislabelError(f'{name} {given}; give goal="minimize" or goal="maximize"')
        objectives.append(Objective.model_validate({"name": name, "goal": chosen}))
    return objectives


class Cells:
    """The cells of a sweep in the order in which they were begun, with what varies as Optuna sees it."""

    def __init__(self, sweep: "Sweep") -> None:
        axes = sweep.spec.axes()
        self._conditions = {name: parse_expression(axis.when) for name, axis in axes.items() if axis.when}
        read = {name for condition in self._conditions.values() for name in condition.names}
        schema = sweep.files.schema("runs")
        self.names = [name for name in axes if name in schema.names]
        columns = list(dict.fromkeys([*self.names, *sorted(read)]))
        runs = sweep.read("runs", ["cell_id", "seed", "started_at", "finished_at", *columns])
        table = runs.groupby("cell_id", sort=False).agg(
            started_at=("started_at", "min"),
            finished_at=("finished_at", "max"),
            **{name: (name, "first") for name in columns},
        )
        # The runs of a pack begin together. Draws have no order; by their values they would look like a search.
        ties = self.names if sweep.spec.method.name == "grid" else ["cell_id"]
        table = table.sort_values(["started_at", *ties], kind="stable")
        self.table = table
        self.ids = [str(cell) for cell in table.index]
        self.values: dict[str, list[Any]] = {name: table[name].tolist() for name in self.names}
        self.active = {name: self._active(name) for name in self.names}
        self.distributions = {
            name: widened(
                numeric(axes[name], pa.types.is_integer(schema.field(name).type)),
                [value for value, active in zip(self.values[name], self.active[name], strict=True) if active],
            )
            for name in self.names
        }

    def _active(self, name: str) -> list[bool]:
        if name not in self._conditions:
            return [True] * len(self.ids)
        columns = {read: self.table[read].to_numpy() for read in self._conditions[name].names}
        held = np.broadcast_to(self._conditions[name].holds(columns), (len(self.ids),))
        return [bool(value) for value in held]

    @property
    def conditional(self) -> list[str]:
        return [name for name in self.names if name in self._conditions]

    def parameters(self, i: int) -> dict[str, Any]:
        """What varies in this cell."""
        return {name: self.values[name][i] for name in self.names if self.active[name][i]}

    @cached_property
    def spans(self) -> list[tuple[datetime, datetime]]:
        """From when to when each was trained, in local time without a zone, as Optuna writes it."""
        times = [self.table[name].dt.to_pydatetime() for name in ("started_at", "finished_at")]
        local = [[time.astimezone().replace(tzinfo=None) for time in column] for column in times]
        return list(zip(*local, strict=True))


def numeric(axis: Axis, integer: bool) -> BaseDistribution:
    """As a search sees the axis, but for a list of numbers, which becomes a range."""
    if axis.values is None or any(isinstance(value, str | bool) for value in axis.values):
        return distribution(axis, integer)
    numbers = sorted(float(value) for value in axis.values)
    log = spread_like_a_log(numbers)
    if integer:
        return IntDistribution(int(numbers[0]), int(numbers[-1]), log=log)
    return FloatDistribution(numbers[0], numbers[-1], log=log)


def spread_like_a_log(numbers: Sequence[float]) -> bool:
    """Whether ratios of neighbours are more alike than differences; of two numbers, whether one is tenfold."""
    if numbers[0] <= 0 or len(numbers) < 2:
        return False
    if len(numbers) == 2:
        return numbers[1] >= 10 * numbers[0]
    differences, ratios = np.diff(numbers), np.diff(np.log(numbers))
    return bool(ratios.std() / ratios.mean() < differences.std() / differences.mean())


def widened(found: BaseDistribution, values: Sequence[Any]) -> BaseDistribution:
    """With room for all values: an earlier spec of the sweep, or a cell that was tried first, may have had others."""
    if isinstance(found, CategoricalDistribution):
        # True and 1 are equal, but not the same choice.
        more = {(type(value), value): value for value in (*found.choices, *values)}
        return CategoricalDistribution(list(more.values()))
    assert isinstance(found, FloatDistribution | IntDistribution)
    if not values or all(found._contains(value) for value in values):
        return found
    low, high = min(found.low, *values), max(found.high, *values)
    log = found.log and low > 0
    return (
        IntDistribution(low, high, log=log) if isinstance(found, IntDistribution) else FloatDistribution(low, high, log)
    )


def _trial(
    cells: Cells, i: int, objectives: Sequence[Objective], rows: Sequence[Any], curve: Mapping[int, float]
) -> FrozenTrial:
    parameters = cells.parameters(i)
    ended = [row for row in rows if row is not None]
    values = [float(row["mean"]) if row["n"] == row["runs"] else float("nan") for row in ended]
    attributes: dict[str, Any] = {"cell_id": cells.ids[i], "seeds": int(ended[0]["runs"]) if ended else 0}
    for objective, row in zip(objectives, ended, strict=False):
        if row["n"] > 1:
            attributes[f"{objective.name}_std_error"] = float(row["std"] / np.sqrt(row["n"]))
    if ended and ended[0]["stopped"]:
        state = TrialState.PRUNED
        attributes["stopped"] = int(ended[0]["stopped"])
    elif ended and np.isfinite(values).all():
        state = TrialState.COMPLETE
    else:
        state = TrialState.FAIL
    trial = optuna.trial.create_trial(
        state=state,
        values=values if state == TrialState.COMPLETE else None,
        params=parameters,
        distributions={name: cells.distributions[name] for name in parameters},
        user_attrs=attributes,
        intermediate_values=dict(curve),
    )
    trial.datetime_start, trial.datetime_complete = cells.spans[i]
    return trial


def _mean_curves(sweep: "Sweep", metric: str) -> dict[str, dict[int, float]]:
    """By cell: the mean at each step at which all of its runs have a value; those that remain would flatter."""
    table = sweep.curve(metric, by="cell_id")
    runs = sweep.read("runs", ["cell_id", "status"])
    counts = runs[runs["status"].isin(["done", "stopped", "diverged"])]["cell_id"].value_counts()
    table = table[(table["n"] == table["cell_id"].map(counts)) & np.isfinite(table["mean"])]
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for cell, step, mean in zip(table["cell_id"], table["step"].tolist(), table["mean"].tolist(), strict=True):
        found[cell][step] = mean
    return found


@contextmanager
def quietly() -> Iterator[None]:
    """Without a word on every study that is made, and on what Optuna regards as experimental."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
