"""Zhang et al.: On the Learning Dynamics of Two-layer Linear Networks with Label Noise SGD."""

import math
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Claim, Measure, at_least, at_most, near
from mislabel.analysis.claims.measures import end_over_start, estimates, final, largest, smallest, trained_runs
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, by_seed, mean_of, share_of
from mislabel.analysis.sweep import Sweep

_NO_NOISE = {"sigma": 0.0}


def _noisiest(sweep: Sweep) -> dict[str, float]:
    """The largest σ and the largest step size: the setting that completes both phases first."""
    return {name: largest(sweep, name) for name in ("sigma", "step_size")}


def _turn_without_noise(sweep: Sweep) -> Estimate:
    start, end = at_step(sweep, "mean_alignment", 0, _NO_NOISE), at_end(sweep, "mean_alignment", _NO_NOISE)
    return mean_of(end - start)


def _phases_in_order(sweep: Sweep) -> Estimate:
    """Share of runs in which the neurons leave the lazy regime before they align."""
    where = _noisiest(sweep)
    return share_of(at_end(sweep, "full_escape_step", where) < at_end(sweep, "phase_two_step", where))


def _earlier(knob: str) -> Measure:
    """Escape step at the knob's largest value over that at the next smaller; the other knob is at its largest."""

    def measure(sweep: Sweep) -> Estimate:
        noisiest = _noisiest(sweep)
        smaller = sorted(value for value in set(sweep.read("runs", [knob])[knob]) if value > 0)[-2]
        late = at_end(sweep, "full_escape_step", {**noisiest, knob: smaller})
        return mean_of(at_end(sweep, "full_escape_step", noisiest) / late)

    return measure


def small_norm_bound(step_size: Any) -> Any:
    """The step by which the mean squared norm is below √η, by Lemma 3.3: 1/η²."""
    return step_size**-2.0


def small_norm_step(step_size: Any) -> Any:
    """The step at which the mean squared norm reaches √η if θ* is small: it starts at 1 and decays as exp(-η^1.5·t)."""
    return -0.5 * np.log(step_size) * step_size**-1.5


def _lemma_time(sweep: Sweep) -> Estimate:
    """Steps until the mean squared norm is √η, over the lemma's 1/η², for the η with the largest mean."""
    runs = trained_runs(sweep, ["small_step"], ["step_size"])
    shares = estimates(runs["small_step"] / small_norm_bound(runs["step_size"]), runs["step_size"])
    return max(shares, key=lambda estimate: estimate.mean)


def _expected_time(sweep: Sweep) -> Estimate:
    """Steps until the mean squared norm is √η, over the theory's expectation."""
    runs = trained_runs(sweep, ["small_step"], ["step_size"])
    return mean_of(runs["small_step"] / small_norm_step(runs["step_size"]))


def _final_alignment(sweep: Sweep) -> Estimate:
    """Alignment for the smallest step and the largest target, which are nearest to the lemma's limit."""
    where = {"step_size": smallest(sweep, "step_size"), "target_norm": largest(sweep, "target_norm")}
    return mean_of(at_end(sweep, "mean_alignment", where))


def _late_values(sweep: Sweep, metric: str, **where: float) -> pd.Series:
    """The metric by seed at the largest σ, averaged over the second half of training because single steps jitter."""
    curves = sweep.read("curves", ["seed", "step", metric], {"sigma": largest(sweep, "sigma"), **where})
    return by_seed(curves[curves["step"] >= curves["step"].max() / 2], metric)


def _late(metric: str) -> Measure:
    return lambda sweep: mean_of(_late_values(sweep, metric))


def _largest_gap(sweep: Sweep) -> Estimate:
    """The largest distance over all steps, at the largest σ.

    At the end the distance says little: both fit the training labels, even if their trajectories differ.
    """
    curves = sweep.read("curves", ["seed", "plain_train_gap"], {"sigma": largest(sweep, "sigma")})
    return mean_of(curves.groupby("seed")["plain_train_gap"].agg(lambda values: values.max(skipna=False)))


def _quotient(numerator: pd.Series, denominator: pd.Series) -> Estimate:
    """The geometric mean over seeds of the quotient."""
    log = mean_of((numerator / denominator).map(math.log))
    return Estimate(math.exp(log.mean), math.exp(log.low), math.exp(log.high), log.n)


def _late_quotient(numerator: str, denominator: str, **where: float) -> Measure:
    return lambda sweep: _quotient(_late_values(sweep, numerator, **where), _late_values(sweep, denominator, **where))


_KERNEL = "noisy_kernel_change", "plain_kernel_change"


def _width_effect(sweep: Sweep) -> Estimate:
    """Change of the kernel without noise: the widest network's over the narrowest's."""
    widths = largest(sweep, "width"), smallest(sweep, "width")
    return _quotient(*(_late_values(sweep, "plain_kernel_change", width=width) for width in widths))


CLAIMS = {
    "label-noise-sgd/fig1": {
        "Figure 1b, phase I: with label noise the neurons' norms diminish": Claim(
            "mean norm of the neurons, end over start",
            at_most(0.5, lambda sweep: end_over_start("mean_norm", _noisiest(sweep))(sweep)),
        ),
        "Figure 1b, phase II: the neurons align with the interpolator θ*": Claim(
            "mean |cosine| of neurons with θ* at the end; fresh noise keeps it below 1",
            at_least(0.8, lambda sweep: mean_of(at_end(sweep, "mean_alignment", _noisiest(sweep)))),
        ),
        "Figure 1b: phase I comes before phase II": Claim(
            "share of runs in which all neurons escape the lazy regime before the mean alignment passes ½",
            at_least(0.6, _phases_in_order),
        ),
        "Section 3.1: without label noise the network stays lazy: the neurons keep their norms": Claim(
            "mean norm of the neurons, end over start, σ = 0", at_least(0.9, end_over_start("mean_norm", _NO_NOISE))
        ),
        "Section 3.1: without label noise the network stays lazy: the neurons do not turn towards θ*": Claim(
            "mean |cosine| of neurons with θ*, end minus start, σ = 0", at_most(0.1, _turn_without_noise)
        ),
        "Theorem 3.2: with a larger σ the neurons escape the lazy regime earlier": Claim(
            "escape step, largest σ over the next smaller σ", at_most(1.0, _earlier("sigma"))
        ),
        "Theorem 3.2: with a larger η the neurons escape the lazy regime earlier": Claim(
            "escape step, larger η over smaller η", at_most(1.0, _earlier("step_size"))
        ),
    },
    "label-noise-sgd/fig2": {
        "Figure 2a: without label noise the network behaves like its linearization on training images": Claim(
            "distance of their outputs over the norm of the linearization's, largest over all steps",
            at_most(0.1, _largest_gap),
        ),
        "Figure 2b: without label noise the network behaves like its linearization on test images": Claim(
            "distance of their outputs over the norm of the linearization's, late in training",
            at_most(0.25, _late("plain_test_gap")),
        ),
        "Figure 2b: with label noise the network follows a distinctly different trajectory": Claim(
            "distance to the linearization on test images, with noise over without",
            at_least(3.0, _late_quotient("noisy_test_gap", "plain_test_gap")),
        ),
        "Figure 2b: the difference is not jitter: it remains if the linearization sees the same noise": Claim(
            "distance to that linearization with noise, over the distance without noise, test images",
            at_least(3.0, _late_quotient("control_test_gap", "plain_test_gap")),
        ),
        "Figure 2: label noise induces the rich regime": Claim(
            "change of the tangent kernel, with noise over without", at_least(1.5, _late_quotient(*_KERNEL))
        ),
        "Figure 2: with label noise the network learns features, which the lazy regime does not": Claim(
            "change of the tangent kernel with noise, over the kernel's norm",
            at_least(0.2, _late("noisy_kernel_change")),
        ),
        "Figure 2c: with label noise the norm of the first layer diminishes": Claim(
            "‖W₁‖_F late in training over ‖W₁‖_F at the start", at_most(0.95, _late("noisy_first_norm_ratio"))
        ),
        "Figure 2c: without label noise the norm of the first layer stays the same": Claim(
            "‖W₁‖_F late in training over ‖W₁‖_F at the start, without noise",
            near(1.0, 0.03, _late("plain_first_norm_ratio")),
        ),
    },
    "label-noise-sgd/beyond-images": {
        "Beyond the paper: wider networks are lazier": Claim(
            "change of the tangent kernel without noise, widest over narrowest network", at_most(0.9, _width_effect)
        ),
        "Beyond the paper: label noise induces the rich regime from the NTK initialization, with dense layers": Claim(
            "change of the tangent kernel, with noise over without, largest σ, initialization scale 1",
            at_least(1.5, _late_quotient(*_KERNEL, init_scale=1.0)),
        ),
        "Beyond the paper: label noise induces the rich regime from a smaller initialization": Claim(
            "the same at the smallest initialization scale, where the network is not lazy even without noise",
            at_least(1.5, lambda s: _late_quotient(*_KERNEL, init_scale=smallest(s, "init_scale"))(s)),
        ),
        "Beyond the paper: with label noise the norm of the first layer diminishes, with dense layers": Claim(
            "‖W₁‖_F late in training over ‖W₁‖_F at the start, largest σ, mean over widths and scales",
            at_most(0.95, _late("noisy_first_norm_ratio")),
        ),
    },
    "label-noise-sgd/lemma33": {
        "Lemma 3.3: the mean squared norm falls below √η within 1/η² steps": Claim(
            "steps until the mean squared norm is below √η, over 1/η², for the η with the largest mean",
            at_most(1.0, _lemma_time),
        ),
        "Equations 5 and 6: in expectation the squared norm shrinks by the factor 1 − η^1.5 per step": Claim(
            "steps until the mean squared norm is below √η, over ln(1/η)/(2·η^1.5)",
            near(1.0, 0.1, _expected_time, theory=1.0),
        ),
    },
    "label-noise-sgd/lemma34": {
        "Lemma 3.4: the neurons align with θ* while they are small": Claim(
            "mean |cosine| of neurons with θ* at the end, smallest η, largest ‖θ*‖",
            at_least(0.85, _final_alignment, theory=1.0),
        ),
        "Lemma 3.5: after the alignment the network converges to the interpolator θ*": Claim(
            "‖θ − θ*‖ at the lemma's time t₃, all settings", at_most(0.01, final("converged_distance"), theory=0.0)
        ),
    },
}
