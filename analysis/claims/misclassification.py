"""Regularization by Misclassification. Claims about one neuron, pure noise, the hypercube, basis inputs, and images."""

import math

import numpy as np

from mislabel.analysis.claims.claim import Claim, Claims, Region, Rule, at_least, at_most, full_size, near
from mislabel.analysis.claims.measures import difference, end_over_start, final, trained_runs
from mislabel.analysis.statistics.estimate import Estimate, at_end, at_step, mean_of, share_of
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep

_HINGE, _LOGISTIC = {"loss": "hinge"}, {"loss": "logistic"}
_NO_NOISE, _TENTH, _FIFTH = ({"noise_rate": rate} for rate in (0.0, 0.1, 0.2))
_CLEAN, _SMOOTHED = {"noise_rate": 0.0, "smoothing": 0.0}, {"smoothing": 0.1}
_ON_IMAGES = (("without label noise", "p = 0", _CLEAN), ("with label noise p = 0.1", "p = 0.1", _TENTH))
_SMOOTHING = {"without label smoothing": _CLEAN, "with label smoothing 0.1": _SMOOTHED}
_SAME_ORDER = Region(1 / 3, 3)
# Figure 2's dimension d and learning rate h.
_DIM, _RATE = 30, 30**-2
# Orders of the norm at which a neuron levels off under pure noise: d·h with the hinge loss (Theorem 2), and √(d·h) with
# cross entropy, whose slope at 0 is finite, so that the pull fades as the norm falls.
_HINGE_LEVEL, _LOGISTIC_LEVEL = _DIM * _RATE, math.sqrt(_DIM * _RATE)


def _linearity(sweep: Sweep) -> Estimate:
    """Squared correlation of norm and step for the hinge loss, while more than a fifth of the norm is left."""
    curves = sweep.read("curves", ["seed", "step", "weight_norm"], _HINGE)
    squares = []
    for _, run in curves.groupby("seed"):
        falling = run[run["weight_norm"] > run["weight_norm"].iloc[0] / 5]
        squares.append(float(np.corrcoef(falling["step"], falling["weight_norm"])[0, 1] ** 2))
    return mean_of(squares)


def _logistic_level(sweep: Sweep) -> Estimate:
    return mean_of(at_end(sweep, "weight_norm", _LOGISTIC) / _HINGE_LEVEL)


def _largest_layer(sweep: Sweep) -> Estimate:
    """End over start of the norm, for the layer that keeps most of it; the mean over both losses."""
    left = [at_end(sweep, name) / at_step(sweep, name, 0) for name in ("first_norm", "output_norm")]
    return mean_of(left[0].combine(left[1], max))


def _all_dead(sweep: Sweep) -> Estimate:
    runs = trained_runs(sweep, ["active_neurons"], ["learning_rate"])
    return share_of(runs.loc[runs["learning_rate"] >= 1, "active_neurons"] == 0)


def _alive(sweep: Sweep) -> Estimate:
    runs = trained_runs(sweep, ["active_share"], ["learning_rate"])
    return mean_of(runs.loc[runs["learning_rate"] <= 0.01, "active_share"])


def _deepening(sweep: Sweep) -> Estimate:
    """Correlation, over hidden layers, of depth with the drop of the active share that smoothing causes."""
    clean, smoothed = (_layer_shares(sweep, where) for where in (_CLEAN, _SMOOTHED))
    drops = [clean[seed] - smoothed[seed] for seed in clean]
    return mean_of([float(np.corrcoef(np.arange(len(drop)), drop)[0, 1]) for drop in drops])


def _layer_shares(sweep: Sweep, where: Where) -> dict[int, np.ndarray]:
    arrays = sweep.read("arrays", ["seed", "step", "values"], {**where, "metric": "layer_active_share"})
    last = arrays[arrays["step"] == arrays["step"].max()]
    return {seed: np.array(values) for seed, values in zip(last["seed"], last["values"], strict=True)}


def _numbers_of_figure_1(noise: str, rate: str, where: Where, error: float, neurons: int, within: int) -> Claims:
    return {
        f"Figure 1: {error:.0%} test error {noise}".replace("%", " %"): full_size(
            f"test error at the first epoch without training error, {rate}",
            near(error, 0.04, final("interpolation_test_error", where)),
        ),
        f"Figure 1: {neurons} active neurons {noise}": full_size(
            f"active neurons on a typical input, at the first epoch without training error, {rate}",
            near(neurons, within, final("interpolation_active_neurons", where)),
        ),
    }


CLAIMS = {
    "misclassification/fig1": {
        **_numbers_of_figure_1("with label noise p = 0.2", "p = 0.2", _FIFTH, 0.21, 47, 7),
        **_numbers_of_figure_1("without label noise", "p = 0", _NO_NOISE, 0.49, 94, 14),
        "Figure 1: label noise lowers the test error": Claim(
            "test error, p = 0 minus p = 0.2", at_least(0.02, difference("test_error", _NO_NOISE, _FIFTH))
        ),
        "Figure 1: label noise makes activations sparser": Claim(
            "active neurons, p = 0 minus p = 0.2", at_least(20, difference("active_neurons", _NO_NOISE, _FIFTH))
        ),
    },
    "misclassification/fig2": {
        "Theorem 2: under pure noise the norm of a neuron decays at a linear rate": Claim(
            "squared correlation of norm and step while the norm falls, hinge loss",
            at_least(0.98, _linearity, theory=1.0),
        ),
        "Figure 2: the norm levels off near d·h (hinge loss)": Claim(
            "norm at the end over d·h", Rule(_SAME_ORDER, final("relative_level", _HINGE), theory=1.0)
        ),
        "Figure 2: the norm levels off near d·h (cross entropy)": Claim(
            "norm at the end over d·h",
            Rule(_SAME_ORDER, _logistic_level, theory=_LOGISTIC_LEVEL / _HINGE_LEVEL),
        ),
    },
    "misclassification/fig3": {
        **{
            f"Figure 3: without biases the weights decay to zero ({name})": Claim(
                "norm of the first layer, end over start", at_most(0.15, end_over_start("first_norm", loss))
            )
            for name, loss in (("hinge loss", _HINGE), ("cross entropy", _LOGISTIC))
        },
        "Theorem 1: learning noise lowers the norm of every layer of a homogeneous network": Claim(
            "norm, end over start, of the layer that keeps most of it", at_most(0.5, _largest_layer)
        ),
    },
    "misclassification/fig4": {
        "Figure 4b: with biases the neurons stop firing": Claim(
            "share of neurons that fire on an input at the end", at_most(0.02, final("active_share"), theory=0.0)
        ),
        "Figure 4c: the biases turn negative": Claim("mean bias at the end", at_most(0.0, final("mean_bias"))),
        "Figure 4a: with biases the weights do not decay to zero": Claim(
            "norm of the first layer, end over start, hinge loss", at_least(0.1, end_over_start("first_norm", _HINGE))
        ),
    },
    "misclassification/theorem4": {
        "Theorem 3: after training all outputs are small, |N(e_i)| < m·h": Claim(
            "share of inputs for which this holds", at_least(0.99, final("bounded_share"), theory=1.0)
        ),
        "Theorem 4: with a learning rate of at least 1, no neuron fires on any input": Claim(
            "share of runs in which no neuron fires", at_least(0.8, _all_dead, theory=1.0)
        ),
        "Theorem 4: with a learning rate of at most 1/k, about half of the neurons fire on an input": Claim(
            "share of neurons that fire on an input", near(0.5, 0.05, _alive, theory=0.5)
        ),
    },
    "misclassification/beyond": {
        "Beyond the paper: label noise makes activations sparser in other settings too": Claim(
            "active neurons, p = 0 minus p = 0.2, mean over widths, scales and rates",
            at_least(0.0, difference("active_neurons", _NO_NOISE, _FIFTH)),
        ),
        "Beyond the paper: label noise lowers the test error in other settings too": Claim(
            "test error, p = 0 minus p = 0.2, mean over widths, scales and rates",
            at_least(0.0, difference("test_error", _NO_NOISE, _FIFTH)),
        ),
    },
    "misclassification/fig5": {
        **{
            f"Figure 5: {share * 100:.0f} % of the neurons are active {noise}": full_size(
                f"share of neurons that fire on an image at the end, {rate}",
                near(share, within, final("active_share", where)),
            )
            for (noise, rate, where), share, within in zip(_ON_IMAGES, (0.25, 0.06), (0.03, 0.015), strict=True)
        },
        "Figure 5: label noise makes activations sparser": Claim(
            "active share, p = 0 minus p = 0.1", at_least(0.05, difference("active_share", _CLEAN, _TENTH))
        ),
        "Figure 5: label noise lowers the test error": Claim(
            "test error, p = 0 minus p = 0.1", at_least(0.0, difference("test_error", _CLEAN, _TENTH))
        ),
        "Section 6.5: label smoothing makes activations sparser too": Claim(
            "active share, without smoothing minus with smoothing 0.1",
            at_least(0.02, difference("active_share", _CLEAN, _SMOOTHED)),
        ),
        "Section 6.5: label smoothing generates denser representations than label noise": Claim(
            "active share, smoothing 0.1 minus label noise p = 0.1",
            at_least(0.0, difference("active_share", _SMOOTHED, _TENTH)),
        ),
        **{
            f"Figure 6: {neurons} neurons are associated with a digit {noise}": full_size(
                f"neurons that fire at least twice as often for one digit as for any other, {rate}",
                near(neurons, within, final("class_neurons", where)),
            )
            for (noise, rate, where), neurons, within in zip(_ON_IMAGES, (104, 222), (20, 30), strict=True)
        },
        "Figure 6: with label noise more neurons are associated with a digit": Claim(
            "neurons that are associated with a digit, p = 0.1 minus p = 0",
            at_least(20, difference("class_neurons", _TENTH, _CLEAN)),
        ),
    },
    "misclassification/resnet20": {
        **{
            f"Section 6.4: test accuracy is above 92 % {smoothing}": full_size(
                f"test error at the end, {smoothing}", at_most(0.08, final("test_error", where))
            )
            for smoothing, where in _SMOOTHING.items()
        },
        **{
            f"Section 6.4: {share * 100:.1f} % of the last hidden layer is active {smoothing}": full_size(
                f"share of its 4,096 neurons that fire on an image, {smoothing}",
                near(share, 0.04, final("active_share", where)),
            )
            for (smoothing, where), share in zip(_SMOOTHING.items(), (0.469, 0.275), strict=True)
        },
        "Section 6.4: label smoothing makes the last hidden layer sparser": Claim(
            "active share of the layer, without smoothing minus with smoothing 0.1",
            at_least(0.02, difference("active_share", _CLEAN, _SMOOTHED)),
        ),
        "Section 6.4: label smoothing makes deeper layers sparser than early ones": Claim(
            "correlation of a layer's depth with how much sparser it becomes", at_least(0.0, _deepening)
        ),
    },
    "misclassification/beyond-images": {
        "Beyond the paper: label noise makes activations on images sparser in other settings too": Claim(
            "active share, p = 0 minus p = 0.1, mean over widths, scales, losses and trained layers",
            at_least(0.0, difference("active_share", _NO_NOISE, _TENTH)),
        ),
        "Section 2: label noise makes activations sparser even if only one layer of weights is trained": Claim(
            "active share, p = 0 minus p = 0.1, only the first layer trained",
            at_least(0.02, difference("active_share", _NO_NOISE, _TENTH, trained="first")),
        ),
        "Section 6.4: ten logistic losses make activations sparser than the cross entropy of a softmax": Claim(
            "active share at p = 0.1, softmax minus logistic losses, both layers trained",
            at_least(0.0, difference("active_share", {"loss": "softmax"}, _LOGISTIC, trained="both", noise_rate=0.1)),
        ),
    },
}
