"""Clean-priority learning. Claims about angles at initialization, and about the order in which samples are learned.

Late curves are spiky, so all values after the start are running means over a sixth of the frames, at least three.
A run's *turning point* is where the residual of its noisy segment is largest. A run that was not trained to the end has
no value, so a claim about it stays undecided.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Claim, Claims, Measure, Region, Rule, at_least, at_most
from mislabel.analysis.claims.measures import estimates, final, largest, smallest, trained_runs
from mislabel.analysis.statistics.estimate import Estimate, at_end, mean_of
from mislabel.analysis.sweep import Sweep

_DEGREES = 180 / math.pi


def _deviation_at_512(activation: str) -> Measure:
    """Largest deviation from the closed form at width 512, in degrees, for the worst number of layers."""

    def measure(sweep: Sweep) -> Estimate:
        where = {"width": 512, "activation": activation}
        runs = trained_runs(sweep, ["max_deviation"], ["hidden_layers"], where)
        by_depth = estimates(runs["max_deviation"] * _DEGREES, runs["hidden_layers"])
        return max(by_depth, key=lambda estimate: estimate.mean)

    return measure


def _widest_over_narrowest(sweep: Sweep) -> Estimate:
    """Deviation of ReLU networks at the largest width over that at the smallest."""
    wide, narrow = (
        at_end(sweep, "max_deviation", {"width": width, "activation": "relu"})
        for width in (largest(sweep, "width"), smallest(sweep, "width"))
    )
    return mean_of(wide / narrow)


class _Run:
    """A run's curves: values as measured at the start, running means later."""

    def __init__(self, curves: pd.DataFrame) -> None:
        self.first: pd.Series = curves.iloc[0]
        later = curves[_CURVES].iloc[1:]
        window = max(3, round(len(later) / 6) | 1)  # odd, because it is centred
        self.smooth: pd.DataFrame = later.rolling(window, center=True, min_periods=1).mean()
        self.turn: pd.Series = self.smooth.iloc[int(np.argmax(self.smooth["noisy_residual"]))]
        self.last: pd.Series = self.smooth.iloc[-1]

    def rise(self, metric: str) -> float:
        """The metric at the turning point minus that at the start."""
        return float(self.turn[metric] - self.first[metric])

    def fall(self, metric: str) -> float:
        """The metric at the turning point minus that at the end."""
        return float(self.turn[metric] - self.last[metric])

    def excess_test_error(self) -> float:
        """Test error at the turning point minus its minimum, over its rise from the minimum to the end.

        It is 1 if test error never rises.
        """
        best = self.smooth["test_error"].min()
        rise = self.last["test_error"] - best
        return float((self.turn["test_error"] - best) / rise) if rise > 0 else 1.0


@dataclass(frozen=True)
class _Test:
    """How a statement that the paper makes about every setting is tested, by a value of each run."""

    quantity: str
    holds: Region
    value: Callable[[_Run], float]


_CURVES = [
    *(f"{segment}_{name}" for name in ("error", "residual", "loss") for segment in ("clean", "noisy")),
    "test_error",
    "alpha",
    "mean_angle",
]


def _early(metric: str, change: Literal["rise", "fall"], bound: float) -> dict[str, _Test]:
    """The metric rises or falls by at least the bound from the start to the turning point."""
    name, sign = metric.replace("_", " "), 1 if change == "rise" else -1
    quantity = f"{change} of the {name} from the start to the turning point"
    test = _Test(quantity, Region(low=bound), lambda run: sign * run.rise(metric))
    return {f"in the early stage the {name} {change}s": test}


def _later(metric: str) -> dict[str, _Test]:
    """The metric falls by at least 0.1 from the turning point to the end."""
    name = metric.replace("_", " ")
    quantity = f"fall of the {name} from the turning point to the end"
    return {f"later the {name} falls too": _Test(quantity, Region(low=0.1), lambda run: run.fall(metric))}


_NOISY_ERROR_RISES = "in the early stage the noisy error rises"
_NOISY_ERROR_FALLS = "later the noisy error falls too"
_ALPHA_REACHES_1 = "the early stage ends where α reaches 1"
_DYNAMICS = {
    **_early("clean_error", "fall", 0.2),
    **_early("noisy_error", "rise", 0.2),
    **_early("clean_residual", "fall", 0.05),
    **_early("noisy_residual", "rise", 0.05),
    **_later("noisy_error"),
    "in the early stage α grows (Theorem 4.5)": _Test(
        "α at the turning point over α at the start",
        Region(low=1.2),
        lambda run: run.turn["alpha"] / run.first["alpha"],
    ),
    _ALPHA_REACHES_1: _Test("α at the turning point", Region(0.8, 1.25), lambda run: run.turn["alpha"]),
    "in the early stage a class's noisy gradient is opposite to its clean gradient": _Test(
        "angle between the two at the turning point, in degrees, mean over classes",
        Region(low=120.0),
        lambda run: run.turn["mean_angle"] * _DEGREES,
    ),
    "test error has its minimum near the turning point": _Test(
        "test error at the turning point minus its minimum, over its rise from the minimum to the end",
        Region(high=0.3),
        _Run.excess_test_error,
    ),
}
# Figure 10 shows the losses for the settings of other figures too.
_LOSSES = {**_early("clean_loss", "fall", 0.1), **_early("noisy_loss", "rise", 0.1), **_later("noisy_loss")}
# With ten classes, nine of ten noisy labels are missed before training, so their error can't rise much.
_TEN_CLASSES = {_NOISY_ERROR_RISES: Region(low=0.02)}
# Ten epochs on MNIST's 60,000 images show only the beginning of learning the noisy labels.
_TEN_EPOCHS = {**_TEN_CLASSES, _NOISY_ERROR_FALLS: Region(low=0.01)}
# With few images of ten classes, α reaches 1 in some classes, but their sum reaches it long after the turning point.
_NEEDS_MANY_IMAGES = _ALPHA_REACHES_1


def _worst_cell(sweep: Sweep, value: Callable[[_Run], float], holds: Region) -> Estimate:
    """The estimate of the cell in which the statement holds least."""
    curves = sweep.read("curves", ["run_id", "cell_id", "step", *_CURVES]).sort_values("step")
    runs = sweep.read("runs", ["run_id", "status"])
    done = set(runs.loc[runs["status"] == "done", "run_id"])
    found = pd.DataFrame(
        (run["cell_id"].iloc[0], value(_Run(run)) if run_id in done else math.nan)
        for run_id, run in curves.groupby("run_id")
    )
    cells = estimates(found[1], found[0])
    return min(cells, key=lambda estimate: min(estimate.low - holds.low, holds.high - estimate.high))


def _dynamics(
    figure: str, regions: Mapping[str, Region] = {}, losses: bool = False, where: str = "", large_only: str = ""
) -> Claims:
    """The claims about the learning dynamics of one setting, with those about its losses in Figure 10 if asked.

    `regions` replaces the region of some statements. The small version does not decide the statement `large_only`.
    """
    claims = {}
    for statement, test in {**_DYNAMICS, **(_LOSSES if losses else {})}.items():
        holds = regions.get(statement, test.holds)
        rule = Rule(holds, partial(_worst_cell, value=test.value, holds=holds))
        paper = f"{'Figure 10' if statement in _LOSSES else figure}: {statement}"
        claims[paper] = Claim(test.quantity + where, rule, at_any_size=statement != large_only)
    return claims


def _number_of_classes(classes: str) -> int:
    return len(classes.split(",")) if classes else 10


def first_gradient_ratio(noise_rate: Any, classes: Any = 2) -> Any:
    """‖g_noise‖/‖g_clean‖ at initialization, δ/(1 − δ), over the number of classes that a noisy label can name."""
    return noise_rate / (1 - noise_rate) / (classes - 1)


def _start_ratio(sweep: Sweep) -> Estimate:
    """α at the start over the theory's, for the cell with the largest deviation."""
    runs = sweep.read("runs", ["run_id", "noise_rate", "classes"])
    curves = sweep.read("curves", ["run_id", "cell_id", "step", "alpha"]).merge(runs, on="run_id")
    start = curves[curves["step"] == 0]
    expected = first_gradient_ratio(start["noise_rate"], start["classes"].map(_number_of_classes))
    cells = estimates(start["alpha"] / expected, start["cell_id"])
    return max(cells, key=lambda estimate: max(abs(estimate.low - 1), abs(estimate.high - 1)))


def _start_angle(sweep: Sweep) -> Estimate:
    """Angle between a class's noisy and clean gradient at the start, in degrees, for the cell where it is smallest."""
    curves = sweep.read("curves", ["cell_id", "step", "mean_angle"], {"step": 0})
    return min(estimates(curves["mean_angle"] * _DEGREES, curves["cell_id"]), key=lambda estimate: estimate.low)


def _sample_angles(sweep: Sweep, kind: str) -> dict[int, np.ndarray]:
    """θ_g of samples at the start by seed, in degrees: one row per class."""
    arrays = sweep.read("arrays", ["seed", "step", "metric", "values"], {"metric": f"{kind}_angles", "step": 0})
    classes = _number_of_classes(str(sweep.read("runs", ["classes"])["classes"].iloc[0]))
    rows = zip(arrays["seed"], arrays["values"], strict=True)
    return {int(seed): np.asarray(values, dtype=float).reshape(classes, -1) * _DEGREES for seed, values in rows}


def _mean_angle(kind: str, worst: Callable[[np.ndarray], float]) -> Measure:
    """Mean θ_g of the samples of this kind, in the worst class."""
    return lambda sweep: mean_of(
        [float(worst(np.nanmean(angles, axis=1))) for angles in _sample_angles(sweep, kind).values()]
    )


def _asymmetry(sweep: Sweep) -> Estimate:
    """Difference between mean θ_g of noisy samples and 180° minus that of clean samples, in the worst class."""
    clean, noisy = _sample_angles(sweep, "clean"), _sample_angles(sweep, "noisy")
    sums = [np.nanmean(clean[seed], axis=1) + np.nanmean(noisy[seed], axis=1) for seed in clean]
    return mean_of([float(np.abs(each - 180).max()) for each in sums])


def _in_order(sweep: Sweep, low: str, high: str) -> Estimate:
    """Share of pairs of samples in which the first kind has the smaller θ_g, for the logit with the smallest share."""
    lower, higher = _sample_angles(sweep, low), _sample_angles(sweep, high)
    return mean_of([float((lower[seed][:, :, None] < higher[seed][:, None]).mean(axis=(1, 2)).min()) for seed in lower])


def _orthogonal_part(sweep: Sweep) -> Estimate:
    """sin θ_g of the summed gradient of other classes' samples, for the logit where it is smallest."""
    arrays = sweep.read("arrays", ["step", "metric", "values"], {"metric": "class_others_angle", "step": 0})
    return mean_of([float(np.sin(np.asarray(values, dtype=float)).min()) for values in arrays["values"]])


# With random weights the outputs start near 1/k, and they differ from it more if there are more classes.
_RATIO_OF_TWO, _RATIO_OF_TEN = Region(0.7, 1.3), Region(0.5, 2.0)


def _at_start(figure: str, ratio: Region) -> Claims:
    return {
        f"{figure}: at initialization a class's noisy gradient is opposite to its clean gradient": Claim(
            "angle between the two in degrees, mean over classes", at_least(150.0, _start_angle, theory=180.0)
        ),
        f"{figure}: at initialization α is near δ/(1-δ), divided by k-1 for k classes": Claim(
            "α over this value", Rule(ratio, _start_ratio, theory=1.0)
        ),
    }


def _histograms(figure: str) -> Claims:
    return {
        f"{figure}: gradients of clean samples are concentrated at small angles": Claim(
            "mean θ_g of clean samples in degrees, worst class", at_most(60.0, _mean_angle("clean", np.max))
        ),
        f"{figure}: gradients of noisy samples are concentrated at large angles": Claim(
            "mean θ_g of noisy samples in degrees, worst class", at_least(120.0, _mean_angle("noisy", np.min))
        ),
        f"{figure}: the angles of noisy samples are symmetric to those of clean samples": Claim(
            "mean θ_g of clean samples plus that of noisy samples, difference from 180°, worst class",
            at_most(10.0, _asymmetry, theory=0.0),
        ),
    }


CLAIMS = {
    "clean-priority/fig2": {
        "Figure 2: ReLU networks of width 512 follow the closed form for infinite width": Claim(
            "largest deviation of θ_h over the circle in degrees, worst depth",
            at_most(10.0, _deviation_at_512("relu"), theory=0.0),
        ),
        "Figure 2: linear networks of width 512 have θ_h = θ_d": Claim(
            "largest deviation of θ_h over the circle in degrees, worst depth",
            at_most(10.0, _deviation_at_512("linear"), theory=0.0),
        ),
        "Equations 13 and 14: they hold in the limit of infinite width": Claim(
            "deviation at the largest width over that at the smallest, ReLU, mean over depths",
            at_most(
                0.7,
                _widest_over_narrowest,
                # Sums over m neurons deviate by about 1/√m.
                theory=lambda sweep: math.sqrt(smallest(sweep, "width") / largest(sweep, "width")),
            ),
        ),
        "Theorem 3.1: θ_h grows with θ_d (up to 90°)": Claim(
            "share of neighbouring angles in increasing order, ReLU, width 512",
            at_least(0.95, final("rising_share", {"width": 512, "activation": "relu"})),
        ),
    },
    "clean-priority/fig3": {
        "Figure 3: angles within a cluster are smaller than angles between clusters": Claim(
            "θ_h between clusters minus within a cluster, in degrees",
            at_least(
                10.0, lambda sweep: mean_of((at_end(sweep, "between_angle") - at_end(sweep, "within_angle")) * _DEGREES)
            ),
        ),
        "Figure 3: the two histograms are separated": Claim(
            "share of pairs (within, between) in which the angle within a cluster is smaller",
            at_least(0.95, final("separated_share")),
        ),
    },
    "clean-priority/fig4": {**_at_start("Section 4", _RATIO_OF_TWO), **_histograms("Figure 4")},
    "clean-priority/fig5": {**_at_start("Figure 6", _RATIO_OF_TWO), **_dynamics("Figures 5, 6")},
    "clean-priority/fig10": {**_at_start("Figure 10", _RATIO_OF_TWO), **_dynamics("Figure 10", losses=True)},
    "clean-priority/fig7": {
        **_at_start("Figure 8", _RATIO_OF_TEN),
        **_dynamics("Figures 7, 8", _TEN_EPOCHS, losses=True, large_only=_NEEDS_MANY_IMAGES),
    },
    "clean-priority/fig7-cifar10": {
        **_at_start("Figure 8", _RATIO_OF_TEN),
        **_dynamics("Figures 7, 8", _TEN_CLASSES, losses=True, large_only=_NEEDS_MANY_IMAGES),
    },
    "clean-priority/fig9": {
        **_at_start("Figure 9", _RATIO_OF_TEN),
        **_histograms("Figure 9"),
        "Figure 9: samples of other classes are separated from clean samples of the class": Claim(
            "share of pairs (clean, other) in which the clean sample has the smaller θ_g, worst logit",
            at_least(0.9, lambda sweep: _in_order(sweep, "clean", "other")),
        ),
        "Figure 9: samples of other classes are separated from noisy samples of the class": Claim(
            "share of pairs (other, noisy) in which the sample of another class has the smaller θ_g, worst logit",
            at_least(0.9, lambda sweep: _in_order(sweep, "other", "noisy")),
        ),
        "Figure 9: the gradient of other classes has a sizable part orthogonal to the clean gradient": Claim(
            "sin θ_g of the summed gradient of clean samples of all other classes, worst logit",
            at_least(0.2, _orthogonal_part),
        ),
    },
    "clean-priority/fig11": {**_at_start("Figure 11", _RATIO_OF_TWO), **_dynamics("Figure 11", where=", worst width")},
    "clean-priority/fig12": {
        **_at_start("Figure 12", _RATIO_OF_TEN),
        **_dynamics("Figure 12", _TEN_EPOCHS, where=", worst noise level", large_only=_NEEDS_MANY_IMAGES),
    },
}
