"""Zhang et al.: On the Learning Dynamics of Two-layer Linear Networks with Label Noise SGD."""

import math

import pandas as pd

from mislabel.analysis.claims.claim import Claim, at_least, at_most, near
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, mean_of, share_of
from mislabel.analysis.sweep import Sweep


def _noisy(sweep: Sweep) -> dict[str, float]:
    """The noisiest setting with the largest step: the one in which both phases are over first."""
    runs = sweep.read("runs", ["sigma", "step_size"])
    return {"sigma": float(runs["sigma"].max()), "step_size": float(runs["step_size"].max())}


def _fall(sweep: Sweep, sigma: float | None = None) -> Estimate:
    """Mean norm at the end over that at the start."""
    where = _noisy(sweep) if sigma is None else {"sigma": sigma}
    return mean_of(at_end(sweep, "mean_norm", where) / at_step(sweep, "mean_norm", 0, where))


def _alignment(sweep: Sweep) -> Estimate:
    return mean_of(at_end(sweep, "mean_alignment", _noisy(sweep)))


def _turn_without_noise(sweep: Sweep) -> Estimate:
    where = {"sigma": 0.0}
    return mean_of(at_end(sweep, "mean_alignment", where) - at_step(sweep, "mean_alignment", 0, where))


def _phases_in_order(sweep: Sweep) -> Estimate:
    """Share of runs in which the neurons leave the lazy regime before they align."""
    where = _noisy(sweep)
    return share_of(at_end(sweep, "full_escape_step", where) < at_end(sweep, "phase_two_step", where))


def _earlier(sweep: Sweep, knob: str) -> Estimate:
    """Steps until all neurons have escaped, larger value over smaller, by seed; the other knob at its largest."""
    largest = _noisy(sweep)
    smaller = sorted(value for value in set(sweep.read("runs", [knob])[knob]) if value > 0)[-2]
    late = at_end(sweep, "full_escape_step", {**largest, knob: smaller})
    return mean_of(at_end(sweep, "full_escape_step", largest) / late)


def _lemma_time(sweep: Sweep) -> Estimate:
    """Steps until the mean squared norm is √η, over the 1/η² of the lemma: the largest mean of any η."""
    runs = sweep.read("runs", ["step_size", "small_step", "lemma_small_step"])
    shares = (runs["small_step"] / runs["lemma_small_step"]).groupby(runs["step_size"])
    return max((mean_of(share) for _, share in shares), key=lambda estimate: estimate.mean)


def _expected_time(sweep: Sweep) -> Estimate:
    """The same steps over the theory's expectation of them."""
    runs = sweep.read("runs", ["small_step", "theory_small_step"])
    return mean_of(runs["small_step"] / runs["theory_small_step"])


def _gentlest(sweep: Sweep) -> dict[str, float]:
    """The smallest step and the largest target, where the lemmas' asymptotics are nearest."""
    runs = sweep.read("runs", ["step_size", "target_norm"])
    return {"step_size": float(runs["step_size"].min()), "target_norm": float(runs["target_norm"].max())}


def _late(sweep: Sweep, metric: str, **where: float) -> pd.Series:
    """The metric's mean over the second half of training, as single steps jitter; by seed, at the largest σ."""
    where = {"sigma": _largest(sweep, "sigma"), **where}
    curves = sweep.read("curves", ["seed", "step", metric], where)
    late = curves[curves["step"] >= curves["step"].max() / 2]
    means: pd.Series = late.groupby("seed")[metric].agg(lambda values: values.mean(skipna=False))
    return means


def _farthest(sweep: Sweep) -> Estimate:
    """The largest distance of any step, at the largest σ.

    In the end both fit the training labels, however different the ways on which they come there.
    """
    curves = sweep.read("curves", ["seed", "plain_train_gap"], {"sigma": _largest(sweep, "sigma")})
    return mean_of(curves.groupby("seed")["plain_train_gap"].agg(lambda values: values.max(skipna=False)))


def _times(larger: pd.Series, smaller: pd.Series) -> Estimate:
    """How many times larger one is than the other, by seed: the geometric mean."""
    log = mean_of((larger / smaller).map(math.log))
    return Estimate(math.exp(log.mean), math.exp(log.low), math.exp(log.high), log.n)


def _noisy_over_plain(sweep: Sweep, metric: str, **where: float) -> Estimate:
    return _times(_late(sweep, f"noisy_{metric}", **where), _late(sweep, f"plain_{metric}", **where))


def _largest(sweep: Sweep, parameter: str) -> float:
    return float(sweep.read("runs", [parameter])[parameter].max())


def _smallest(sweep: Sweep, parameter: str) -> float:
    return float(sweep.read("runs", [parameter])[parameter].min())


def _width_effect(sweep: Sweep) -> Estimate:
    """Change of the kernel without noise: the widest network's over the narrowest's."""
    wide, narrow = _largest(sweep, "width"), _smallest(sweep, "width")
    return _times(_late(sweep, "plain_kernel_change", width=wide), _late(sweep, "plain_kernel_change", width=narrow))


CLAIMS = (
    Claim(
        "label-noise-sgd/fig1",
        "Phase I: with label noise the magnitudes of the weights diminish",
        "mean norm of the neurons at the end over the start",
        at_most(0.5),
        _fall,
    ),
    Claim(
        "label-noise-sgd/fig1",
        "Phase II: the neurons align with the interpolator",
        "mean |cosine| of neurons with θ* at the end; fresh noise keeps it below 1",
        at_least(0.8),
        _alignment,
    ),
    Claim(
        "label-noise-sgd/fig1",
        "Phase I comes before phase II",
        "share of runs in which all neurons have escaped before the mean alignment passes ½",
        at_least(0.6),
        _phases_in_order,
    ),
    Claim(
        "label-noise-sgd/fig1",
        "Without label noise the neurons keep their magnitude",
        "mean norm of the neurons at the end over the start, σ = 0",
        at_least(0.9),
        lambda sweep: _fall(sweep, sigma=0.0),
    ),
    Claim(
        "label-noise-sgd/fig1",
        "Without label noise the neurons do not turn",
        "change of the mean |cosine| with θ*, σ = 0",
        at_most(0.1),
        _turn_without_noise,
    ),
    Claim(
        "label-noise-sgd/fig1",
        "Theorem 3.2: larger σ escapes the lazy regime earlier",
        "escape step with the largest σ over that with the next smaller",
        at_most(1.0),
        lambda sweep: _earlier(sweep, "sigma"),
    ),
    Claim(
        "label-noise-sgd/fig1",
        "Theorem 3.2: larger η escapes the lazy regime earlier",
        "escape step with the larger η over that with the smaller",
        at_most(1.0),
        lambda sweep: _earlier(sweep, "step_size"),
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2: without label noise the network behaves similarly to its linearization",
        "distance of their outputs on training images over the linearization's norm, largest of all steps",
        at_most(0.1),
        _farthest,
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2: on test images too",
        "the same distance on test images, late in training",
        at_most(0.25),
        lambda sweep: mean_of(_late(sweep, "plain_test_gap")),
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2: with label noise it follows a distinctly different trajectory",
        "distance to the linearization on test images, with noise over without",
        at_least(3.0),
        lambda sweep: _noisy_over_plain(sweep, "test_gap"),
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2: that is no mere jitter: it leaves the linearization that is given the same noise, too",
        "distance to that one with noise over distance to the other without, test images",
        at_least(3.0),
        lambda sweep: _times(_late(sweep, "control_test_gap"), _late(sweep, "plain_test_gap")),
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2: label noise induces the rich regime",
        "change of the tangent kernel, with noise over without",
        at_least(1.5),
        lambda sweep: _noisy_over_plain(sweep, "kernel_change"),
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2: with label noise the features are learned, which the lazy regime leaves as they are",
        "change of the tangent kernel with noise, over its norm",
        at_least(0.2),
        lambda sweep: mean_of(_late(sweep, "noisy_kernel_change")),
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2c: with label noise the norm of the first layer diminishes",
        "‖W₁‖_F late in training over that at the start",
        at_most(0.95),
        lambda sweep: mean_of(_late(sweep, "noisy_first_norm_ratio")),
    ),
    Claim(
        "label-noise-sgd/fig2",
        "Figure 2c: without label noise it stays",
        "‖W₁‖_F late in training over that at the start, without noise",
        near(1.0, 0.03),
        lambda sweep: mean_of(_late(sweep, "plain_first_norm_ratio")),
    ),
    Claim(
        "label-noise-sgd/beyond-images",
        "Wider networks are lazier",
        "change of the tangent kernel without noise, widest over narrowest network",
        at_most(0.9),
        _width_effect,
    ),
    Claim(
        "label-noise-sgd/beyond-images",
        "Label noise induces the rich regime, from the NTK's initialization",
        "change of the tangent kernel, with noise over without, largest σ, initialization scale 1",
        at_least(1.5),
        lambda sweep: _noisy_over_plain(sweep, "kernel_change", init_scale=1.0),
    ),
    Claim(
        "label-noise-sgd/beyond-images",
        "Label noise induces the rich regime, from a smaller initialization",
        "the same at the smallest initialization scale, where the network is not lazy without noise",
        at_least(1.5),
        lambda sweep: _noisy_over_plain(sweep, "kernel_change", init_scale=_smallest(sweep, "init_scale")),
    ),
    Claim(
        "label-noise-sgd/beyond-images",
        "With label noise the norm of the first layer diminishes, with dense layers",
        "‖W₁‖_F late in training over that at the start, largest σ, mean over widths and scales",
        at_most(0.95),
        lambda sweep: mean_of(_late(sweep, "noisy_first_norm_ratio")),
    ),
    Claim(
        "label-noise-sgd/lemma33",
        "Lemma 3.3: the mean squared norm falls below √η within 1/η² steps",
        "steps until then over 1/η², largest mean of any η",
        at_most(1.0),
        _lemma_time,
    ),
    Claim(
        "label-noise-sgd/lemma33",
        "Equations 5 and 6: the squared norm shrinks by η^1.5 of itself a step in expectation",
        "steps until √η over ln(1/η)/(2·η^1.5)",
        near(1.0, 0.1),
        _expected_time,
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "label-noise-sgd/lemma34",
        "Lemma 3.4: the neurons align with θ* while they are small",
        "mean |cosine| of neurons with θ* at the end, smallest η, largest ‖θ*‖",
        at_least(0.85),
        lambda sweep: mean_of(at_end(sweep, "mean_alignment", _gentlest(sweep))),
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "label-noise-sgd/lemma34",
        "Lemma 3.5: the network then fits the interpolator",
        "‖θ − θ*‖ at the lemma's time t₃, all settings",
        at_most(0.01),
        lambda sweep: mean_of(at_end(sweep, "converged_distance")),
        theory=lambda sweep: 0.0,
    ),
)
