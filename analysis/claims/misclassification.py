"""Regularization by Misclassification. Claims on a neuron, networks under pure noise, the hypercube and the basis."""

import numpy as np

from analysis.claim import Claim, Region, at_least, at_most, near
from analysis.estimate import Estimate, at_end, at_step, mean_of, share_of
from analysis.sweep import Sweep

_HINGE, _LOGISTIC = {"loss": "hinge"}, {"loss": "logistic"}
_OF_ORDER_ONE = Region(1 / 3, 3)


def _linearity(sweep: Sweep) -> Estimate:
    """Squared correlation of the norm with the step while more than a fifth of it is left, by seed; hinge."""
    curves = sweep.read("curves", ["seed", "step", "weight_norm"], _HINGE)
    squares = []
    for _, run in curves.groupby("seed"):
        falling = run[run["weight_norm"] > run["weight_norm"].iloc[0] / 5]
        squares.append(float(np.corrcoef(falling["step"], falling["weight_norm"])[0, 1] ** 2))
    return mean_of(squares)


def _kept(sweep: Sweep, metric: str, where: dict[str, str]) -> Estimate:
    """What is left of the metric at the end, over the start."""
    return mean_of(at_end(sweep, metric, where) / at_step(sweep, metric, 0, where))


def _largest_layer(sweep: Sweep) -> Estimate:
    """What is left of the layer that keeps most of its norm, by seed, the mean over both losses."""
    left = [at_end(sweep, name) / at_step(sweep, name, 0) for name in ("first_norm", "output_norm")]
    return mean_of(left[0].combine(left[1], max))


def _silent(sweep: Sweep) -> Estimate:
    """Neurons that fire on an input, over all neurons, the mean over both losses."""
    return mean_of(at_end(sweep, "active_share"))


def _all_dead(sweep: Sweep) -> Estimate:
    runs = sweep.read("runs", ["learning_rate", "active_neurons"])
    return share_of(runs.loc[runs["learning_rate"] >= 1, "active_neurons"] == 0)


def _alive(sweep: Sweep) -> Estimate:
    runs = sweep.read("runs", ["learning_rate", "active_share"])
    return mean_of(runs.loc[runs["learning_rate"] <= 0.01, "active_share"])


def _gain(sweep: Sweep, metric: str) -> Estimate:
    """The metric without noise minus that with p = 0.2, by seed."""
    return mean_of(at_end(sweep, metric, {"noise_rate": 0.0}) - at_end(sweep, metric, {"noise_rate": 0.2}))


CLAIMS = (
    Claim(
        "misclassification/fig1",
        "Figure 1: test error 21 % with label noise p = 0.2",
        "test error at the first epoch without training error, p = 0.2",
        near(0.21, 0.04),
        lambda sweep: mean_of(at_end(sweep, "interpolation_test_error", {"noise_rate": 0.2})),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig1",
        "Figure 1: 47 active neurons with label noise p = 0.2",
        "typical number of active neurons at that epoch, p = 0.2",
        near(47, 7),
        lambda sweep: mean_of(at_end(sweep, "interpolation_active_neurons", {"noise_rate": 0.2})),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig1",
        "Figure 1: test error 49 % without label noise",
        "test error at the first epoch without training error, p = 0",
        near(0.49, 0.04),
        lambda sweep: mean_of(at_end(sweep, "interpolation_test_error", {"noise_rate": 0.0})),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig1",
        "Figure 1: 94 active neurons without label noise",
        "typical number of active neurons at that epoch, p = 0",
        near(94, 14),
        lambda sweep: mean_of(at_end(sweep, "interpolation_active_neurons", {"noise_rate": 0.0})),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig1",
        "Label noise yields better test accuracy",
        "test error without noise minus that with p = 0.2",
        at_least(0.02),
        lambda sweep: _gain(sweep, "test_error"),
    ),
    Claim(
        "misclassification/fig1",
        "Label noise yields sparser activation",
        "active neurons without noise minus those with p = 0.2",
        at_least(20),
        lambda sweep: _gain(sweep, "active_neurons"),
    ),
    Claim(
        "misclassification/fig2",
        "Theorem 2: under pure noise the norm of a neuron decays at a linear rate",
        "squared correlation of norm and step while it falls, hinge",
        at_least(0.98),
        _linearity,
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "misclassification/fig2",
        "Figure 2: it levels off near d·h (hinge)",
        "norm at the end over d·h",
        _OF_ORDER_ONE,
        lambda sweep: mean_of(at_end(sweep, "relative_level", _HINGE)),
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "misclassification/fig2",
        "Figure 2: it levels off near d·h (cross entropy)",
        "norm at the end over d·h",
        _OF_ORDER_ONE,
        lambda sweep: mean_of(at_end(sweep, "weight_norm", _LOGISTIC) * 30),
        theory=lambda sweep: 30**0.5,  # at a level of √(d·h), for h = 1/d²
    ),
    Claim(
        "misclassification/fig3",
        "Figure 3: without biases the weights decay to zero (hinge)",
        "norm of the first layer at the end over the start",
        at_most(0.15),
        lambda sweep: _kept(sweep, "first_norm", _HINGE),
    ),
    Claim(
        "misclassification/fig3",
        "Figure 3: without biases the weights decay to zero (cross entropy)",
        "norm of the first layer at the end over the start",
        at_most(0.15),
        lambda sweep: _kept(sweep, "first_norm", _LOGISTIC),
    ),
    Claim(
        "misclassification/fig3",
        "Theorem 1: learning noise lowers the norm of every layer of a homogeneous network",
        "norm at the end over the start, of the layer that keeps most",
        at_most(0.5),
        _largest_layer,
    ),
    Claim(
        "misclassification/fig4",
        "Figure 4: with biases the neurons cease to fire",
        "share of neurons that fire on an input at the end",
        at_most(0.02),
        _silent,
        theory=lambda sweep: 0.0,
    ),
    Claim(
        "misclassification/fig4",
        "Figure 4: the biases turn negative",
        "mean bias at the end",
        at_most(0.0),
        lambda sweep: mean_of(at_end(sweep, "mean_bias")),
    ),
    Claim(
        "misclassification/fig4",
        "Figure 4: the weights do not vanish",
        "norm of the first layer at the end over the start, hinge",
        at_least(0.1),
        lambda sweep: _kept(sweep, "first_norm", _HINGE),
    ),
    Claim(
        "misclassification/theorem4",
        "Theorem 3: after training all outputs are small, |N(e_i)| < m·h",
        "share of inputs for which it holds",
        at_least(0.99),
        lambda sweep: mean_of(at_end(sweep, "bounded_share")),
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "misclassification/theorem4",
        "Theorem 4: for a rate of at least 1 no neuron fires on any input",
        "share of runs in which none does",
        at_least(0.8),
        _all_dead,
        theory=lambda sweep: 1.0,
    ),
    Claim(
        "misclassification/theorem4",
        "Theorem 4: for a rate of at most 1/k about half of the neurons fire on an input",
        "share of neurons that fire on an input",
        near(0.5, 0.05),
        _alive,
        theory=lambda sweep: 0.5,
    ),
    Claim(
        "misclassification/beyond",
        "Label noise yields sparser activation, beyond the paper's settings",
        "active neurons at p = 0 minus p = 0.2, mean over widths, scales and rates",
        at_least(0.0),
        lambda sweep: _gain(sweep, "active_neurons"),
    ),
    Claim(
        "misclassification/beyond",
        "Label noise yields better test accuracy, beyond the paper's settings",
        "test error at p = 0 minus p = 0.2, mean over widths, scales and rates",
        at_least(0.0),
        lambda sweep: _gain(sweep, "test_error"),
    ),
)
