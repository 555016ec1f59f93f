"""Quantities that several papers' claims measure. A measure returns a value per seed; comparisons pair equal seeds.

Measures about one setting return one cell, without a name. Measures about every setting return a cell for each.
"""

from collections.abc import Callable, Sequence

import pandas as pd

from mislabel.analysis.claims.claim import Measure, Values
from mislabel.analysis.statistics.estimate import at_end, at_step, by_seed
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.formatting import value_text
from mislabel.sweeps.store.outcome import Status

Condition = Where | Callable[[Sweep], Where] | None
"""Which runs to read: values of columns, or a function that finds them in the sweep."""


def one(values: pd.Series) -> Values:
    """Values of one setting, by seed."""
    return {"": values}


def rows(sweep: Sweep, where: Condition) -> Where:
    return where(sweep) if callable(where) else where or {}


def trained_runs(
    sweep: Sweep, metrics: Sequence[str], columns: Sequence[str] = (), where: Condition = None
) -> pd.DataFrame:
    """The metrics of each run at its end, with other columns. A run that was not trained to the end has no values."""
    runs = sweep.read("runs", ["status", *columns, *metrics], rows(sweep, where))
    return runs.assign(**{metric: runs[metric].where(runs["status"] == Status.DONE) for metric in metrics})


def final(metric: str, where: Condition = None) -> Measure:
    """The metric at the end of training."""
    return lambda sweep: one(at_end(sweep, metric, rows(sweep, where)))


def difference(metric: str, first: Where, second: Where, **both: float | str) -> Measure:
    """The metric at the end of the first runs minus that of the second runs, for seeds that both have."""

    def measure(sweep: Sweep) -> Values:
        values = [at_end(sweep, metric, {**where, **both}) for where in (first, second)]
        first_values, second_values = values[0].align(values[1], join="inner")
        return one(first_values - second_values)

    return measure


def ratio(metric: str, reference: str, where: Condition = None) -> Measure:
    """One metric divided by another, both at the end of training."""
    return lambda sweep: one(at_end(sweep, metric, rows(sweep, where)) / at_end(sweep, reference, rows(sweep, where)))


def end_over_start(metric: str, where: Condition = None) -> Measure:
    """The metric at the end of training divided by its value at step 0."""
    return lambda sweep: one(at_end(sweep, metric, rows(sweep, where)) / at_step(sweep, metric, 0, rows(sweep, where)))


def in_every_cell(
    value: Callable[[pd.DataFrame], pd.Series],
    metrics: Sequence[str],
    columns: Sequence[str] = (),
    where: Condition = None,
) -> Measure:
    """A value of every run, computed from the table of `trained_runs`, for each cell of the sweep."""

    def measure(sweep: Sweep) -> Values:
        names = [name for name in sweep.varying if name not in columns]
        runs = trained_runs(sweep, metrics, ["cell_id", "seed", *names, *columns], where)
        return by_cell(runs.assign(value=value(runs)), sweep.varying)

    return measure


def by_cell(runs: pd.DataFrame, names: Sequence[str], value: str = "value") -> Values:
    """The column `value` by seed, for each combination of these columns that occurs.

    A missing value of a seed makes the seed's mean missing: leaving it out would bias the mean.
    """
    if not names:
        return one(_seeds(runs, value))
    groups = runs.groupby(list(names), sort=True, dropna=False)
    return {_label(names, key): _seeds(group, value) for key, group in groups}


def paired(first: Values, second: Values) -> list[tuple[str, pd.Series, pd.Series]]:
    """The cells that both have, with the seeds that both have."""
    return [(name, *first[name].align(second[name], join="inner")) for name in first if name in second]


def largest(sweep: Sweep, parameter: str) -> float:
    """The parameter's largest value in the sweep."""
    return float(sweep.read("runs", [parameter])[parameter].max())


def smallest(sweep: Sweep, parameter: str) -> float:
    return float(sweep.read("runs", [parameter])[parameter].min())


def _seeds(runs: pd.DataFrame, value: str) -> pd.Series:
    values = runs.groupby("seed")[value]
    return values.all() if runs[value].dtype == bool else by_seed(runs, value)


def _label(names: Sequence[str], key: tuple[object, ...]) -> str:
    return ", ".join(f"{name} {value_text(part)}" for name, part in zip(names, key, strict=True))
