"""Closed forms of XOR clusters agree with simulations, limits and the task."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.theory import xor_clusters as theory
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.xor.conditions import C0
from mislabel.tasks.xor_clusters import Params, _early_step


def test_the_sets_of_neurons_have_the_constant_of_the_task() -> None:
    assert theory.C0 == C0


@given(st.floats(0.001, 4))
def test_the_task_stops_early_at_the_same_step(step_size: float) -> None:
    lanes = Lanes([Params(step_size=step_size, precision="float64")], [0])
    assert theory.early_step(step_size) == int(_early_step(lanes).item())
    assert theory.last_aligned_step(step_size) < theory.early_step(step_size)


@pytest.mark.parametrize(("step_size", "early", "aligned"), [(0.1, 4, 2), (0.05, 6, 5), (0.25, 2, 1)])
def test_steps_that_divide_evenly_are_not_rounded(step_size: float, early: int, aligned: int) -> None:
    assert (theory.early_step(step_size), theory.last_aligned_step(step_size)) == (early, aligned)


def test_a_neurons_first_correlation_is_that_of_random_directions() -> None:
    w = np.random.default_rng(0).normal(size=(200_000, 7))
    cosines = np.abs(w[:, 0]) / np.linalg.norm(w, axis=1)
    assert theory.initial_correlation(7) == pytest.approx(cosines.mean(), rel=0.01)
    assert theory.initial_correlation(2) == pytest.approx(2 / math.pi)
    assert theory.initial_correlation(10**6) * 10**3 == pytest.approx(math.sqrt(2 / math.pi), rel=1e-5)


def test_the_edge_is_that_of_a_simulation() -> None:
    dim, spread, noise_rate = 50, 1.5, 0.2
    rng = np.random.default_rng(0)
    cosine = 1 / (3 * C0 * math.sqrt(dim))
    z = rng.normal(size=2_000_000) * dim ** (-spread / 2)  # along the neuron
    found = (1 - noise_rate) / 4 * ((cosine + z > 0).mean() - (-cosine + z > 0).mean())
    assert theory.expected_edge(dim, spread, noise_rate) == pytest.approx(found, abs=2e-4)
    assert theory.expected_edge(10**9, 3.0, 0.2) == pytest.approx(0.2)


@pytest.mark.parametrize("variance", [0.02, 0.1, 0.5, 4.0])
def test_the_error_of_the_simple_classifier_is_that_of_a_simulation(variance: float) -> None:
    z = np.random.default_rng(0).normal(size=(2, 1_000_000)) * math.sqrt(variance)
    found = (np.abs(1 + z[0]) < np.abs(z[1])).mean()
    assert theory.simple_classifier_error(variance) == pytest.approx(found, abs=0.002)


@given(st.floats(1e-4, 100))
def test_the_error_of_the_simple_classifier_is_below_the_papers_bound(variance: float) -> None:
    error = theory.simple_classifier_error(variance)
    assert 0 <= error <= 0.5
    assert error <= theory.simple_classifier_error_bound(variance)


@given(width=st.integers(10_000, 10**7), c0=st.floats(1.5, 1e6))
def test_the_shares_of_lemmas_3_and_4_approach_one(width: int, c0: float) -> None:
    assert theory.correlated_share_bound(width, c0=c0) <= 1 - 1 / (2 * c0)
    assert theory.candidate_share_bound(c0) <= 1
    assert theory.correlated_share_bound(10**12, c0=1e9) == pytest.approx(1, abs=1e-5)
    assert theory.candidate_share_bound(1e9) == pytest.approx(1)


def test_the_bounds_shrink_as_the_proof_says() -> None:
    # |J^c|/m ≤ 1/(16·C_f²) costs half of the subnetwork's margin, and J loses (1 − 1/C₀)² (Equation 47).
    assert theory.margin_bound() < theory.subnetwork_margin_bound() / 2
    assert theory.feature_change_bound(0.01) == pytest.approx(10 * theory.feature_change_bound(0.1))
    assert theory.norm_bound(0.1, 2.5) == pytest.approx(0.5)
    assert 1.5 * theory.largest_init_scale(0.3) + math.sqrt(2) * 0.3 < theory.norm_bound(0.3, 1)
