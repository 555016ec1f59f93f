"""The closed forms of the paper agree with simulations, limits and numerical integration."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from mislabel.analysis.theory import misclassification as theory

LOSSES: tuple[theory.Loss, ...] = ("hinge", "logistic")


@pytest.mark.long
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("norm", [0.05, 0.5, 4.0])
def test_the_expected_change_is_the_mean_over_many_steps(loss: theory.Loss, norm: float) -> None:
    dim, rate = 5, 0.2
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1_000_000, dim)), rng.choice([-1.0, 1.0], size=1_000_000)
    z = y * norm * x[:, 0]
    slope = (z < 0) * 1.0 if loss == "hinge" else 1 / (1 + np.exp(z))
    moved = np.eye(dim)[0] * norm + rate * (slope * y)[:, None] * x
    change = (moved**2).sum(axis=1) - norm**2
    assert theory.expected_change(norm, dim, rate, loss) == pytest.approx(change.mean(), abs=4 * stats.sem(change))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_large_norm_falls_by_the_rate_over_root_two_pi(loss: theory.Loss) -> None:
    assert theory.fall_per_rate(10.0, 30, 1e-9, loss) == pytest.approx(1 / math.sqrt(2 * math.pi), rel=0.02)


@pytest.mark.parametrize("loss", LOSSES)
def test_at_the_level_the_norm_neither_falls_nor_rises(loss: theory.Loss) -> None:
    found = theory.level(30, 1 / 900, loss)
    assert theory.expected_change(found, 30, 1 / 900, loss) == pytest.approx(0, abs=1e-12)
    assert (
        theory.expected_change(2 * found, 30, 1 / 900, loss) < 0 < theory.expected_change(found / 2, 30, 1 / 900, loss)
    )


def test_the_levels_have_the_orders_of_the_rate_and_of_its_root() -> None:
    for dim, rate in ((30, 1e-6), (100, 1e-7)):
        assert theory.level(dim, rate, "logistic") == pytest.approx(math.sqrt(dim * rate / 2), rel=1e-3)
        assert theory.level(dim, rate, "hinge") == pytest.approx(0.6267 * dim * rate, rel=1e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_neuron_levels_off_below_the_level_of_theorem_2(loss: theory.Loss) -> None:
    for rate in (1e-2, 1e-3, 1e-5):
        assert theory.level(30, rate, loss) < theory.theorem_2_level(30, rate, loss)


def test_the_steps_of_theorem_2_suffice_at_the_largest_fall() -> None:
    norm, rate = 5.0, 1e-3
    assert norm / (rate / math.sqrt(2 * math.pi)) < theory.theorem_2_steps(norm, 30, rate, "hinge")
    ratio = theory.theorem_2_steps(norm, 30, rate / 4, "logistic") / theory.theorem_2_steps(norm, 30, rate, "logistic")
    assert ratio == pytest.approx(8)


@pytest.mark.parametrize(("norm", "bias"), [(1.0, 0.0), (0.3, 0.8), (2.0, 0.5)])
def test_the_decay_with_a_bias_is_the_integral_over_misclassified_inputs(norm: float, bias: float) -> None:
    found = sum(
        integrate.quad(lambda z, sign=sign: z * stats.norm.pdf(z, sign * bias, norm) / 2, -np.inf, 0)[0]
        for sign in (-1, 1)
    )
    assert theory.biased_decay(norm, bias) == pytest.approx(found, abs=1e-8)


def test_the_ideal_network_fires_less_than_printed_and_needs_another_output_bias() -> None:
    dim, epsilon, points = 60, 0.3, 20_000
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(points, dim))
    x[np.arange(points), rng.integers(dim, size=points)] = rng.choice([-1.0, 1.0], size=points)
    hidden = np.maximum(np.abs(x) - (1 - epsilon / 2), 0)  # of a coordinate's two neurons at most one fires
    assert (hidden > 0).sum(axis=1).mean() == pytest.approx(theory.ideal_active_neurons(dim, epsilon), rel=0.02)
    inner = np.maximum(np.abs(x) * (1 - epsilon) - (1 - epsilon / 2), 0)
    assert not inner.any()
    outputs = hidden.sum(axis=1)
    assert outputs.min() >= epsilon / 2 - 1e-12, "an output bias between -ε/2 and 0 separates the cubes"
    assert (outputs < 0.5).any(), "the printed output bias of -0.5 does not"


def test_the_small_rate_of_theorem_4_is_that_of_2k_neurons() -> None:
    assert theory.small_rate(200) == pytest.approx(1 / 100)
