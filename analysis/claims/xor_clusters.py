"""Frei, Chatterji, Bartlett: Random Feature Amplification. Measures of the claims about XOR clusters.

T is the step at which Theorem 1 stops early, 1 + 1/(4·step size). Experiments that test lemmas end at T.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Measure, Values
from mislabel.analysis.claims.measures import (
    Condition,
    by_cell,
    final,
    in_every_cell,
    largest,
    one,
    paired,
    rows,
    smallest,
    trained_runs,
)
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep
from mislabel.analysis.theory import xor_clusters as theory
from mislabel.sweeps.store.outcome import Status

_BEFORE_OVERFITTING = 100
_SMALL_INIT = 0.1
"""The initialization scale of Figure 2. Larger ones are outside of what the paper considers."""
_NARROW_NETWORK = 64


def _low(sweep: Sweep) -> Where:
    return {"dim": smallest(sweep, "dim")}


def _high(sweep: Sweep) -> Where:
    return {"dim": largest(sweep, "dim")}


def _frames(sweep: Sweep, metrics: Sequence[str], where: Condition = None, columns: Sequence[str] = ()) -> pd.DataFrame:
    """The metrics at every frame of the runs, with the varying parameters. Frames of failed runs have no values."""
    names = dict.fromkeys(["run_id", "seed", "status", *sweep.varying, *columns])
    runs = sweep.read("runs", list(names), rows(sweep, where))
    frames = runs.merge(sweep.read("curves", ["run_id", "step", *metrics]), on="run_id", how="left")
    return frames.assign(**{metric: frames[metric].where(frames["status"] == Status.DONE) for metric in metrics})


def _at(step: int, frames: pd.DataFrame) -> pd.DataFrame:
    """Each run's last frame up to the step."""
    return frames[frames["step"] <= step].sort_values("step").groupby("run_id", as_index=False).tail(1)


def _small(frames: pd.DataFrame) -> pd.DataFrame:
    return frames[frames["init_scale"] <= _SMALL_INIT]


def _allowed(frames: pd.DataFrame) -> pd.DataFrame:
    """The runs whose initialization the proof of Lemma 14 allows."""
    return frames[frames["init_scale"] <= theory.largest_init_scale(1.0) * frames["step_size"]]


def _lemma(
    metrics: Sequence[str],
    value: Callable[[pd.DataFrame], pd.Series],
    step: int | None = None,
    scales: Callable[[pd.DataFrame], pd.DataFrame] = _small,
) -> Measure:
    """A value for each cell with one of these initialization scales, at a step or at the end."""

    def measure(sweep: Sweep) -> Values:
        columns = ("init_scale", "step_size", "width", "dim", "spread", "noise_rate")
        frames = scales(_frames(sweep, metrics, columns=columns))
        found = _at(frames["step"].max() if step is None else step, frames)
        return by_cell(found.assign(value=value(found)), sweep.varying)

    return measure


def _worst_after_start(metric: str) -> Measure:
    """A norm over the bound of Lemma 14, largest over the steps from 1 to T."""

    def measure(sweep: Sweep) -> Values:
        frames = _small(_frames(sweep, [metric], columns=("init_scale", "step_size")))
        frames = frames[frames["step"] > 0]
        value = frames[metric] / (theory.norm_bound(1.0, 1.0) * frames["step_size"] * frames["step"])
        worst = frames.assign(value=value).sort_values("value").groupby("run_id").tail(1)  # missing values come last
        return by_cell(worst, sweep.varying)

    return measure


def _until_early_stop(*shares: str) -> Measure:
    """Whether the conditions hold for all neurons of J_μ, at all steps from 1 to 1/(4·step size)."""

    def measure(sweep: Sweep) -> Values:
        frames = _small(_frames(sweep, shares, columns=("init_scale", "step_size")))
        last = theory.last_aligned_step(float(frames["step_size"].iloc[0]))
        frames = frames[frames["step"].between(1, last)]
        return by_cell(frames.assign(value=(frames[list(shares)] == 1).all(axis=1)), sweep.varying)

    return measure


def _theorem_holds(runs: pd.DataFrame) -> pd.Series:
    """Whether, at T, every clean point is right and every flipped one wrong."""
    return (runs["early_clean_accuracy"] == 1) & (runs["early_noisy_accuracy"] == 0)


def _change(metric: str, scales: Callable[[pd.DataFrame], pd.DataFrame], ratio: bool) -> Measure:
    """The change of the metric from step 1 to T, as difference or ratio, in each cell with one of these scales."""

    def measure(sweep: Sweep) -> Values:
        frames = scales(_frames(sweep, [metric], columns=("init_scale", "step_size")))
        before, after = (by_cell(_at(step, frames), sweep.varying, metric) for step in (1, frames["step"].max()))
        return {name: (b / a if ratio else b - a) for name, a, b in paired(before, after)}

    return measure


def _smallest_scale(frames: pd.DataFrame) -> pd.DataFrame:
    return frames.loc[frames["init_scale"].eq(frames["init_scale"].min())]


def _relative(runs: pd.DataFrame, names: Sequence[str], axis: str) -> pd.DataFrame:
    """The runs' values divided by those with the smallest `axis` and otherwise equal settings, which are left out."""
    keys = [*(name for name in names if name != axis), "seed"]
    first = runs[axis].eq(runs[axis].min())
    base = runs[first].set_index(keys)["value"].rename("base")
    others = runs[~first].join(base, on=keys)
    return others.assign(value=others["value"] / others["base"])


def _feature_scaling(sweep: Sweep) -> Values:
    """Feature change times initialization scale at T, relative to that of the smallest scale."""
    runs = _small(trained_runs(sweep, ["min_feature_change"], ["seed", "init_scale", *_others(sweep, "init_scale")]))
    runs = runs.assign(value=runs["min_feature_change"] * runs["init_scale"])
    return by_cell(_relative(runs, sweep.varying, "init_scale"), sweep.varying)


def _sample_rate(sweep: Sweep) -> Values:
    """Excess error at T relative to that of the fewest points, over the rate 1/√n, with the widest clusters."""
    where = {"spread": smallest(sweep, "spread")}
    runs = trained_runs(sweep, ["early_clean_test_accuracy"], ["seed", "samples", "dim"], where)
    fewest = runs["samples"].min()
    runs = runs.assign(value=1 - runs["early_clean_test_accuracy"])
    runs = _relative(runs, ["samples", "dim"], "samples")
    return by_cell(runs.assign(value=runs["value"] * np.sqrt(runs["samples"] / fewest)), ["dim", "samples"])


def _others(sweep: Sweep, *axes: str) -> list[str]:
    return [name for name in sweep.varying if name not in axes]


def _small_scales(sweep: Sweep) -> Where:
    return {"init_scale": sorted(set(_small(sweep.read("runs", ["init_scale"]))["init_scale"]))}


def _contrast(axis: str, metric: str, where: Condition = None, largest_first: bool = False) -> Measure:
    """The metric with the smallest `axis` minus that with the largest, in each cell of the other parameters."""

    def measure(sweep: Sweep) -> Values:
        condition = rows(sweep, where)
        names = _others(sweep, axis, *(name for name, value in condition.items() if not isinstance(value, list)))
        ends = [smallest(sweep, axis), largest(sweep, axis)]
        found = [
            by_cell(trained_runs(sweep, [metric], ["seed", *names], {**condition, axis: end}), names, metric)
            for end in (reversed(ends) if largest_first else ends)
        ]
        return {name: first - second for name, first, second in paired(*found)}

    return measure


def _alignment_contrast(sweep: Sweep) -> Values:
    """The alignment share after one step from the smallest initialization minus that from the largest."""
    found = _at(1, _frames(sweep, ["alignment_share"], columns=("init_scale",)))
    values = [found[found["init_scale"] == end(sweep, "init_scale")] for end in (smallest, largest)]
    first, second = (by_cell(runs, _others(sweep, "init_scale"), "alignment_share") for runs in values)
    return {name: one_end - other for name, one_end, other in paired(first, second)}


def _beyond(keep: Callable[[pd.DataFrame], pd.Series]) -> Measure:
    """Clean test accuracy at T in the cells of a sweep over width, noise and initialization that `keep` chooses."""

    def measure(sweep: Sweep) -> Values:
        columns = dict.fromkeys(["seed", "width", "noise_rate", "init_scale", *sweep.varying])
        runs = trained_runs(sweep, ["early_clean_test_accuracy"], list(columns))
        return by_cell(runs[keep(runs)], sweep.varying, "early_clean_test_accuracy")

    return measure


def _boundary(sweep: Sweep) -> Values:
    """Share of the plane of the means on which the network has the sign of |u| − |v| at the last step."""
    arrays = sweep.read("arrays", ["seed", "step", "values"], {"metric": "plane_output"})
    outputs = arrays[arrays["step"] == arrays["step"].max()].set_index("seed")["values"]
    distance = np.abs(np.linspace(-1, 1, round(len(outputs.iloc[0]) ** 0.5)))
    simple = np.sign(distance[:, None] - distance).ravel()
    off_edge = simple != 0
    return one(outputs.map(lambda values: float((np.sign(values) == simple)[off_edge].mean())))


def _drop(sweep: Sweep) -> Values:
    """Test accuracy before the network overfits minus that at the end, for n ≫ d.

    The best accuracy over training can't replace the first: it is never below the accuracy at the end, so the claim
    could not fail.
    """
    frames = _frames(sweep, ["test_accuracy"], _low)
    steps = (_BEFORE_OVERFITTING, frames["step"].max())
    before, after = (_at(step, frames).set_index("seed")["test_accuracy"] for step in steps)
    return one(before - after)


def _interpolates(sweep: Sweep) -> Values:
    runs = trained_runs(sweep, ["interpolation_step"], ["seed"], _high)
    return one(runs.set_index("seed")["interpolation_step"].notna())


def _edge_ratio(runs: pd.DataFrame) -> pd.Series:
    expected = [
        theory.expected_edge(dim, spread, rate)
        for dim, spread, rate in zip(runs["dim"], runs["spread"], runs["noise_rate"], strict=True)
    ]
    return runs["smallest_edge"] / expected


def _smaller_margin(clean: str, noisy: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda runs: runs[clean].where(runs[clean] < -runs[noisy], -runs[noisy])


def _norms_hold(runs: pd.DataFrame) -> pd.Series:
    """Whether all initial norms are within half and one and a half of their expected size (Lemma 3)."""
    low, high = (runs[f"{end}_neuron_norm"] / runs["init_scale"] for end in ("smallest", "largest"))
    return (low >= 0.5) & (high <= 1.5)


def _column(metric: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda runs: runs[metric]


def _initial_correlation(runs: pd.DataFrame) -> pd.Series:
    return runs["mean_correlation"] / [theory.initial_correlation(dim) for dim in runs["dim"]]


def _correlated(runs: pd.DataFrame) -> pd.Series:
    return runs["correlated_share"] / [theory.correlated_share_bound(width) for width in runs["width"]]


def _feature_change(runs: pd.DataFrame) -> pd.Series:
    return runs["min_feature_change"] / [theory.feature_change_bound(scale) for scale in runs["init_scale"]]


def _excess(runs: pd.DataFrame) -> pd.Series:
    return 1 - runs["early_test_accuracy"] - runs["noise_rate"]


_ACCURACIES = ("early_clean_accuracy", "early_noisy_accuracy")
_MARGINS = ("clean_margin", "noisy_margin")
_SUBNETWORK = ("subnetwork_clean_margin", "subnetwork_noisy_margin")

MEASURES: dict[str, Measure] = {
    "fig1-boundary": _boundary,
    "fig1-neurons": final("captured_share"),
    "fig1-training-points": in_every_cell(
        lambda runs: (runs["clean_accuracy"] == 1) & (runs["noisy_accuracy"] == 0), ["clean_accuracy", "noisy_accuracy"]
    ),
    "linear-classifiers": in_every_cell(lambda runs: runs["linear_test_accuracy"], ["linear_test_accuracy"]),
    "theorem1-training-points": in_every_cell(_theorem_holds, _ACCURACIES),
    "theorem1-test-error": in_every_cell(lambda runs: 1 - runs["early_test_accuracy"], ["early_test_accuracy"]),
    "theorem1-margin": in_every_cell(lambda runs: _smaller_margin(*_MARGINS)(runs) / theory.margin_bound(), _MARGINS),
    "any-small-initialization": _lemma(_ACCURACIES, _theorem_holds),
    "sample-size-rate": _sample_rate,
    "sample-size-excess": in_every_cell(
        _excess, ["early_test_accuracy"], ["noise_rate"], lambda sweep: {"spread": largest(sweep, "spread")}
    ),
    "feature-change-scaling": _feature_scaling,
    "feature-change-bound": _lemma(["min_feature_change"], _feature_change),
    "initial-norms": _lemma(["smallest_neuron_norm", "largest_neuron_norm"], _norms_hold, step=0),
    "correlated-neurons": _lemma(["correlated_share"], _correlated, step=0),
    "initial-correlation": _lemma(["mean_correlation"], _initial_correlation, step=0),
    "candidate-neurons": _lemma(["candidate_share"], _column("candidate_share"), step=0),
    "cluster-radius": _lemma(["cluster_radius"], _column("cluster_radius"), step=0),
    "first-edge": _lemma(["smallest_edge"], _edge_ratio, step=0),
    "alignment-share": _lemma(["alignment_share"], _column("alignment_share"), step=1, scales=_allowed),
    "almost-orthogonality": _until_early_stop("orthogonality_share"),
    "subnetwork-norm": _lemma(["weight_norm"], _column("weight_norm")),
    "subnetwork-margin": _lemma(
        _SUBNETWORK, lambda runs: _smaller_margin(*_SUBNETWORK)(runs) / theory.subnetwork_margin_bound()
    ),
    "alignment-after-one-step": _lemma(["alignment_share"], lambda runs: runs["alignment_share"] == 1, step=1),
    "amplified-correlation": _lemma(["captured_share"], _column("captured_share"), step=1, scales=_allowed),
    "conditions-until-early-stop": _until_early_stop("alignment_share", "orthogonality_share"),
    "neuron-norms": _worst_after_start("largest_neuron_norm"),
    "network-norm": _worst_after_start("weight_norm"),
    "norms-grow": _change("weight_norm", _allowed, ratio=True),
    "one-step-is-not-enough": _change("clean_accuracy", _smallest_scale, ratio=False),
    "fig2-low-overfits": final("noisy_accuracy", _low),
    "fig2-low-drop": _drop,
    "fig2-high-interpolates": _interpolates,
    "fig2-high-accuracy": final("test_accuracy", _high),
    "constant-width": _beyond(
        lambda runs: (
            (runs["width"] == _NARROW_NETWORK) & (runs["init_scale"] <= _SMALL_INIT) & (runs["noise_rate"] <= 0.15)
        )
    ),
    "a-quarter-of-noise": _beyond(
        lambda runs: (
            (runs["width"] >= _NARROW_NETWORK) & (runs["init_scale"] <= _SMALL_INIT) & (runs["noise_rate"] == 0.25)
        )
    ),
    "most-noise-from-small-weights": _beyond(
        lambda runs: (
            (runs["width"] >= _NARROW_NETWORK)
            & (runs["init_scale"] == runs["init_scale"].min())
            & (runs["noise_rate"] == runs["noise_rate"].max())
        )
    ),
    "wider-is-as-good": _contrast("width", "early_clean_test_accuracy", _small_scales, largest_first=True),
    "noise-after-large-weights": _contrast(
        "noise_rate", "early_clean_test_accuracy", lambda sweep: {"init_scale": largest(sweep, "init_scale")}
    ),
    "large-weights-do-not-align": _alignment_contrast,
}
