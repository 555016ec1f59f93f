"""Claims with their own measure: one table confirms the claim, another contradicts it."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.analysis.claims.tables import SEEDS, TableSweep, verdict

BOTH = pytest.mark.parametrize("holds", [True, False])


def expected(holds: bool) -> str:
    return "confirmed" if holds else "not confirmed"


@BOTH
def test_theorem_1_of_xor_clusters_needs_every_point(holds: bool) -> None:
    rows = [{"early_clean_accuracy": 1.0 if holds else 0.999, "early_noisy_accuracy": 0.0}] * 3
    assert verdict("xor-clusters/theorem1", "Theorem 1: at T every", TableSweep(rows)) == expected(holds)


@BOTH
def test_a_network_that_overfits_loses_test_accuracy(holds: bool) -> None:
    rows = [{"dim": 20, "early_test_accuracy": 0.85, "test_accuracy": 0.8 if holds else 0.9}]
    assert verdict("xor-clusters/fig2", "Figure 2, n ≫ d", TableSweep(rows)) == expected(holds)


@BOTH
def test_the_boundary_is_compared_with_the_simple_classifier(holds: bool) -> None:
    side = np.abs(np.linspace(-1, 1, 11))
    output = (side[:, None] - side).ravel() * (1 if holds else -1)
    arrays = pd.DataFrame(
        [{"seed": seed, "step": 100, "metric": "plane_output", "values": output} for seed in range(SEEDS)]
    )
    assert verdict("xor-clusters/fig1", "Figure 1", TableSweep([{}], arrays=arrays)) == expected(holds)


@BOTH
def test_a_larger_sigma_escapes_earlier(holds: bool) -> None:
    rows = [
        {"sigma": sigma, "step_size": 0.1, "full_escape_step": step}
        for sigma, step in ((0.0, math.nan), (0.5, 100.0), (1.0, 50.0 if holds else 200.0))
    ]
    assert verdict("label-noise-sgd/fig1", "Theorem 3.2: with a larger σ", TableSweep(rows)) == expected(holds)


@BOTH
def test_the_slowest_step_size_decides_lemma_3_3(holds: bool) -> None:
    rows = [{"step_size": 0.01, "small_step": 2_000.0}, {"step_size": 0.1, "small_step": 50.0 if holds else 150.0}]
    assert verdict("label-noise-sgd/lemma33", "Lemma 3.3", TableSweep(rows)) == expected(holds)


@BOTH
def test_middle_weights_of_mixup_are_best(holds: bool) -> None:
    rows = [
        {"mixup_weight": weight, "knn_accuracy": 0.6 if (weight == 0.5) == holds else 0.5} for weight in (0.1, 0.5, 0.9)
    ]
    assert verdict("self-labeling/sensitivity", "Beyond", TableSweep(rows)) == expected(holds)


@pytest.mark.parametrize(
    ("experiment", "beginning", "run", "found"),
    [
        ("label-noise-sgd/lemma33", "Lemma 3.3", {"step_size": 0.1, "small_step": 50.0}, "undecided"),
    ],
)  # fmt: skip
def test_a_diverged_run_has_no_value(experiment: str, beginning: str, run: dict[str, Any], found: str) -> None:
    assert verdict(experiment, beginning, TableSweep([run])) == "confirmed"
    assert verdict(experiment, beginning, TableSweep([{**run, "status": "diverged"}])) == found
