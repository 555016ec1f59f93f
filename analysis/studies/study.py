"""A sweep as an Optuna study in memory, so that Optuna's functions and plots can be used on it.

The study has one trial per cell, in the order in which the cells started. A trial is complete, with the mean over the
cell's seeds as its value, if the cell can be compared: all runs were trained to the end and have a value. It is pruned,
without a value, if a run was stopped early. It has failed otherwise: a run diverged or does not have the metric, or all
runs failed. Runs that failed are otherwise left out. A trial has a parameter only if the parameter's condition holds.

A list of numbers becomes a range of numbers, on a log scale if the numbers are spaced like that, so that axes of plots
and distances are right. A list of words or booleans is categorical.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import optuna
import pyarrow as pa
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from mislabel.analysis.statistics.tables import Names, SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.search.samplers import contains, distribution, quietly
from mislabel.sweeps.spec.model import Axis, Objective
from mislabel.sweeps.statistics import comparable
from mislabel.sweeps.store.outcome import WITH_RESULT


def study_of(sweep: SweepTables, metric: Names = None, goal: Names = None, curves: bool = True) -> optuna.Study:
    """The study of the objectives, or of other metrics with a goal each.

    A trial's user attributes are the cell's id, its number of seeds, and the standard error of each objective's mean.
    Its intermediate values are the mean curve of the first objective, up to the last step at which every run has a
    value. `curves=False` omits them, because reading curves takes the most time.
    """
    objectives = objectives_of(sweep, metric, goal)
    cells = Cells(sweep)
    found = [sweep.cells(objective.name, by="cell_id").set_index("cell_id") for objective in objectives]
    tables = [table.assign(comparable=comparable(table)).to_dict("index") for table in found]
    shown = _mean_curves(sweep, objectives[0].name) if curves else {}
    with quietly():
        study = optuna.create_study(directions=[o.goal for o in objectives], study_name=sweep.name)
        study.set_metric_names([objective.name for objective in objectives])
        for i, cell in enumerate(cells.ids):
            rows = [table[cell] for table in tables if cell in table]
            study.add_trial(_trial(cells, i, objectives, rows, shown.get(cell, {})))
    return study


def objectives_of(sweep: SweepTables, metric: Names, goal: Names, default: str | None = None) -> list[Objective]:
    """The objectives of the spec, or these metrics with the given goals; a goal defaults to the spec's."""
    known = {objective.name: objective.goal for objective in sweep.spec.metric}
    names = list(known) if metric is None else [metric] if isinstance(metric, str) else list(metric)
    goals = [goal] * len(names) if goal is None or isinstance(goal, str) else list(goal)
    if not names:
        raise MislabelError(f'{sweep.name} has no objective; name one, such as metric="loss", goal="minimize"')
    if len(goals) != len(names):
        raise MislabelError(f"{len(names)} metrics need a goal each, not {len(goals)}")
    objectives = []
    for name, wanted in zip(names, goals, strict=True):
        sweep.require_metric(name)
        chosen = wanted or known.get(name) or default
        if chosen not in ("minimize", "maximize"):
            given = "has no goal in the spec" if chosen is None else f"can't have the goal {chosen!r}"
            raise MislabelError(f'{name} {given}; use goal="minimize" or goal="maximize"')
        objectives.append(Objective.model_validate({"name": name, "goal": chosen}))
    return objectives


class Cells:
    """The cells of a sweep in the order in which they started, with their varying parameters as Optuna sees them."""

    def __init__(self, sweep: SweepTables) -> None:
        axes = sweep.spec.axes()
        schema = sweep.files.schema("runs")
        self.names = [name for name in axes if name in schema.names]
        columns = list(dict.fromkeys([*self.names, *sweep.activity.reads]))
        runs = sweep.read("runs", ["cell_id", "seed", "started_at", "finished_at", *columns])
        table = runs.groupby("cell_id", sort=False).agg(
            started_at=("started_at", "min"),
            finished_at=("finished_at", "max"),
            **{name: (name, "first") for name in columns},
        )
        # The runs of a pack start together. Random cells have no order: sorted by value, they would look like a search.
        ties = self.names if sweep.spec.method.name == "grid" else ["cell_id"]
        table = table.sort_values(["started_at", *ties], kind="stable")
        self.table = table
        self.ids = [str(cell) for cell in table.index]
        self.values: dict[str, list[Any]] = {name: table[name].tolist() for name in self.names}
        read = {name: table[name].to_numpy() for name in sweep.activity.reads}
        self.active = {name: sweep.activity.column(name, read, len(table)).tolist() for name in self.names}
        self.distributions = {
            name: widened(
                numeric(axes[name], pa.types.is_integer(schema.field(name).type)),
                [value for value, active in zip(self.values[name], self.active[name], strict=True) if active],
            )
            for name in self.names
        }

    def parameters(self, i: int) -> dict[str, Any]:
        """The parameters that vary in this cell."""
        return {name: self.values[name][i] for name in self.names if self.active[name][i]}


def numeric(axis: Axis, integer: bool) -> BaseDistribution:
    """The distribution that a search uses for the axis, except that a list of numbers becomes a range."""
    if axis.values is None or any(isinstance(value, str | bool) for value in axis.values):
        return distribution(axis, integer)
    numbers = sorted(float(value) for value in axis.values)
    log = is_spaced_by_factors(numbers)
    if integer:
        return IntDistribution(int(numbers[0]), int(numbers[-1]), log=log)
    return FloatDistribution(numbers[0], numbers[-1], log=log)


def is_spaced_by_factors(numbers: Sequence[float]) -> bool:
    """Whether the ratios of neighbours vary less than their differences. Two numbers need a ratio of 10 or more."""
    if numbers[0] <= 0 or len(numbers) < 2:
        return False
    if len(numbers) == 2:
        return numbers[1] >= 10 * numbers[0]
    differences, ratios = np.diff(numbers), np.diff(np.log(numbers))
    return bool(ratios.std() / ratios.mean() < differences.std() / differences.mean())


def widened(found: BaseDistribution, values: Sequence[Any]) -> BaseDistribution:
    """The distribution, widened to contain all values.

    Some may be outside of the spec's range: those of an earlier revision of the spec, or of a cell to try first.
    """
    if isinstance(found, CategoricalDistribution):
        # True and 1 are equal, but not the same choice.
        more = {(type(value), value): value for value in (*found.choices, *values)}
        return CategoricalDistribution(list(more.values()))
    assert isinstance(found, FloatDistribution | IntDistribution)
    if all(contains(found, value) for value in values):
        return found
    low, high = min(found.low, *values), max(found.high, *values)
    log = found.log and low > 0
    return type(found)(low, high, log)


def _trial(
    cells: Cells, i: int, objectives: Sequence[Objective], rows: Sequence[Any], curve: Mapping[int, float]
) -> FrozenTrial:
    """`rows` has the cell's row in the table of each objective; it is empty if all runs failed."""
    parameters = cells.parameters(i)
    attributes: dict[str, Any] = {"cell_id": cells.ids[i], "seeds": int(rows[0]["runs"]) if rows else 0}
    for objective, row in zip(objectives, rows, strict=False):
        if row["n"] > 1:
            attributes[f"{objective.name}_std_error"] = float(row["std"] / np.sqrt(row["n"]))
    state = TrialState.FAIL
    if rows and rows[0]["stopped"]:
        state = TrialState.PRUNED
        attributes["stopped"] = int(rows[0]["stopped"])
    elif rows and all(row["comparable"] for row in rows):
        state = TrialState.COMPLETE
    trial = optuna.trial.create_trial(
        state=state,
        values=[float(row["mean"]) for row in rows] if state == TrialState.COMPLETE else None,
        params=parameters,
        distributions={name: cells.distributions[name] for name in parameters},
        user_attrs=attributes,
        intermediate_values=dict(curve),
    )
    # Local time without a zone, as Optuna writes it.
    span = cells.table[["started_at", "finished_at"]].iloc[i]
    trial.datetime_start, trial.datetime_complete = (
        time.to_pydatetime().astimezone().replace(tzinfo=None) for time in span
    )
    return trial


def _mean_curves(sweep: SweepTables, metric: str) -> dict[str, dict[int, float]]:
    """By cell: the mean at each step at which all its runs have a value."""
    table = sweep.curve(metric, by="cell_id")
    runs = sweep.read("runs", ["cell_id", "status"])
    counts = runs[runs["status"].isin(WITH_RESULT)]["cell_id"].value_counts()
    table = table[table["n"] == table["cell_id"].map(counts)]
    groups = table.groupby("cell_id", observed=True)
    return {str(cell): dict(zip(own["step"].tolist(), own["mean"].tolist(), strict=True)) for cell, own in groups}
