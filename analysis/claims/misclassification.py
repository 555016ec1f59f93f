"""Regularization by Misclassification: measures of its claims; here about the hypercube, basis inputs and images."""

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Measure, Prediction, Values
from mislabel.analysis.claims.measures import by_cell, final, in_every_cell, one, paired, trained_runs
from mislabel.analysis.claims.misclassification_pure_noise import (
    MEASURES_OF_PURE_NOISE,
    PREDICTIONS_OF_PURE_NOISE,
    of_curves,
)
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep
from mislabel.analysis.theory import misclassification as theory

_NO_NOISE, _TENTH, _FIFTH, _PURE = ({"noise_rate": rate} for rate in (0.0, 0.1, 0.2, 1.0))
# In sweeps with noise or smoothing.
_CLEAN, _NOISY, _SMOOTHED = ({"noise_rate": p, "smoothing": s} for p, s in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.1)))
_CLEAN_CUBE, _NOISY_CUBE, _SMOOTHED_CUBE = ({"noise_rate": p, "smoothing": s} for p, s in ((0, 0), (0.2, 0), (0, 0.2)))
_LARGE_START = 3.0


def _compared(metric: str, first: Where, second: Where, compare: Callable[[Any, Any], Any] = operator.sub) -> Measure:
    """The metric at the end of the first runs minus that of the second, in each setting of the other parameters."""

    def measure(sweep: Sweep) -> Values:
        names = [name for name in sweep.varying if name not in {*first, *second}]
        values = [
            by_cell(trained_runs(sweep, [metric], ["seed", *names], where), names, metric) for where in (first, second)
        ]
        return {name: compare(one, other) for name, one, other in paired(*values)}

    return measure


def _late_change(run: Any, curve: pd.DataFrame) -> float:
    """The change of the test error between the third and the last quarter of training."""
    share = curve["step"] / curve["step"].max()
    third, last = curve[(share > 1 / 2) & (share <= 3 / 4)], curve[share > 3 / 4]
    return float(abs(last["test_error"].mean() - third["test_error"].mean()))


def _rates(large: bool) -> Callable[[Sweep], Where]:
    """The learning rates of Theorem 4: from 1, or up to 1/k."""

    def where(sweep: Sweep) -> Where:
        runs = sweep.read("runs", ["learning_rate", "width"])
        chosen = (
            runs["learning_rate"] >= 1 if large else runs["learning_rate"] <= theory.small_rate(runs["width"].max())
        )
        return {"learning_rate": sorted(runs.loc[chosen, "learning_rate"].unique())}

    return where


def _silent_share(runs: pd.DataFrame) -> pd.Series:
    return 1 - runs["min_active_neurons"] / runs["width"]


def _sparser_at_larger_rates(where: Where) -> Measure:
    """The drop of the active share from each rate to the next, in tens: 0.01, 0.1, 1; else from smallest to largest."""

    def measure(sweep: Sweep) -> Values:
        rates = sorted(sweep.read("runs", ["learning_rate"])["learning_rate"].unique())
        tens = [rate for rate in (0.01, 0.1, 1.0) if rate in rates]
        used = tens if len(tens) > 2 else [rates[0], rates[-1]]
        found: dict[str, pd.Series] = {}
        for low, high in pairwise(used):
            first, second = ({**where, "learning_rate": rate} for rate in (low, high))
            drops = _compared("active_share", first, second)(sweep)
            found |= {
                ", ".join(filter(None, (name, f"rate {low:g} to {high:g}"))): drop for name, drop in drops.items()
            }
        return found

    return measure


def _activity_falls(sweep: Sweep) -> Values:
    """The drop of the active share from p = 0 to 0.2, and from there to 1."""
    drops = {"p 0 to 0.2": (_NO_NOISE, _FIFTH), "p 0.2 to 1": (_FIFTH, _PURE)}
    return {name: _compared("active_share", *both)(sweep)[""] for name, both in drops.items()}


def _associated_share(runs: pd.DataFrame) -> pd.Series:
    """The share of the neurons that fire at all that are associated with a class."""
    return runs["class_neurons"] / (runs["width"] - runs["dead_neurons"])


def _at_start(run: Any, curve: pd.DataFrame) -> float:
    return float(curve["active_share"].iloc[0])


def _fall_from_start(run: Any, curve: pd.DataFrame) -> float:
    return float(curve["active_share"].iloc[0] - curve["active_share"].iloc[-1])


def _deepening(sweep: Sweep) -> Values:
    """Correlation, over hidden layers, of depth with the drop of the active share that smoothing causes."""
    clean, smoothed = (_layer_shares(sweep, {"smoothing": amount}) for amount in (0.0, 0.1))
    drops = {seed: clean[seed] - smoothed[seed] for seed in clean if seed in smoothed}
    return one(pd.Series({seed: np.corrcoef(np.arange(len(drop)), drop)[0, 1] for seed, drop in drops.items()}))


def _layer_shares(sweep: Sweep, where: Where) -> dict[int, np.ndarray]:
    arrays = sweep.read("arrays", ["seed", "step", "values"], {**where, "metric": "layer_active_share"})
    last = arrays[arrays["step"] == arrays["step"].max()]
    return {seed: np.array(values) for seed, values in zip(last["seed"], last["values"], strict=True)}


def _interpolates(runs: pd.DataFrame) -> pd.Series:
    return runs["interpolation_step"].notna()


def _at(rate: float) -> Where:
    return {"noise_rate": rate, "init_scale": _LARGE_START}


_EVERY_NOISE = {"noise_rate": [0.0, 0.2]}
_BOTH_LAYERS = {"trained": "both"}
_RATIO = operator.truediv

MEASURES: dict[str, Measure] = {
    **{
        f"fig1-{name}-{metric}-{point}": final(column, where)
        for name, where in (("noisy", _FIFTH), ("clean", _NO_NOISE))
        for metric, columns in (("error", ("interpolation_test_error", "test_error")),
                                ("active", ("interpolation_active_neurons", "active_neurons")))
        for point, column in zip(("interpolated", "settled"), columns, strict=True)
    },
    "fig1-lower-error-interpolated": _compared("interpolation_test_error", _NO_NOISE, _FIFTH),
    "fig1-lower-error-settled": _compared("test_error", _NO_NOISE, _FIFTH),
    "fig1-sparser-interpolated": _compared("interpolation_active_neurons", _FIFTH, _NO_NOISE, _RATIO),
    "fig1-sparser-settled": _compared("active_neurons", _FIFTH, _NO_NOISE, _RATIO),
    "fig1-fits": in_every_cell(_interpolates, ["interpolation_step"], where=_EVERY_NOISE),
    "fig1-test-error-settles": of_curves("test_error", _late_change, where=_EVERY_NOISE),
    "fig1-test-activity": in_every_cell(
        lambda runs: runs["test_active_neurons"] / runs["active_neurons"],
        ["test_active_neurons", "active_neurons"], where=_EVERY_NOISE,
    ),
    "fig1-longer": _compared("interpolation_step", _FIFTH, _NO_NOISE, _RATIO),
    "activity-at-pure-noise": _compared("active_share", _PURE, _NO_NOISE, _RATIO),
    "activity-tuned": _activity_falls,
    **MEASURES_OF_PURE_NOISE,
    "theorem3-every-output": in_every_cell(
        lambda runs: runs["max_output"] < runs["output_bound"], ["max_output", "output_bound"]
    ),
    "theorem4-large-rate": in_every_cell(
        lambda runs: runs["max_active_neurons"] == 0, ["max_active_neurons"], where=_rates(large=True)
    ),
    "theorem4-small-rate": in_every_cell(
        lambda runs: runs["min_active_neurons"] > 0, ["min_active_neurons"], where=_rates(large=False)
    ),
    "theorem4-half": in_every_cell(_silent_share, ["min_active_neurons"], ["width"], _rates(large=False)),
    "rates-sparser-basis": _sparser_at_larger_rates({}),
    "rates-sparser-hypercube": _sparser_at_larger_rates(_NOISY_CUBE),
    "rates-sparser-images": _sparser_at_larger_rates({}),
    "pure-noise-mnist": final("active_share", {"learning_rate": 0.001}),
    "batch-sparser": _compared("active_share", _NO_NOISE, _TENTH),
    "beyond-sparser": _compared("active_share", _CLEAN_CUBE, _NOISY_CUBE),
    "beyond-lower-error": _compared("test_error", _CLEAN_CUBE, _NOISY_CUBE),
    "beyond-optimum": _compared("test_error", {"noise_rate": 1.0, "smoothing": 0}, _NOISY_CUBE),
    "beyond-smoothing-sparser": _compared("active_share", _CLEAN_CUBE, _SMOOTHED_CUBE),
    "beyond-smoothing-denser": _compared("active_share", _SMOOTHED_CUBE, _NOISY_CUBE),
    **{
        f"{figure}-{name}{at}": final(metric, where)
        for figure, metric in (("fig5", "active_share"), ("fig6", "class_neurons"))
        for name, at, where in (("clean", "", _CLEAN), ("noisy", "", _NOISY),
                                ("clean", "-large-start", _at(0.0)), ("noisy", "-large-start", _at(0.1)))
    },
    "fig5-sparser": _compared("active_share", _CLEAN, _NOISY),
    "fig5-sparser-large-start": _compared("active_share", _NO_NOISE, _TENTH),
    "fig5-lower-error": _compared("test_error", _CLEAN, _NOISY),
    "fig5-lower-error-large-start": _compared("test_error", _NO_NOISE, _TENTH),
    "fig6-more-associated": _compared("class_neurons", _NOISY, _CLEAN),
    "most-associated": in_every_cell(
        _associated_share, ["class_neurons", "dead_neurons"], ["width"], {"smoothing": 0.1}
    ),
    "smoothing-sparser": _compared("active_share", _CLEAN, _SMOOTHED),
    "smoothing-denser": _compared("active_share", _SMOOTHED, _NOISY),
    "half-active-at-start": of_curves("active_share", _at_start, where=_CLEAN),
    "sparser-without-noise": of_curves("active_share", _fall_from_start, where=_CLEAN),
    "resnet-clean-accuracy": final("test_error", {"smoothing": 0.0}),
    "resnet-smoothed-accuracy": final("test_error", {"smoothing": 0.1}),
    "resnet-clean-active": final("active_share", {"smoothing": 0.0}),
    "resnet-smoothed-active": final("active_share", {"smoothing": 0.1}),
    "resnet-sparser": _compared("active_share", {"smoothing": 0.0}, {"smoothing": 0.1}),
    "resnet-deeper": _deepening,
    "beyond-images-sparser": _compared("active_share", _NO_NOISE, _TENTH),
    "one-layer-sparser": _compared("active_share", {**_NO_NOISE, "trained": "first"}, {**_TENTH, "trained": "first"}),
    "softmax-denser": _compared(
        "active_share", {"loss": "softmax", **_BOTH_LAYERS, **_TENTH}, {"loss": "logistic", **_BOTH_LAYERS, **_TENTH}
    ),
}  # fmt: skip
PREDICTIONS: dict[str, Prediction] = PREDICTIONS_OF_PURE_NOISE
