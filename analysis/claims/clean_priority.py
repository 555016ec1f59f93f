"""Clean-priority learning. Measures of angles at initialization, and of the order in which samples are learned.

Late curves are spiky, so all values after the start are running means; see `phases.smoothed`. The *turn* of a run is
where the residual of its noisy segment is largest. Changes up to the turn are given as shares of a way: from outputs of
1/k to calibrated outputs, which know the true class and the noise rate. So one bound suits all noise rates and numbers
of classes. A run that was not trained to the end has no value.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Measure, Prediction, Values
from mislabel.analysis.claims.measures import by_cell, largest, one, smallest, trained_runs
from mislabel.analysis.statistics.estimate import by_seed
from mislabel.analysis.statistics.phases import crossing, smoothed, turn
from mislabel.analysis.sweep import Sweep
from mislabel.analysis.theory import clean_priority as theory
from mislabel.sweeps.store.outcome import Status

_DEGREES = 180 / math.pi
_WIDTH = 512
_TOO_LATE = 2.0
_RUN = ["run_id", "status", "noise_rate", "classes"]


def _by_depth(metric: str, activation: str = "relu", width: Callable[[Sweep], float] | float = _WIDTH) -> Measure:
    """The metric of each number of hidden layers, at one width; angles in degrees."""

    def measure(sweep: Sweep) -> Values:
        where = {"width": width(sweep) if callable(width) else width, "activation": activation}
        runs = trained_runs(sweep, [metric], ["hidden_layers", "seed"], where)
        scale = 1.0 if metric in ("rising_share", "small_angle_slope") else _DEGREES
        return by_cell(runs.assign(value=runs[metric] * scale), ["hidden_layers"])

    return measure


def _widest(sweep: Sweep) -> float:
    return largest(sweep, "width")


def _width_exponent(sweep: Sweep) -> Values:
    """The power of the width with which the mean deviation of ReLU networks falls, mean over depths."""
    ends = smallest(sweep, "width"), largest(sweep, "width")
    runs = trained_runs(sweep, ["mean_deviation"], ["width", "seed"], {"activation": "relu", "width": list(ends)})
    logs = runs.assign(value=np.log(runs["mean_deviation"]))
    narrow, wide = (by_seed(logs[logs["width"] == width], "value") for width in ends)
    return one((wide - narrow) / math.log(ends[1] / ends[0]))


def _slope_over_equation_15(sweep: Sweep) -> Values:
    cells = _by_depth("small_angle_slope", width=_widest)(sweep)
    return {cell: values / theory.small_angle_slope(_depth(cell)) for cell, values in cells.items()}


def _depth(cell: str) -> int:
    return int(cell.rpartition(" ")[2])


def _largest_angle_below_90(sweep: Sweep) -> Values:
    """The largest θ_h over θ_d below 90°, in degrees, at the largest width."""
    runs = sweep.read("runs", ["run_id", "seed", "hidden_layers"], {"width": _widest(sweep), "activation": "relu"})
    arrays = sweep.read("arrays", ["run_id", "metric", "values"], {"metric": ["theta_d", "theta_h"]})
    arrays = arrays.drop_duplicates(["run_id", "metric"])  # they never change
    pairs = runs.merge(arrays.pivot(index="run_id", columns="metric", values="values"), on="run_id")
    pairs["value"] = [
        float(np.max(np.asarray(h)[np.asarray(d) < math.pi / 2 - 1e-9])) * _DEGREES
        for d, h in zip(pairs["theta_d"], pairs["theta_h"], strict=True)
    ]
    return by_cell(pairs, ["hidden_layers"])


def _gap_over_theory(sweep: Sweep) -> Values:
    """θ_h between clusters minus that within them, over the same at infinite width."""
    names = ["hidden_layers", "cluster_angle", "spread"]
    runs = trained_runs(sweep, ["between_angle", "within_angle"], [*names, "seed"])
    wide = [theory.cluster_gap(int(depth), *others) for depth, *others in runs[names].itertuples(index=False)]
    return by_cell(runs.assign(value=(runs["between_angle"] - runs["within_angle"]) / wide), sweep.varying)


def _separated(sweep: Sweep) -> Values:
    runs = trained_runs(sweep, ["separated_share"], ["seed", *sweep.varying])
    return by_cell(runs, sweep.varying, "separated_share")


class _Run:
    """A run's curves, smoothed, and its settings."""

    def __init__(self, curves: pd.DataFrame, noise_rate: float, classes: int) -> None:
        self.curves = curves.drop(columns=["run_id", "step"]).apply(smoothed)
        self.noise_rate, self.classes = noise_rate, classes
        self.turn = int(np.argmax(self.curves["noisy_residual"]))

    def way(self, metric: str) -> float:
        """The change up to the turn, as a share of the way from outputs of 1/k to calibrated outputs."""
        segment, _, quantity = metric.partition("_")
        end = theory.calibrated(segment, quantity, self.noise_rate, self.classes)
        return self._change(metric, 0, self.turn) / (end - theory.untrained(quantity, self.classes))

    def later_fall(self, metric: str) -> float:
        """The fall from the turn to the end."""
        return -self._change(metric, self.turn, -1)

    def alpha_way(self) -> float:
        """The growth of α up to the turn, as a share of the way from the theory's first value to 1, in logarithms."""
        first = theory.first_gradient_ratio(self.noise_rate, self.classes)
        return math.log(self.growth("alpha")) / math.log(1 / first)

    def growth(self, metric: str) -> float:
        """The value at the turn over that at the start."""
        values = self.curves[metric]
        return float(values.iloc[self.turn] / values.iloc[0])

    def monotony(self, metric: str) -> float:
        """The net rise up to the turn over the sum of all rises and falls: 1 if the curve never falls."""
        steps = self.curves[metric].iloc[: self.turn + 1].diff().dropna()
        return float(steps.sum() / steps.abs().sum()) if steps.any() else 0.0

    def rising_share(self) -> float:
        """Of the frames whose α of the loss is below 1, the share after which the loss of noisy samples rises."""
        rises = self.curves["noisy_loss"].diff().shift(-1).iloc[:-1] > 0
        below = self.curves["full_alpha"].iloc[:-1] < 1
        return float(rises[below].mean()) if below.any() else math.nan

    def turning_share(self) -> float:
        """The share of frames after which the noisy loss rises if α of the loss is below −cos θ, and falls if above."""
        rises = self.curves["noisy_loss"].diff().shift(-1).iloc[:-1] > 0
        below = self.curves["full_alpha"] < theory.turning_ratio(self.curves["full_angle"])
        return float((rises == below.iloc[:-1]).mean())

    def degrees(self, metric: str) -> float:
        """An angle at the turn, in degrees."""
        return float(self.curves[metric].iloc[self.turn]) * _DEGREES

    def excess_test_error(self) -> float:
        """Test error at the turn minus its minimum, over its rise from the minimum to the end; 1 if it never rises."""
        later = self.curves["test_error"].iloc[1:]
        rise = later.iloc[-1] - later.min()
        at_turn = self.curves["test_error"].iloc[self.turn]
        return float((at_turn - later.min()) / rise) if rise > 0 else 1.0

    def _change(self, metric: str, start: int, stop: int) -> float:
        values = self.curves[metric]
        return float(values.iloc[stop] - values.iloc[start])


def _of_runs(value: Callable[[_Run], float], *metrics: str) -> Measure:
    """A value of every run, from its curves of these metrics, for each cell."""

    def measure(sweep: Sweep) -> Values:
        runs = _settings(sweep)
        columns = dict.fromkeys(["run_id", "step", "noisy_residual", *metrics])
        curves = dict(list(sweep.read("curves", list(columns)).sort_values("step").groupby("run_id")))
        found = [
            value(_Run(curves[run], rate, _number_of_classes(classes))) if status == Status.DONE else math.nan
            for run, status, rate, classes in runs[_RUN].itertuples(index=False)
        ]
        return by_cell(runs.assign(value=found), sweep.varying)

    return measure


def _settings(sweep: Sweep) -> pd.DataFrame:
    names = [*_RUN, "seed", *sweep.varying]
    return sweep.read("runs", list(dict.fromkeys(names)))


def _number_of_classes(classes: str) -> int:
    return len(classes.split(",")) if classes else 10


def _reached(sweep: Sweep, metric: str) -> Values:
    """Whether the metric reaches 1 in a run that was trained to the end."""
    runs = _settings(sweep)
    steps = runs["run_id"].map(crossing(sweep.read("curves", ["run_id", "step", metric]), metric, 1.0))
    return by_cell(runs.assign(value=steps.notna() & (runs["status"] == Status.DONE)), sweep.varying)


def _crossing_over_turn(sweep: Sweep, metric: str, turning: str) -> Values:
    """The step at which the metric reaches 1 over that at which the other metric is highest.

    A metric that does not reach 1 would reach it after the last step. If that alone is too late, it counts as the last
    step; else there is no value.
    """
    runs = _settings(sweep)
    curves = sweep.read("curves", ["run_id", "step", metric, turning])
    turns = turn(curves, turning)
    latest = curves.groupby("run_id")["step"].max() / turns
    found = (crossing(curves, metric, 1.0) / turns).fillna(latest.where(latest > _TOO_LATE))
    ratios = runs["run_id"].map(found)
    return by_cell(runs.assign(value=ratios.where(runs["status"] == Status.DONE)), sweep.varying)


def _at_start(sweep: Sweep, metric: str) -> pd.DataFrame:
    """The runs with their metric at step 0 as `value`."""
    start = sweep.read("curves", ["run_id", "step", metric], {"step": 0})
    return _settings(sweep).merge(start.rename(columns={metric: "value"})[["run_id", "value"]], on="run_id")


def _start_degrees(sweep: Sweep, metric: str) -> Values:
    runs = _at_start(sweep, metric)
    return by_cell(runs.assign(value=runs["value"] * _DEGREES), sweep.varying)


def _start_ratio(sweep: Sweep) -> Values:
    """α at the start over the theory's."""
    runs = _at_start(sweep, "alpha")
    expected = theory.first_gradient_ratio(runs["noise_rate"], runs["classes"].map(_number_of_classes))
    return by_cell(runs.assign(value=runs["value"] / expected), sweep.varying)


def _by_class(sweep: Sweep, metric: str) -> dict[int, np.ndarray]:
    """An array metric at the start by seed: one row per class."""
    arrays = sweep.read("arrays", ["seed", "step", "metric", "values"], {"metric": metric, "step": 0})
    classes = _number_of_classes(str(sweep.read("runs", ["classes"])["classes"].iloc[0]))
    rows = zip(arrays["seed"], arrays["values"], strict=True)
    return {int(seed): np.asarray(values, dtype=float).reshape(classes, -1) for seed, values in rows}


def _of_classes(value: Callable[..., np.ndarray], *metrics: str) -> Measure:
    """A value of each class at the start, from array metrics."""

    def measure(sweep: Sweep) -> Values:
        tables = [_by_class(sweep, metric) for metric in metrics]
        found = pd.DataFrame({seed: value(*(table[seed] for table in tables)) for seed in tables[0]})
        return {f"class {class_}": values for class_, values in found.iterrows()}

    return measure


def _mean_degrees(angles: np.ndarray) -> np.ndarray:
    mean: np.ndarray = np.nanmean(angles, axis=1) * _DEGREES
    return mean


def _asymmetry(clean: np.ndarray, noisy: np.ndarray) -> np.ndarray:
    """Mean θ_g of clean samples plus that of noisy ones, minus 180°."""
    sums: np.ndarray = _mean_degrees(clean) + _mean_degrees(noisy) - 180
    return sums


def _in_order(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The share of pairs of samples in which the first kind has the smaller θ_g."""
    known = ~np.isnan(low)[:, :, None] & ~np.isnan(high)[:, None]
    return np.asarray((low[:, :, None] < high[:, None]).sum(axis=(1, 2)) / known.sum(axis=(1, 2)))


def _ways(*metrics: str) -> dict[str, Measure]:
    return {metric: _of_runs(partial(_Run.way, metric=metric), metric) for metric in metrics}


_WAYS = _ways(*(f"{segment}_{name}" for name in ("error", "residual", "loss") for segment in ("clean", "noisy")))
_NOISY_ERROR_FALLS = _of_runs(partial(_Run.later_fall, metric="noisy_error"), "noisy_error")
_ALPHA_GROWS = _of_runs(_Run.alpha_way, "alpha")
_ALPHA_REACHES_1 = partial(_reached, metric="alpha")
_ALPHA_AT_TURN = partial(_crossing_over_turn, metric="alpha", turning="noisy_residual")
_TEST_ERROR_AT_TURN = _of_runs(_Run.excess_test_error, "test_error")

MEASURES: dict[str, Measure] = {
    "relu-angles": _by_depth("max_deviation"),
    "linear-angles": _by_depth("max_deviation", "linear"),
    "small-angles": _by_depth("neighbour_angle", width=_widest),
    "angles-grow": _by_depth("rising_share", width=_widest),
    "angles-below-90": _largest_angle_below_90,
    "infinite-width": _width_exponent,
    "feature-angles": _by_depth("max_feature_deviation"),
    "slope-at-small-angles": _slope_over_equation_15,
    "cluster-gap": _gap_over_theory,
    "clusters-separated": _separated,
    "opposite-at-start": partial(_start_degrees, metric="mean_angle"),
    "loss-gradients-opposite-at-start": partial(_start_degrees, metric="full_angle"),
    "opposite-at-turn": _of_runs(partial(_Run.degrees, metric="mean_angle"), "mean_angle"),
    "alpha-at-start": _start_ratio,
    "clean-samples-at-small-angles": _of_classes(_mean_degrees, "clean_angles"),
    "noisy-samples-at-large-angles": _of_classes(_mean_degrees, "noisy_angles"),
    "angles-symmetric": _of_classes(_asymmetry, "clean_angles", "noisy_angles"),
    "other-samples-beyond-clean": _of_classes(_in_order, "clean_angles", "other_angles"),
    "other-samples-before-noisy": _of_classes(_in_order, "other_angles", "noisy_angles"),
    "other-gradient-orthogonal-part": _of_classes(lambda angle: np.sin(angle[:, 0]), "class_others_angle"),
    "noisy-loss-rises-below-alpha-1": _of_runs(_Run.rising_share, "noisy_loss", "full_alpha"),
    "alpha-grows": _ALPHA_GROWS,
    "alpha-monotone": _of_runs(partial(_Run.monotony, metric="alpha"), "alpha"),
    "clean-gradient-shrinks": _of_runs(partial(_Run.growth, metric="clean_gradient"), "clean_gradient"),
    "noisy-gradient-grows": _of_runs(partial(_Run.growth, metric="noisy_gradient"), "noisy_gradient"),
    "alpha-reaches-1": _ALPHA_REACHES_1,
    "alpha-1-at-turn": _ALPHA_AT_TURN,
    "loss-alpha-reaches-1": partial(_reached, metric="full_alpha"),
    "loss-alpha-1-at-turn": partial(_crossing_over_turn, metric="full_alpha", turning="noisy_residual"),
    "clean-error-falls": _WAYS["clean_error"],
    "noisy-error-rises": _WAYS["noisy_error"],
    "noisy-error-falls-later": _NOISY_ERROR_FALLS,
    "clean-residual-falls": _WAYS["clean_residual"],
    "noisy-residual-rises": _WAYS["noisy_residual"],
    "noisy-residual-monotone": _of_runs(partial(_Run.monotony, metric="noisy_residual")),
    "test-error-lowest-at-turn": _TEST_ERROR_AT_TURN,
    "clean-loss-falls": _WAYS["clean_loss"],
    "noisy-loss-rises": _WAYS["noisy_loss"],
    "noisy-loss-falls-later": _of_runs(partial(_Run.later_fall, metric="noisy_loss"), "noisy_loss"),
    "noisy-loss-turns-at-minus-cosine": _of_runs(_Run.turning_share, "noisy_loss", "full_alpha", "full_angle"),
    "beyond-clean-error-falls": _WAYS["clean_error"],
    "beyond-noisy-error-rises": _WAYS["noisy_error"],
    "beyond-noisy-error-falls-later": _NOISY_ERROR_FALLS,
    "beyond-alpha-at-start": _start_ratio,
    "beyond-alpha-grows": _ALPHA_GROWS,
    "beyond-alpha-reaches-1": _ALPHA_REACHES_1,
    "beyond-alpha-1-at-turn": _ALPHA_AT_TURN,
    "beyond-test-error-lowest-at-turn": _TEST_ERROR_AT_TURN,
}


def _angle_of_equation_13(sweep: Sweep) -> float:
    """θ_h of neighbouring points for the largest depth, in degrees."""
    runs = sweep.read("runs", ["hidden_layers", "angles"])
    step = math.pi / (float(runs["angles"].max()) - 1)
    return float(theory.gradient_angle(step, int(runs["hidden_layers"].max()))) * _DEGREES


def _angle_at_90(sweep: Sweep) -> float:
    depth = int(smallest(sweep, "hidden_layers"))
    return float(theory.gradient_angle(math.pi / 2, depth)) * _DEGREES


PREDICTIONS: dict[str, Prediction] = {"small-angles": _angle_of_equation_13, "angles-below-90": _angle_at_90}
