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
def test_the_norm_of_a_neuron_falls_linearly(holds: bool) -> None:
    steps = np.arange(50)
    norm = 1 - steps / 100 if holds else np.exp(-steps / 30) * (1 + 0.3 * np.sin(steps))
    curves = pd.DataFrame(
        [
            {"seed": seed, "step": step, "weight_norm": value, "loss": "hinge"}
            for seed in range(SEEDS)
            for step, value in zip(steps, norm, strict=True)
        ]
    )
    sweep = TableSweep([{"loss": "hinge"}], curves=curves)
    assert verdict("misclassification/fig2", "Theorem 2", sweep) == expected(holds)


@BOTH
def test_deeper_layers_become_sparser(holds: bool) -> None:
    shares = np.linspace(0.5, 0.3 if holds else 0.7, 6)
    arrays = pd.DataFrame(
        [
            {
                "seed": seed, "step": 100, "metric": "layer_active_share",
                "values": shares if smoothing else np.full(6, 0.5), "noise_rate": 0.0, "smoothing": smoothing,
            }
            for seed in range(SEEDS)
            for smoothing in (0.0, 0.1)
        ]
    )  # fmt: skip
    sweep = TableSweep([{}], arrays=arrays)
    claim = "Section 6.4: label smoothing makes deeper"
    assert verdict("misclassification/resnet20", claim, sweep) == expected(holds)


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


@pytest.mark.parametrize(
    ("experiment", "beginning", "run", "found"),
    [
        ("misclassification/theorem4", "Theorem 4: with a learning rate of at least 1",
         {"learning_rate": 1.0, "active_neurons": 0.0}, "not confirmed"),
        ("misclassification/theorem4", "Theorem 4: with a learning rate of at most",
         {"learning_rate": 0.01, "active_share": 0.5}, "undecided"),
        ("label-noise-sgd/lemma33", "Lemma 3.3", {"step_size": 0.1, "small_step": 50.0}, "undecided"),
    ],
)  # fmt: skip
def test_a_diverged_run_has_no_value(experiment: str, beginning: str, run: dict[str, Any], found: str) -> None:
    assert verdict(experiment, beginning, TableSweep([run])) == "confirmed"
    assert verdict(experiment, beginning, TableSweep([{**run, "status": "diverged"}])) == found
