"""Quantities that several papers' claims measure. All are means over seeds; comparisons pair runs with equal seeds."""

import pandas as pd

from mislabel.analysis.claims.claim import Measure
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, mean_of
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.store.outcome import Status


def trained_runs(sweep: Sweep, metrics: list[str], columns: list[str], where: Where | None = None) -> pd.DataFrame:
    """The metrics of each run at its end, with other columns. A run that was not trained to the end has no values."""
    runs = sweep.read("runs", ["status", *columns, *metrics], where)
    return runs.assign(**{metric: runs[metric].where(runs["status"] == Status.DONE) for metric in metrics})


def final(metric: str, where: Where | None = None) -> Measure:
    """The metric at the end of training."""
    return lambda sweep: mean_of(at_end(sweep, metric, where))


def difference(metric: str, first: Where, second: Where, **both: float | str) -> Measure:
    """The metric at the end of the first runs minus that of the second runs, for seeds that both have."""

    def measure(sweep: Sweep) -> Estimate:
        values = [at_end(sweep, metric, {**where, **both}) for where in (first, second)]
        one, other = values[0].align(values[1], join="inner")
        return mean_of(one - other)

    return measure


def ratio(metric: str, reference: str, where: Where) -> Measure:
    """One metric divided by another, both at the end of training."""
    return lambda sweep: mean_of(at_end(sweep, metric, where) / at_end(sweep, reference, where))


def end_over_start(metric: str, where: Where | None = None) -> Measure:
    """The metric at the end of training divided by its value at step 0."""
    return lambda sweep: mean_of(at_end(sweep, metric, where) / at_step(sweep, metric, 0, where))


def estimates(values: pd.Series, groups: pd.Series) -> list[Estimate]:
    """One estimate per group."""
    return [mean_of(rows) for _, rows in values.groupby(groups)]


def largest(sweep: Sweep, parameter: str) -> float:
    """The parameter's largest value in the sweep."""
    return float(sweep.read("runs", [parameter])[parameter].max())


def smallest(sweep: Sweep, parameter: str) -> float:
    return float(sweep.read("runs", [parameter])[parameter].min())
