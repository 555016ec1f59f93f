"""Regularization by Misclassification: measures about pure label noise, for one neuron and for networks."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Measure, Prediction, Values
from mislabel.analysis.claims.measures import Condition, by_cell, in_every_cell, one, rows
from mislabel.analysis.statistics.phases import crossing
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep
from mislabel.analysis.theory import misclassification as theory
from mislabel.sweeps.store.outcome import Status

_HINGE, _LOGISTIC = {"loss": "hinge"}, {"loss": "logistic"}


Find = Callable[[Any, pd.DataFrame], float]
"""A value of a run, from its row in the table of runs and its curve."""


def of_curves(metric: str, find: Find, columns: tuple[str, ...] = (), where: Condition = None) -> Measure:
    """A value of every run, found from its parameters and its curve (columns `step` and the metric), for each cell."""

    def measure(sweep: Sweep) -> Values:
        wanted = dict.fromkeys(["run_id", "seed", "status", *sweep.varying, *columns])
        runs = sweep.read("runs", list(wanted), rows(sweep, where))
        curves = dict(list(sweep.read("curves", ["run_id", "step", metric]).sort_values("step").groupby("run_id")))
        each: Iterable[Any] = runs.itertuples(index=False)
        found = [find(run, curves[run.run_id]) if run.status == Status.DONE else np.nan for run in each]
        return by_cell(runs.assign(value=found), sweep.varying)

    return measure


def _falls_linearly(run: Any, curve: pd.DataFrame) -> float:
    """Squared correlation of norm and step, while more than a fifth of the norm is left; negative if the norm rises."""
    falling = curve[curve["weight_norm"] > curve["weight_norm"].iloc[0] / 5]
    correlation = np.corrcoef(falling["step"], falling["weight_norm"])[0, 1]
    return float(-correlation * abs(correlation))


def _fall_over_theory(run: Any, curve: pd.DataFrame) -> float:
    """How fast the norm falls while more than half of it is left, over the theory's mean at these norms."""
    falling = curve[curve["weight_norm"] > curve["weight_norm"].iloc[0] / 2]
    slope = np.polyfit(falling["step"], falling["weight_norm"], 1)[0]
    expected = [theory.fall_per_rate(norm, run.dim, run.learning_rate, run.loss) for norm in falling["weight_norm"]]
    return float(-slope / run.learning_rate / np.mean(expected))


def _level(curve: pd.DataFrame) -> float:
    """The mean norm in the second half of training."""
    return float(curve.loc[curve["step"] >= curve["step"].max() / 2, "weight_norm"].mean())


def _level_over_theory(run: Any, curve: pd.DataFrame) -> float:
    return _level(curve) / theory.level(run.dim, run.learning_rate, run.loss)


def _level_over_dim_times_rate(run: Any, curve: pd.DataFrame) -> float:
    return float(_level(curve) / (run.dim * run.learning_rate))


def _level_over_theorem_2(run: Any, curve: pd.DataFrame) -> float:
    return _level(curve) / theory.theorem_2_level(run.dim, run.learning_rate, run.loss)


def _steps_over_theorem_2(run: Any, curve: pd.DataFrame) -> float:
    """Steps until the norm is down to the theorem's level, over the theorem's T.

    A run that is never down to it counts with all its steps if these are more than T; else it has no value.
    """
    bound = theory.theorem_2_level(run.dim, run.learning_rate, run.loss)
    steps = crossing(curve, "weight_norm", bound, "down", smooth=False).iloc[0]
    most = theory.theorem_2_steps(curve["weight_norm"].iloc[0], run.dim, run.learning_rate, run.loss)
    last = curve["step"].iloc[-1]
    return float((last if np.isnan(steps) and last > most else steps) / most)


def _theory_over_dim_times_rate(loss: theory.Loss) -> Prediction:
    """The theory's level over d·h, at the smallest rate."""

    def predict(sweep: Sweep) -> float:
        runs = sweep.read("runs", ["dim", "learning_rate"]).sort_values("learning_rate")
        dim, rate = int(runs["dim"].iloc[0]), float(runs["learning_rate"].iloc[0])
        return theory.level(dim, rate, loss) / (dim * rate)

    return predict


def _layers_left(loss: Where) -> Measure:
    """End over start of the norm of each layer."""

    def measure(sweep: Sweep) -> Values:
        layers = {"first layer": "first_norm", "output layer": "output_norm"}
        return {
            layer: next(iter(of_curves(metric, end_over_start(metric), where=loss)(sweep).values()))
            for layer, metric in layers.items()
        }

    return measure


def end_over_start(metric: str) -> Find:
    return lambda run, curve: float(curve[metric].iloc[-1] / curve[metric].iloc[0])


def _over(value: float, reference: float) -> float:
    """Their ratio; missing if the reference is 0."""
    return float(value / reference) if reference else np.nan


def _late_over_middle(run: Any, curve: pd.DataFrame) -> float:
    """The first layer's mean norm in the second half of training over that in the second quarter."""
    norms, share = curve["first_norm"], curve["step"] / curve["step"].max()
    return _over(norms[share > 1 / 2].mean(), norms[(share > 1 / 4) & (share <= 1 / 2)].mean())


def _norm_left_early(run: Any, curve: pd.DataFrame) -> float:
    """The first layer's norm after a hundredth of the training over that at the start."""
    early = curve[curve["step"] <= curve["step"].max() / 100]
    return float(early["first_norm"].iloc[-1] / curve["first_norm"].iloc[0])


def _largest_rise(run: Any, curve: pd.DataFrame) -> float:
    """The largest rise of the mean bias above an earlier value, over its fall from start to end."""
    bias = curve["mean_bias"]
    return _over((bias - bias.cummin()).max(), abs(bias.iloc[-1] - bias.iloc[0]))


def _tenth_step(run: Any, curve: pd.DataFrame) -> float:
    """The step at which a tenth of the first layer's norm is left."""
    left = curve.assign(left=curve["first_norm"] / curve["first_norm"].iloc[0])
    return float(crossing(left, "left", 0.1, "down", smooth=False).iloc[0])


def _longer_with_cross_entropy(sweep: Sweep) -> Values:
    hinge, logistic = (next(iter(of_curves("first_norm", _tenth_step, where=loss)(sweep).values()))
                       for loss in (_HINGE, _LOGISTIC))  # fmt: skip
    first, second = logistic.align(hinge, join="inner")
    return one(first / second)


def _mean_over_frames(metric: str) -> Find:
    return lambda run, curve: float(curve[metric].mean())


def _falling_layers(sweep: Sweep) -> Values:
    """The share of the layers' changes from frame to frame that are falls, with the hinge loss."""
    names = [name for name in sweep.varying if name != "loss"]
    runs = sweep.read("runs", ["run_id", "seed", "status", *names], _HINGE)
    arrays = sweep.read("arrays", ["run_id", "step", "values"], {"metric": "layer_norm"}).sort_values("step")
    norms = {run: np.stack(list(frames["values"])) for run, frames in arrays.groupby("run_id")}
    shares = [float((np.diff(norms[run], axis=0) < 0).mean()) for run in runs["run_id"]]
    return by_cell(runs.assign(value=pd.Series(shares).where(runs["status"] == Status.DONE)), names)


MEASURES_OF_PURE_NOISE: dict[str, Measure] = {
    "fig2-linear": of_curves("weight_norm", _falls_linearly, where=_HINGE),
    "fig2-fall-rate": of_curves("weight_norm", _fall_over_theory, ("dim", "learning_rate", "loss")),
    "fig2-hinge-level": of_curves("weight_norm", _level_over_dim_times_rate, ("dim", "learning_rate"), _HINGE),
    "fig2-logistic-level": of_curves("weight_norm", _level_over_dim_times_rate, ("dim", "learning_rate"), _LOGISTIC),
    "fig2-derived-level": of_curves("weight_norm", _level_over_theory, ("dim", "learning_rate", "loss")),
    **{
        f"theorem2{part}-{name}": of_curves("weight_norm", find, ("dim", "learning_rate", "loss"), loss)
        for part, loss in (("a", _HINGE), ("b", _LOGISTIC))
        for name, find in (("steps", _steps_over_theorem_2), ("level", _level_over_theorem_2))
    },
    "fig3-hinge-vanishes": _layers_left(_HINGE),
    "fig3-logistic-vanishes": _layers_left(_LOGISTIC),
    "fig3-logistic-floor": of_curves("first_norm", _late_over_middle, where=_LOGISTIC),
    "fig3-keeps-firing": in_every_cell(lambda runs: runs["active_share"], ["active_share"]),
    "fig3-cross-entropy-longer": _longer_with_cross_entropy,
    "fig4-weights-stay": of_curves("first_norm", end_over_start("first_norm")),
    "fig4-weights-fall-first": of_curves("first_norm", _norm_left_early),
    "fig4-floor": of_curves("first_norm", _late_over_middle),
    "fig4-stops-firing": in_every_cell(lambda runs: runs["active_share"], ["active_share"]),
    "fig4-biases-negative": in_every_cell(lambda runs: runs["max_bias"], ["max_bias"]),
    "fig4-biases-fall": of_curves("mean_bias", _largest_rise),
    "theorem1-every-layer": of_curves("shrinking_share", _mean_over_frames("shrinking_share")),
    "corollary1-monotone": _falling_layers,
}
PREDICTIONS_OF_PURE_NOISE: dict[str, Prediction] = {
    "fig2-hinge-level": _theory_over_dim_times_rate("hinge"),
    "fig2-logistic-level": _theory_over_dim_times_rate("logistic"),
}
