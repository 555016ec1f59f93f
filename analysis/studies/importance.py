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
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import create_trial

from mislabel.analysis.statistics.tables import Names, SweepTables
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
    means = np.array([own.mean() for own in costs])
    best = _importances(parameters, rows, means, method, _TREES, seed=0)
    rng = np.random.default_rng(0)
    # Building a study is slow. With fewer cells, the spread over resamples is larger by a known factor.
    count = min(len(rows), _MOST_CELLS_OF_A_STUDY) if method == "ped_anova" else len(rows)
    resampled = []
    for i in range(_RESAMPLES):
        again = np.array(
            [own[rng.integers(len(own), size=len(own))].mean() if len(own) > 1 else own[0] for own in costs]
        )
        # Forests resample the cells for every tree.
        chosen = rng.integers(len(rows), size=count) if method == "ped_anova" else np.arange(count)
        some = [rows[j] for j in chosen]
        resampled.append(_importances(parameters, some, again[chosen], method, _TREES_OF_A_RESAMPLE, seed=i + 1))
    half = 2 * np.std(resampled, axis=0, ddof=1) * np.sqrt(count / len(rows))
    return best, np.clip(best - half, 0, 1), np.clip(best + half, 0, 1)


def _importances(
    parameters: Sequence[_Parameter], rows: Sequence[int], costs: np.ndarray, method: str, trees: int, seed: int
) -> np.ndarray:
    if method == "ped_anova":
        found = _ped_anova(parameters, rows, costs)
    else:
        inputs = np.column_stack([parameter.unit(rows) for parameter in parameters])
        forest = forest_of(inputs, costs, trees, seed)
        if method == "fanova":
            return variance_shares(forest)
        found = np.asarray(forest.feature_importances_)
    return found / found.sum() if found.sum() > 0 else found


def _ped_anova(parameters: Sequence[_Parameter], rows: Sequence[int], costs: np.ndarray) -> np.ndarray:
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
    return np.array([found.get(parameter.name, 0.0) for parameter in parameters])


def forest_of(inputs: np.ndarray, values: np.ndarray, trees: int, seed: int) -> Any:
    """A random forest with Optuna's settings. Every tree is fitted to its own resample of the rows."""
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(trees, max_depth=64, random_state=seed).fit(inputs, values)


def variance_shares(forest: Any) -> np.ndarray:
    """The share of the forest's variance over the unit cube that each input explains alone; zeros if it is constant.

    This is functional ANOVA (Hutter, Hoos, Leyton-Brown 2014), averaged over the trees. A tree is constant on boxes, so
    its mean over all inputs but one is an exact step function. Optuna's evaluator walks through the tree once per step,
    which is slow for a thousand cells or more. Adding up all boxes at once gives the same numbers faster.
    """
    shares = [found for tree in forest.estimators_ if (found := _shares_of(tree.tree_)) is not None]
    return np.mean(shares, axis=0) if shares else np.zeros(forest.n_features_in_)


def _shares_of(tree: Any) -> np.ndarray | None:
    low, high = _boxes(tree)
    value = tree.value[:, 0, 0][tree.children_left < 0]
    width = high - low  # leaves, inputs
    volume = width.prod(axis=1)
    mean = volume @ value
    total = volume @ (value - mean) ** 2
    if total <= 0:
        return None
    densities = (value * volume)[:, None] / width
    variances = [_variance(low[:, i], high[:, i], densities[:, i], mean) for i in range(low.shape[1])]
    return np.array(variances) / float(total)


def _variance(low: np.ndarray, high: np.ndarray, density: np.ndarray, mean: float) -> float:
    """The variance of a step function: the sum of boxes, each from low to high with this height."""
    edges, at = np.unique(np.concatenate([low, high]), return_inverse=True)
    rises = np.bincount(at, np.concatenate([density, -density]))
    return float(np.diff(edges) @ (np.cumsum(rises)[:-1] - mean) ** 2)


def _boxes(tree: Any) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner of each leaf's box."""
    low, high = np.zeros((tree.node_count, tree.n_features)), np.ones((tree.node_count, tree.n_features))
    level = np.array([0])
    while len(level):
        level = level[tree.children_left[level] >= 0]
        left, right = tree.children_left[level], tree.children_right[level]
        split, threshold = tree.feature[level], tree.threshold[level]
        for child in (left, right):
            low[child], high[child] = low[level], high[level]
        high[left, split] = threshold
        low[right, split] = threshold
        level = np.concatenate([left, right])
    leaves = tree.children_left < 0
    return low[leaves], high[leaves]
