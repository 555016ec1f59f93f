"""How much each parameter matters for a metric, with an interval.

`fanova` gives the share of the metric's variance over the space that a parameter explains alone. The shares sum to less
than 1: the rest is interactions, and noise over seeds. `ped_anova` compares a parameter's values in the best tenth of
the cells with its values in all cells (Watanabe, Bansal, Hutter 2023), and supports conditional parameters. `mdi` is
the mean decrease in impurity of a random forest. `ped_anova` and `mdi` are scaled to a sum of 1.

Optuna weighs a parameter's values by their distance on a linear scale, and words by the corners of a cube. We use
positions instead of values: a value's position on the parameter's own scale if it has a range, and its index if values
are listed or on a grid, so that each listed value has the same weight. Zipped parameters always change together and
are treated as one.

Cells are compared at the end of their runs. If some were stopped early, all are compared at the step where the first
was stopped: the cells that continued are the better ones, and show less of a parameter's effect. Only cells whose runs
all have a value there are used.

The interval extends two standard deviations over resamples to each side. A resample draws the seeds within each cell
and the cells with replacement (in forests, the cells for every tree).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optuna
import pandas as pd
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from mislabel.analysis.statistics.tables import Names, SweepTables
from mislabel.analysis.studies.fanova import variance_shares
from mislabel.analysis.studies.forest import forest, gain_shares
from mislabel.analysis.studies.study import Cells, objectives_of
from mislabel.sweeps.errors import MislabelError, nearest
from mislabel.sweeps.search.samplers import quietly

METHODS = ("fanova", "ped_anova", "mdi")
FEWEST_CELLS = 4
_TREES = 64
_RESAMPLES = 20
_TREES_OF_A_RESAMPLE = 8
_MOST_CELLS_OF_A_STUDY = 1000


def importance_of(
    sweep: SweepTables, metric: Names = None, method: str | None = None, goal: Names = None, step: int | None = None
) -> pd.DataFrame:
    """A row per parameter, the most important first, with columns `importance`, `low` and `high`.

    Several metrics or objectives have three columns each instead, such as loss, loss_low and loss_high. The default
    method is fanova, or ped_anova if a parameter is conditional. Only ped_anova uses the goal. With `step`, metrics are
    compared at that step. The table's `attrs` hold the method, the number of cells per metric, and the step, which is
    None for the end.
    """
    cells = Cells(sweep)
    parameters = _parameters(sweep, cells)
    chosen = _method(sweep, parameters, method)
    # A variance has no direction, so the metric does not need a goal.
    objectives = objectives_of(sweep, metric, goal, default=None if chosen == "ped_anova" else "minimize")
    step = sweep.first_stop() if step is None else step
    columns: dict[str, Any] = {"parameter": [parameter.name for parameter in parameters]}
    counts = {}
    for objective in objectives:
        values = sweep.complete_values(objective.name, step)
        rows = [i for i, cell in enumerate(cells.ids) if cell in values]
        if len(rows) < FEWEST_CELLS:
            raise MislabelError(
                f"importances for {objective.name} need at least {FEWEST_CELLS} cells whose runs all have a value; "
                f"{sweep.name} has {len(rows)}"
            )
        sign = 1.0 if objective.goal == "minimize" else -1.0
        estimates = _estimated(parameters, rows, [sign * values[cells.ids[i]] for i in rows], chosen)
        several = len(objectives) > 1
        ends = [objective.name + end for end in ("", "_low", "_high")] if several else ["importance", "low", "high"]
        columns.update(zip(ends, estimates, strict=True))
        counts[objective.name] = len(rows)
    table = pd.DataFrame(columns).sort_values(list(columns)[1], ascending=False, kind="stable", ignore_index=True)
    table.attrs.update(method=chosen, cells=counts, step=step)
    return table


@dataclass(frozen=True)
class _Parameter:
    """A parameter, or several zipped ones, with its position in each cell; None where it is inactive."""

    name: str
    positions: Sequence[float | None]
    distribution: FloatDistribution | IntDistribution
    categorical: bool = False

    def unit(self, rows: Sequence[int]) -> np.ndarray:
        """The positions in these cells, scaled to numbers between 0 and 1."""
        at = np.array([self.positions[i] for i in rows], float)
        if isinstance(self.distribution, FloatDistribution):
            return at
        return (at + 0.5) / float(self.distribution.high + 1)


def _parameters(sweep: SweepTables, cells: Cells) -> list[_Parameter]:
    axes, grouped = sweep.spec.axes(), {name: group for group in sweep.spec.zip for name in group}
    found: dict[str, _Parameter] = {}
    for name in cells.names:
        group = [other for other in grouped.get(name, (name,)) if other in cells.names]
        values = [
            tuple(cells.values[other][i] for other in group) if cells.active[name][i] else None
            for i in range(len(cells.ids))
        ]
        title = ", ".join(group)
        spread = cells.distributions[name]
        categorical = isinstance(spread, CategoricalDistribution)
        if categorical or axes[name].values is not None or axes[name].grid or sweep.spec.method.name == "grid":
            levels = {level: i for i, level in enumerate(sorted({value for value in values if value is not None}))}
            positions: list[float | None] = [None if value is None else levels[value] for value in values]
            found[title] = _Parameter(title, positions, IntDistribution(0, max(0, len(levels) - 1)), categorical)
        else:
            positions = [None if value is None else _position(value[0], spread) for value in values]
            found[title] = _Parameter(title, positions, FloatDistribution(0, 1))
    return list(found.values())


def _position(value: float, spread: Any) -> float:
    """A number between 0 and 1 on the range's own scale. An integer is in the middle of its unit interval."""
    around = 0.5 if isinstance(spread, IntDistribution) else 0.0
    low, high = spread.low - around, spread.high + around
    if spread.log:
        value, low, high = np.log(value), np.log(low), np.log(high)
    return float((value - low) / (high - low)) if high > low else 0.5


def _method(sweep: SweepTables, parameters: Sequence[_Parameter], method: str | None) -> str:
    if not parameters:
        raise MislabelError(f"{sweep.name} varies no parameter, so there are no importances")
    conditional = [parameter.name for parameter in parameters if None in parameter.positions]
    chosen = method or ("ped_anova" if conditional else "fanova")
    if chosen not in METHODS:
        raise MislabelError(f"method {chosen!r} is not known{nearest(chosen, METHODS)}; there are {', '.join(METHODS)}")
    if conditional and chosen != "ped_anova":
        raise MislabelError(
            f"{chosen} does not support conditional parameters, such as {', '.join(conditional)}; use method ped_anova"
        )
    return chosen


def _estimated(
    parameters: Sequence[_Parameter], rows: Sequence[int], costs: Sequence[np.ndarray], method: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Importance, low and high of each parameter, from the costs of each cell's seeds."""
    rng = np.random.default_rng(0)
    # Building a study is slow. With fewer cells, the spread over resamples is larger by a known factor.
    count = min(len(rows), _MOST_CELLS_OF_A_STUDY) if method == "ped_anova" else len(rows)
    means, cells = [np.array([own.mean() for own in costs])], [np.arange(len(rows))]
    for _ in range(_RESAMPLES):
        means.append(_resampled(costs, rng))
        cells.append(rng.integers(len(rows), size=count))
    if method == "ped_anova":
        studies = zip(cells, means, strict=True)
        found = np.array([_ped_anova(parameters, [rows[j] for j in own.tolist()], mean[own]) for own, mean in studies])
    else:
        inputs = np.column_stack([parameter.unit(rows) for parameter in parameters])
        found = _of_forests(inputs, np.array(means), method)
    half = 2 * np.std(found[1:], axis=0, ddof=1) * np.sqrt(count / len(rows))
    return found[0], np.clip(found[0] - half, 0, 1), np.clip(found[0] + half, 0, 1)


def _resampled(costs: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """The mean of each cell over seeds that are drawn with replacement."""
    seeds = np.array([len(own) for own in costs])
    begins = np.cumsum(seeds) - seeds
    drawn = np.repeat(begins, seeds) + rng.integers(np.repeat(seeds, seeds))
    return np.asarray(np.add.reduceat(np.concatenate(costs)[drawn], begins) / seeds)


def _of_forests(inputs: np.ndarray, costs: np.ndarray, method: str) -> np.ndarray:
    """The importances in the forest of each row of costs. Forests resample the cells for every tree."""
    trees = [_TREES] + [_TREES_OF_A_RESAMPLE] * _RESAMPLES
    measure = variance_shares if method == "fanova" else gain_shares
    found = np.concatenate([measure(some) for some in forest(inputs, costs, trees, seed=0)])
    return np.array([_mean(own) for own in np.split(found, np.cumsum(trees)[:-1])])


def _mean(shares: np.ndarray) -> np.ndarray:
    """The mean over the trees that are not constant; zeros if all are."""
    varied = shares[np.isfinite(shares).all(axis=1)]
    return varied.mean(axis=0) if len(varied) else np.zeros(shares.shape[1])


def _ped_anova(parameters: Sequence[_Parameter], rows: Sequence[int], costs: np.ndarray) -> np.ndarray:
    from optuna.importance import PedAnovaImportanceEvaluator  # loads scikit-learn

    with quietly(), warnings.catch_warnings():
        # The warnings concern a condition that holds in a single cell. Its importance is then 0, which is right.
        warnings.filterwarnings("ignore", message="Some regimes for parameter")
        warnings.filterwarnings("ignore", message="Target and region quantiles")
        # Words are categorical, because their index means no distance.
        distributions = {
            p.name: CategoricalDistribution(range(p.distribution.high + 1)) if p.categorical else p.distribution
            for p in parameters
        }
        study = optuna.create_study(direction="minimize")
        for i, cost in zip(rows, costs, strict=True):
            active = [parameter for parameter in parameters if parameter.positions[i] is not None]
            positions = {parameter.name: parameter.positions[i] for parameter in active}
            spreads = {parameter.name: distributions[parameter.name] for parameter in active}
            study.add_trial(create_trial(value=float(cost), params=positions, distributions=spreads))
        found = PedAnovaImportanceEvaluator().evaluate(study)
    shares = np.array([found.get(parameter.name, 0.0) for parameter in parameters])
    return shares / shares.sum() if shares.sum() > 0 else shares
