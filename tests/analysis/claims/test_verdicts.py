"""Claims with their own measure: one table confirms the claim, another contradicts it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.analysis.claims.tables import SEEDS, TableSweep, verdict

BOTH = pytest.mark.parametrize("holds", [True, False])


def expected(holds: bool) -> str:
    return "confirmed" if holds else "not confirmed"


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
def test_middle_weights_of_mixup_are_best(holds: bool) -> None:
    rows = [
        {"mixup_weight": weight, "knn_accuracy": 0.6 if (weight == 0.5) == holds else 0.5} for weight in (0.1, 0.5, 0.9)
    ]
    assert verdict("self-labeling/sensitivity", "Beyond", TableSweep(rows)) == expected(holds)


@pytest.mark.parametrize(
    ("experiment", "beginning", "run", "found"),
    [
        ("misclassification/theorem4", "Theorem 4: with a learning rate of at least 1",
         {"learning_rate": 1.0, "active_neurons": 0.0}, "not confirmed"),
        ("misclassification/theorem4", "Theorem 4: with a learning rate of at most",
         {"learning_rate": 0.01, "active_share": 0.5}, "undecided"),
    ],
)  # fmt: skip
def test_a_diverged_run_has_no_value(experiment: str, beginning: str, run: dict[str, Any], found: str) -> None:
    assert verdict(experiment, beginning, TableSweep([run])) == "confirmed"
    assert verdict(experiment, beginning, TableSweep([{**run, "status": "diverged"}])) == found
