"""Zhang et al.: On the Learning Dynamics of Two-layer Linear Networks with Label Noise SGD."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Measure, Prediction, Values
from mislabel.analysis.claims.measures import (
    Condition,
    by_cell,
    final,
    in_every_cell,
    largest,
    one,
    rows,
    smallest,
)
from mislabel.analysis.statistics.estimate import at_end, by_seed
from mislabel.analysis.sweep import Sweep
from mislabel.analysis.theory import label_noise_sgd as theory
from mislabel.sweeps.store.outcome import Status

Reduce = Callable[[pd.DataFrame], float]
"""The value of a run from the rows of its curve, in the order of steps. The rows have the run's parameters too."""

_SILENT = {"sigma": 0.0}
_ALIGNED = 0.5
_SMALL = 0.5


def _noisiest(sweep: Sweep) -> dict[str, float]:
    """The largest σ and the largest step size: the setting that completes both phases first."""
    return {name: largest(sweep, name) for name in ("sigma", "step_size")}


def _noisy(sweep: Sweep) -> dict[str, list[float]]:
    """All settings with label noise."""
    return {"sigma": [sigma for sigma in sorted(set(sweep.read("runs", ["sigma"])["sigma"])) if sigma > 0]}


def _runs(sweep: Sweep, columns: Sequence[str], where: Condition = None) -> pd.DataFrame:
    names = dict.fromkeys(["run_id", "seed", "status", *sweep.varying, *columns])
    return sweep.read("runs", list(names), rows(sweep, where))


def _from_curves(
    sweep: Sweep, metrics: Sequence[str], reduce: Reduce, columns: Sequence[str] = (), where: Condition = None
) -> pd.DataFrame:
    """The runs with a `value` from their curves; it is missing if the run was not trained to the end."""
    runs = _runs(sweep, columns, where)
    curves = sweep.read("curves", ["run_id", "step", *metrics]).merge(runs, on="run_id").sort_values("step")
    values = {run: reduce(curve) for run, curve in curves.groupby("run_id")}
    return runs.assign(value=runs["run_id"].map(values).astype(float).where(runs["status"] == Status.DONE))


def _cells_from_curves(
    metrics: Sequence[str], reduce: Reduce, columns: Sequence[str] = (), where: Condition = None
) -> Measure:
    return lambda sweep: by_cell(_from_curves(sweep, metrics, reduce, columns, where), sweep.varying)


def _seeds_from_curves(metrics: Sequence[str], reduce: Reduce, columns: Sequence[str], where: Condition) -> Measure:
    return lambda sweep: one(by_seed(_from_curves(sweep, metrics, reduce, columns, where), "value"))


def _second_half(curve: pd.DataFrame) -> pd.DataFrame:
    """Late in training; single steps jitter, so claims average over them."""
    late: pd.DataFrame = curve[curve["step"] >= curve["step"].max() / 2]
    return late


def _late(metric: str) -> Reduce:
    return lambda curve: float(_second_half(curve)[metric].mean(skipna=False))


def _late_over_start(metric: str) -> Reduce:
    return lambda curve: _late(metric)(curve) / float(curve[metric].iloc[0])


def _end_over_start(metric: str) -> Reduce:
    return lambda curve: float(curve[metric].iloc[-1] / curve[metric].iloc[0])


def _gain(metric: str) -> Reduce:
    return lambda curve: float(curve[metric].iloc[-1] - curve[metric].iloc[0])


def _late_quotient(numerator: str, denominator: str) -> Reduce:
    return lambda curve: _late(numerator)(curve) / _late(denominator)(curve)


def _largest_quotient(numerator: str, denominator: str) -> Reduce:
    return lambda curve: float(curve[numerator].max(skipna=False) / curve[denominator].max(skipna=False))


def _slope(x: Any, y: Any) -> float:
    """The exponent of a power law y ∝ x^exponent, by least squares on logarithms."""
    with np.errstate(divide="ignore", invalid="ignore"):
        log_x, log_y = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
        centred = log_x - log_x.mean()
        return float(centred @ log_y / (centred @ centred))


def _exponent(knob: str, value: Callable[[pd.DataFrame], pd.Series], metric: str, where: Condition = None) -> Measure:
    """The exponent of a value in the knob, fitted to each seed, for each setting of the other parameters."""

    def measure(sweep: Sweep) -> Values:
        runs = _runs(sweep, [knob, metric], where)
        runs = runs.assign(value=value(runs).where(runs["status"] == Status.DONE))
        names = [name for name in sweep.varying if name != knob]
        fits = [
            {**dict(zip([*names, "seed"], key, strict=True)), "value": _slope(group[knob], group["value"])}
            for key, group in runs.groupby([*names, "seed"])
        ]
        return by_cell(pd.DataFrame(fits), names)

    return measure


def _ratio_along(knob: str, metric: str, where: Condition = None) -> Measure:
    """The metric at the knob's largest value over that at the smallest, in each setting of the other parameters."""

    def measure(sweep: Sweep) -> Values:
        runs = _runs(sweep, [knob, metric], where)
        names = [name for name in sweep.varying if name != knob]
        ended = runs.assign(value=runs[metric].where(runs["status"] == Status.DONE))
        values = ended.set_index([*names, "seed"])["value"]
        high, low = (values[(runs[knob] == end).to_numpy()] for end in (runs[knob].max(), runs[knob].min()))
        return by_cell((high / low).reset_index(), names)

    return measure


def _phases_in_order(sweep: Sweep) -> Values:
    """Whether all neurons leave the lazy regime before they align."""
    where = _noisiest(sweep)
    return one(at_end(sweep, "full_escape_step", where) < at_end(sweep, "phase_two_step", where))


def _two_phase_share(norms: np.ndarray, alignments: np.ndarray) -> float:
    """Share of neurons (columns) that are small at some time (rows), later or then aligned, and not aligned before."""
    small, aligned = norms <= _SMALL * norms[0], alignments >= _ALIGNED
    reached = small.any(axis=0) & aligned.any(axis=0)
    return float((reached & (small.argmax(axis=0) <= aligned.argmax(axis=0))).mean())


def _neurons_in_phases(sweep: Sweep) -> Values:
    names = ("neuron_norm", "neuron_alignment")
    runs = _runs(sweep, [], _noisiest)
    arrays = sweep.read("arrays", ["run_id", "step", "metric", "values"], {"metric": list(names)})
    shares = {}
    for run, found in arrays[arrays["run_id"].isin(runs["run_id"])].sort_values("step").groupby("run_id"):
        norms, alignments = (np.stack(found[found["metric"] == name]["values"].tolist()) for name in names)
        shares[run] = _two_phase_share(norms, alignments)
    return one(by_seed(runs.assign(value=runs["run_id"].map(shares).where(runs["status"] == Status.DONE)), "value"))


def _in_time(runs: pd.DataFrame) -> pd.Series:
    bound = theory.escape_bound(runs["sigma"], runs["step_size"], runs["width"])
    return runs["full_escape_step"] <= pd.Series(bound, runs.index)


def _while_lazy(curve: pd.DataFrame) -> pd.DataFrame:
    return curve[curve["lazy"] == 1]


def _largest_output_weight(curve: pd.DataFrame) -> float:
    bound = theory.output_weight_bound(curve["width"].iloc[0])
    return float(_while_lazy(curve)["max_output_weight"].max() / bound)


def _least_diminishing(curve: pd.DataFrame) -> float:
    return float(_while_lazy(curve)["min_diminishing_share"].min())


def _square_norm_in_time(curve: pd.DataFrame) -> float:
    """The mean squared norm at the last measured step up to 1/η², over √η."""
    eta = curve["step_size"].iloc[0]
    # Steps are whole numbers, 1/η² is rounded.
    within = curve[curve["step"] <= theory.small_norm_bound(eta) + 0.5]
    return float(within["mean_square_norm"].iloc[-1] / np.sqrt(eta))


def _printed_misalignment(curve: pd.DataFrame) -> float:
    """Of the least aligned neuron at the first measured step from the printed T₂ on, over the lemma's order."""
    reached = curve[curve["step"] >= curve["printed_step"]]["min_alignment"]
    first = reached.iloc[0] if len(reached) else np.nan
    return float((1 - first) / theory.misalignment_order(curve["step_size"].iloc[0]))


def _over(order: Callable[[pd.Series], Any], runs: pd.DataFrame, values: pd.Series) -> pd.Series:
    return values / pd.Series(order(runs["step_size"]), runs.index)


def _order_exponent(sweep: Sweep) -> float:
    """The exponent of √η·ln(1/η) over the step sizes of the sweep: below ½ because of the logarithm."""
    rates = sorted(set(sweep.read("runs", ["step_size"])["step_size"]))
    return _slope(rates, theory.misalignment_order(rates))


def _at_largest_sigma(sweep: Sweep) -> dict[str, float]:
    return {"sigma": largest(sweep, "sigma")}


def _network(metrics: Sequence[str], reduce: Reduce) -> Measure:
    """A value of Figure 2's network, at the largest σ."""
    return _seeds_from_curves(metrics, reduce, (), _at_largest_sigma)


def _late_network(metric: str) -> Measure:
    return _network([metric], _late(metric))


def _network_quotient(numerator: str, denominator: str) -> Measure:
    return _network([numerator, denominator], _late_quotient(numerator, denominator))


def _width_effect(sweep: Sweep) -> Values:
    """Change of the kernel without noise: the widest network's over the narrowest's. σ has no effect on it."""
    runs = _from_curves(sweep, ["plain_kernel_change"], _late("plain_kernel_change"), ["width", "init_scale"])
    wide, narrow = (by_cell(runs[runs["width"] == end(sweep, "width")], ["init_scale"]) for end in (largest, smallest))
    return {cell: wide[cell] / narrow[cell] for cell in wide}


_KERNEL = ("noisy_kernel_change", "plain_kernel_change")


def _smallest_scale(sweep: Sweep) -> dict[str, float]:
    return {"init_scale": smallest(sweep, "init_scale")}


_ESCAPE = "full_escape_step"
_SIGMA_EXPONENT = _exponent("sigma", lambda runs: runs[_ESCAPE], _ESCAPE, _noisy)
_ETA_EXPONENT = _exponent("step_size", lambda runs: runs[_ESCAPE], _ESCAPE, _noisy)

MEASURES: dict[str, Measure] = {
    "training-loss-falls": _cells_from_curves(["train_loss"], _late_over_start("train_loss"), where=_noisy),
    "test-loss-falls": _cells_from_curves(["test_loss"], _late_over_start("test_loss"), where=_noisy),
    "interpolator-is-reached": _seeds_from_curves(
        ["target_distance"],
        lambda curve: _late("target_distance")(curve) / float(curve["target_norm"].iloc[0]),
        ["target_norm"],
        _noisiest,
    ),
    "norms-diminish": _seeds_from_curves(["mean_norm"], _end_over_start("mean_norm"), (), _noisiest),
    "neurons-align": final("mean_alignment", _noisiest),
    "phases-in-order": _phases_in_order,
    "neurons-follow-both-phases": _neurons_in_phases,
    "norms-stay-without-noise": _cells_from_curves(["mean_norm"], _end_over_start("mean_norm"), where=_SILENT),
    "directions-stay-without-noise": _cells_from_curves(["mean_alignment"], _gain("mean_alignment"), where=_SILENT),
    "larger-sigma-escapes-earlier": _SIGMA_EXPONENT,
    "larger-eta-escapes-earlier": _ETA_EXPONENT,
    "escape-exponent-of-sigma": _SIGMA_EXPONENT,
    "escape-exponent-of-eta": _ETA_EXPONENT,
    "escaped-by-t1": in_every_cell(_in_time, [_ESCAPE], ["sigma", "step_size", "width"], _noisy),
    "output-weights-are-small-while-lazy": _cells_from_curves(
        ["lazy", "max_output_weight"], _largest_output_weight, ["width"]
    ),
    "norms-diminish-at-each-step": _cells_from_curves(["lazy", "min_diminishing_share"], _least_diminishing),
    "norms-are-small-in-time": _cells_from_curves(["mean_square_norm"], _square_norm_in_time, ["step_size"]),
    "norms-shrink-at-the-expected-rate": in_every_cell(
        lambda runs: runs["small_step"] / pd.Series(theory.small_norm_step(runs["step_size"]), runs.index),
        ["small_step"],
        ["step_size"],
    ),
    "aligned-at-the-printed-time": _cells_from_curves(
        ["min_alignment"], _printed_misalignment, ["step_size", "printed_step"]
    ),
    "aligned-at-the-corrected-time": in_every_cell(
        lambda runs: _over(theory.misalignment_order, runs, 1 - runs["growth_alignment"]),
        ["growth_alignment"],
        ["step_size"],
    ),
    "misalignment-falls-with-eta": _exponent(
        "step_size", lambda runs: 1 - runs["growth_alignment"], "growth_alignment"
    ),
    "converges-in-time": in_every_cell(
        lambda runs: _over(theory.convergence_order, runs, runs["converged_distance"]),
        ["converged_distance"],
        ["step_size"],
    ),
    "large-neurons-stay-aligned": in_every_cell(
        lambda runs: _over(theory.convergence_order, runs, 1 - runs["converged_alignment"]),
        ["converged_alignment"],
        ["step_size"],
    ),
    "plain-network-is-linear-in-training": _network(
        ["plain_train_gap"], lambda curve: float(curve["plain_train_gap"].max(skipna=False))
    ),
    "plain-network-is-linear-in-test": _late_network("plain_test_gap"),
    "noisy-network-departs-in-training": _network(
        ["noisy_train_gap", "plain_train_gap"], _largest_quotient("noisy_train_gap", "plain_train_gap")
    ),
    "noisy-network-departs-in-test": _network_quotient("noisy_test_gap", "plain_test_gap"),
    "departure-is-not-jitter": _network_quotient("control_test_gap", "plain_test_gap"),
    "noise-changes-the-kernel-more": _network_quotient(*_KERNEL),
    "noise-changes-the-kernel": _late_network("noisy_kernel_change"),
    "first-layer-diminishes": _late_network("noisy_first_norm_ratio"),
    "first-layer-stays-without-noise": _late_network("plain_first_norm_ratio"),
    "beyond-norms-diminish": _cells_from_curves(["mean_norm"], _end_over_start("mean_norm"), where=_noisy),
    "beyond-neurons-align": in_every_cell(lambda runs: runs["mean_alignment"], ["mean_alignment"], where=_noisiest),
    "beyond-norms-stay-without-noise": _cells_from_curves(["mean_norm"], _end_over_start("mean_norm"), where=_SILENT),
    "beyond-test-loss-falls": _cells_from_curves(["test_loss"], _late_over_start("test_loss"), where=_noisy),
    "beyond-larger-sigma-smaller-norms": _ratio_along("sigma", "mean_norm", _noisy),
    "beyond-larger-eta-smaller-norms": _ratio_along("step_size", "mean_norm", _noisy),
    "wider-networks-are-lazier": _width_effect,
    "rich-from-ntk-initialization": _cells_from_curves(_KERNEL, _late_quotient(*_KERNEL), where={"init_scale": 1.0}),
    "rich-from-small-initialization": _cells_from_curves(_KERNEL, _late_quotient(*_KERNEL), where=_smallest_scale),
    "dense-first-layer-diminishes": _cells_from_curves(["noisy_first_norm_ratio"], _late("noisy_first_norm_ratio")),
}

PREDICTIONS: dict[str, Prediction] = {"misalignment-falls-with-eta": _order_exponent}
