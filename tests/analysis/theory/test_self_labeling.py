"""Closed forms and bounds of self-labeling, compared with simulations and limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.theory import self_labeling as theory


def test_the_error_of_refined_labels_is_that_of_a_simulation() -> None:
    alpha, corruption = 0.8, 0.2
    wrong = np.random.default_rng(0).permutation(100) < 100 * corruption
    refined = (1 - alpha) * wrong + alpha * wrong.mean()
    found = np.linalg.norm(refined) / np.linalg.norm(wrong)
    assert theory.refined_over_given_error(alpha, corruption) == pytest.approx(found)
    assert theory.clustered_error(corruption) == pytest.approx(wrong.mean())


def test_the_bound_on_refined_labels_is_a_mean_of_both_errors() -> None:
    assert theory.refined_error_bound(0.75, 0.4, 0.1) == pytest.approx(0.175)
    assert theory.refined_error_bound(0.0, 0.4, 0.1) == pytest.approx(0.4)
    assert theory.refined_error_bound(1.0, 0.4, 0.1) == pytest.approx(0.1)


@given(alpha=st.floats(0.5, 1), share=st.floats(0, 1))
def test_two_classes_are_recovered_below_the_recoverable_corruption(alpha: float, share: float) -> None:
    truth, wrong = -0.5, 0.5
    mean = (1 - share) * truth + share * wrong
    refined = (1 - alpha) * wrong + alpha * mean
    bound = theory.recoverable_corruption(alpha)
    if abs(share - bound) > 1e-9:
        assert (abs(refined - truth) < abs(refined - wrong)) == (share < bound)


def test_with_more_classes_less_can_be_recovered() -> None:
    shares = [theory.recoverable_corruption(0.95, classes) for classes in (2, 3, 5)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] > 0
    assert theory.recoverable_corruption(0.4) == 0
    assert theory.recoverable_corruption(0.0) == 0


@given(separation=st.floats(0.01, 2))
def test_the_error_of_a_clustered_network_is_within_theorem_7(separation: float) -> None:
    corruption = theory.largest_corruption(separation)
    assert theory.clustered_error(corruption, separation) <= theory.clustered_error_bound(corruption)
    assert theory.clustered_error_bound(corruption) == pytest.approx(separation / 8)


@given(separation=st.floats(0.01, 2 / 3 - 0.05))
def test_the_smallest_alpha_of_theorem_2_recovers_labels_that_are_close_to_each_other(separation: float) -> None:
    corruption = theory.largest_corruption(separation)
    assert theory.recoverable_corruption(theory.smallest_alpha(separation)) > corruption


@given(separation=st.floats(2 / 3, 1))
def test_the_smallest_alpha_of_theorem_2_does_not_recover_labels_that_are_far_apart(separation: float) -> None:
    assert theory.recoverable_corruption(theory.smallest_alpha(separation)) == pytest.approx(0, abs=1e-12)


def test_training_takes_longer_with_smaller_eigenvalues_and_larger_alpha() -> None:
    steps = theory.training_steps(0.3, [0.1, 0.2], 0.8, 0.025, 4, 40)
    assert steps[0] == pytest.approx(2 * steps[1])
    by_hand = 40 / (0.3 * 0.2) * math.log(math.sqrt(160 * math.log(4)) / (0.2 * 0.025))
    assert steps[1] == pytest.approx(by_hand)
    assert theory.training_steps(0.3, 0.2, 0.999, 0.025, 4, 40) > steps[1]


def test_bounds_scale_as_printed() -> None:
    assert theory.weight_distance_bound(0.1, 4) == pytest.approx(math.sqrt(4 * math.log(4) / 0.1))
    assert theory.initial_misfit_bound(4) == pytest.approx(math.sqrt(math.log(4)))
    assert theory.largest_radius(0.2, 4, 40, 0.025) == pytest.approx(2 * theory.largest_radius(0.1, 4, 40, 0.025))


def test_the_example_of_theorem_1_has_a_gap_that_grows_with_the_error_of_the_label() -> None:
    given_label, truth = np.array([0.4, 0.4, 0.2]), np.array([0.45, 0.45, 0.1])
    gap = theory.label_risk_gap(given_label, truth)
    # Twice (y*₀ − y₀)·log(y₀/(1 − 2y₀)) as in Appendix C.1. It is negative, because the cross entropy has a minus sign.
    assert gap == pytest.approx(-2 * 0.05 * math.log(2))
    nearer = theory.label_risk_gap(given_label, (given_label + truth) / 2)
    assert abs(nearer) == pytest.approx(abs(gap) / 2)
    lipschitz = np.linalg.norm(np.log(given_label))
    assert abs(gap) <= lipschitz * np.linalg.norm(given_label - truth)
