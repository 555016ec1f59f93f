"""Regularization by Misclassification. Claims on a neuron, pure noise, the hypercube, the basis, and images."""

import numpy as np

from mislabel.analysis.claims.claim import Claim, Region, at_least, at_most, near
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, mean_of, share_of
from mislabel.analysis.sweep import Sweep, Where

_HINGE, _LOGISTIC = {"loss": "hinge"}, {"loss": "logistic"}
_OF_ORDER_ONE = Region(1 / 3, 3)
_CLEAN, _NOISY, _SMOOTHED = {"noise_rate": 0.0, "smoothing": 0.0}, {"noise_rate": 0.1}, {"smoothing": 0.1}


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


def _change(sweep: Sweep, metric: str, first: Where, second: Where) -> Estimate:
    """The metric of some runs minus that of others, by seed."""
    return mean_of(at_end(sweep, metric, first) - at_end(sweep, metric, second))


def _deepening(sweep: Sweep) -> Estimate:
    """Correlation over hidden layers of their number with how much sparser smoothing makes them, by seed."""
    shares = [_layer_shares(sweep, where) for where in (_CLEAN, _SMOOTHED)]
    sparser = [shares[0][seed] - shares[1][seed] for seed in shares[0]]
    return mean_of([float(np.corrcoef(np.arange(len(each)), each)[0, 1]) for each in sparser])


def _layer_shares(sweep: Sweep, where: Where) -> dict[int, np.ndarray]:
    arrays = sweep.read("arrays", ["seed", "step", "values"], {**where, "metric": "layer_active_share"})
    last = arrays[arrays["step"] == arrays["step"].max()]
    return {seed: np.array(values) for seed, values in zip(last["seed"], last["values"], strict=True)}


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
    Claim(
        "misclassification/fig5",
        "Figure 5: without label noise 25 % of neurons are active",
        "share of neurons that fire on an image at the end, p = 0",
        near(0.25, 0.03),
        lambda sweep: mean_of(at_end(sweep, "active_share", _CLEAN)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig5",
        "Figure 5: with label noise p = 0.1 only 6 % are",
        "share of neurons that fire on an image at the end, p = 0.1",
        near(0.06, 0.015),
        lambda sweep: mean_of(at_end(sweep, "active_share", _NOISY)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig5",
        "Figure 5: label noise yields sparser activation",
        "active share at p = 0 minus p = 0.1",
        at_least(0.05),
        lambda sweep: _change(sweep, "active_share", _CLEAN, _NOISY),
    ),
    Claim(
        "misclassification/fig5",
        "Figure 5: label noise yields better test accuracy",
        "test error at p = 0 minus p = 0.1",
        at_least(0.0),
        lambda sweep: _change(sweep, "test_error", _CLEAN, _NOISY),
    ),
    Claim(
        "misclassification/fig5",
        "Section 6.5: label smoothing yields sparser activation too",
        "active share without smoothing minus that with 0.1",
        at_least(0.02),
        lambda sweep: _change(sweep, "active_share", _CLEAN, _SMOOTHED),
    ),
    Claim(
        "misclassification/fig5",
        "Section 6.5: label smoothing generates denser representations than label noise",
        "active share with smoothing 0.1 minus that with label noise p = 0.1",
        at_least(0.0),
        lambda sweep: _change(sweep, "active_share", _SMOOTHED, _NOISY),
    ),
    Claim(
        "misclassification/fig5",
        "Figure 6: 104 neurons are associated with a digit without label noise",
        "neurons that fire at least twice as often for some digit as for any other, p = 0",
        near(104, 20),
        lambda sweep: mean_of(at_end(sweep, "class_neurons", _CLEAN)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig5",
        "Figure 6: 222 neurons are associated with a digit with label noise p = 0.1",
        "neurons that fire at least twice as often for some digit as for any other, p = 0.1",
        near(222, 30),
        lambda sweep: mean_of(at_end(sweep, "class_neurons", _NOISY)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/fig5",
        "Figure 6: with label noise more neurons are associated with a digit",
        "such neurons at p = 0.1 minus those at p = 0",
        at_least(20),
        lambda sweep: _change(sweep, "class_neurons", _NOISY, _CLEAN),
    ),
    Claim(
        "misclassification/resnet20",
        "Section 6.4: test accuracy of more than 92 % without label smoothing",
        "test error at the end, without smoothing",
        at_most(0.08),
        lambda sweep: mean_of(at_end(sweep, "test_error", _CLEAN)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/resnet20",
        "Section 6.4: test accuracy of more than 92 % with label smoothing 0.1",
        "test error at the end, smoothing 0.1",
        at_most(0.08),
        lambda sweep: mean_of(at_end(sweep, "test_error", _SMOOTHED)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/resnet20",
        "Section 6.4: 46.9 % of the last hidden layer is active without label smoothing",
        "share of its 4,096 neurons that fire on an image, without smoothing",
        near(0.469, 0.04),
        lambda sweep: mean_of(at_end(sweep, "active_share", _CLEAN)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/resnet20",
        "Section 6.4: 27.5 % of the last hidden layer is active with label smoothing 0.1",
        "share of its 4,096 neurons that fire on an image, smoothing 0.1",
        near(0.275, 0.04),
        lambda sweep: mean_of(at_end(sweep, "active_share", _SMOOTHED)),
        at_any_size=False,
    ),
    Claim(
        "misclassification/resnet20",
        "Section 6.4: label smoothing makes the last hidden layer sparser",
        "its active share without smoothing minus that with 0.1",
        at_least(0.02),
        lambda sweep: _change(sweep, "active_share", _CLEAN, _SMOOTHED),
    ),
    Claim(
        "misclassification/resnet20",
        "Section 6.4: the deeper the layer, the more so",
        "correlation of a layer's number with how much sparser it is",
        at_least(0.0),
        _deepening,
    ),
    Claim(
        "misclassification/beyond-images",
        "Label noise yields sparser activation on images, beyond the paper's settings",
        "active share at p = 0 minus p = 0.1, mean over widths, scales, losses and trained layers",
        at_least(0.0),
        lambda sweep: _change(sweep, "active_share", {"noise_rate": 0.0}, {"noise_rate": 0.1}),
    ),
    Claim(
        "misclassification/beyond-images",
        "Section 2: it does even if only one layer of weights is trained",
        "active share at p = 0 minus p = 0.1, the first layer trained alone",
        at_least(0.02),
        lambda sweep: _change(
            sweep, "active_share", {"noise_rate": 0.0, "trained": "first"}, {"noise_rate": 0.1, "trained": "first"}
        ),
    ),
    Claim(
        "misclassification/beyond-images",
        "Section 6.4: ten logistic losses yield sparser activation than the softmax's cross entropy",
        "active share at p = 0.1 of the softmax minus that of logistic losses, both layers trained",
        at_least(0.0),
        lambda sweep: _change(
            sweep,
            "active_share",
            {"noise_rate": 0.1, "trained": "both", "loss": "softmax"},
            {"noise_rate": 0.1, "trained": "both", "loss": "logistic"},
        ),
    ),
)
