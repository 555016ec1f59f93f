"""Tables in which a claim about XOR clusters holds, and in which it is contradicted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.theory import xor_clusters as theory
from tests.analysis.claims.tables import SEEDS, TableSweep

Table = Callable[[bool], TableSweep]
SCALES = (0.001, 0.01, 0.1)
LEMMA = {"dim": 200, "width": 400, "spread": 2.0, "noise_rate": 0.15, "step_size": 0.1}


def jitter(value: float, size: float = 1e-3) -> list[float]:
    """Values around this one, one per seed."""
    return list(value * (1 + size * np.linspace(-1, 1, SEEDS)))


def with_curves(runs: Sequence[Mapping[str, Any]], steps: Mapping[int, Sequence[Mapping[str, Any]]]) -> TableSweep:
    """A sweep whose frames at each step have the given metrics, one mapping per run."""
    sweep = TableSweep(runs, varying=[name for name in ("init_scale",) if name in runs[0]])
    frames = [
        {"run_id": str(seed * len(runs) + number), "step": step}
        | {name: value[seed] if isinstance(value, list) else value for name, value in metrics[number].items()}
        for step, metrics in steps.items()
        for seed in range(SEEDS)
        for number in range(len(runs))
    ]
    sweep.tables["curves"] = pd.DataFrame(frames)
    return sweep


def lemma(step: int, right: Mapping[str, Any], wrong: Mapping[str, Any], worst: float = SCALES[0]) -> Table:
    """The metrics of all runs at steps 0 and `step`. In the table that contradicts, one scale has the wrong ones."""

    def table(holds: bool) -> TableSweep:
        runs = [{**LEMMA, "init_scale": scale} for scale in SCALES]
        metrics = [right if holds or scale != worst else wrong for scale in SCALES]
        return with_curves(runs, {0: metrics, step: metrics} if step else {0: metrics, 4: [wrong] * len(SCALES)})

    return table


def final_rows(right: Sequence[Mapping[str, Any]], wrong: Sequence[Mapping[str, Any]], *varying: str) -> Table:
    return lambda holds: TableSweep(right if holds else wrong, varying=varying)


def one_setting(metrics: Mapping[str, Any], wrong: Mapping[str, Any], **settings: Any) -> Table:
    """Two dimensions; in the table that contradicts, the larger one has the wrong metrics."""
    rows = [{"dim": dim, **settings, **metrics} for dim in (100, 400)]
    return final_rows(rows, [rows[0], {**rows[1], **wrong}], "dim")


def boundary(holds: bool) -> TableSweep:
    side = np.abs(np.linspace(-1, 1, 11))
    output = (side[:, None] - side).ravel() * (1 if holds else -1)
    first = {"step": 0, "metric": "plane_output", "values": -output}
    last = {"step": 100, "metric": "plane_output", "values": output}
    arrays = pd.DataFrame([{"seed": seed, **row} for seed in range(SEEDS) for row in (first, last)])
    return TableSweep([{}], arrays=arrays)


def changes(metric: str, start: float, right: float, wrong: float) -> Table:
    """A metric at step 1 and its values at step 4."""

    def table(holds: bool) -> TableSweep:
        runs = [{**LEMMA, "init_scale": scale} for scale in SCALES]
        end = [{metric: jitter(right if holds else wrong)}] * len(runs)
        return with_curves(runs, {1: [{metric: start}] * len(runs), 4: end})

    return table


def norms(metric: str) -> Table:
    """A norm that is within its bound at the last step, but not at the second if the claim does not hold."""

    def table(holds: bool) -> TableSweep:
        runs = [{**LEMMA, "init_scale": scale} for scale in SCALES]
        values = {step: 0.5 * theory.norm_bound(0.1, step) for step in (1, 2, 4)}
        if not holds:
            values[2] = 1.2 * theory.norm_bound(0.1, 2)
        frames = {step: [{metric: jitter(value)}] * len(runs) for step, value in values.items()}
        return with_curves(runs, {0: [{metric: 5.0}] * len(runs), **frames})

    return table


def initial_norms(holds: bool) -> TableSweep:
    """The largest norm is too large at one scale, or only after training."""
    runs = [{**LEMMA, "init_scale": scale} for scale in SCALES]
    ends = [{"smallest_neuron_norm": 0.8 * scale, "largest_neuron_norm": 1.2 * scale} for scale in SCALES]
    trained = [{**end, "largest_neuron_norm": 5.0} for end in ends]
    return with_curves(runs, {0: ends if holds else [*ends[:2], trained[2]], 4: trained})


def stopped_conditions(wrong: str) -> Table:
    """Conditions that fail at step 2, or only after 1/(4·step size), where the lemma says nothing."""

    def table(holds: bool) -> TableSweep:
        runs = [{**LEMMA, "init_scale": scale} for scale in SCALES]
        good = {"alignment_share": 1.0, "orthogonality_share": 1.0}
        bad = {**good, wrong: 0.99}
        return with_curves(
            runs, {step: [bad if step == (3 if holds else 2) else good] * len(runs) for step in (1, 2, 3)}
        )

    return table


def feature_scaling(holds: bool) -> TableSweep:
    rows = [
        {"init_scale": scale, "min_feature_change": jitter(0.2 / scale if holds or scale < 0.1 else 0.5 / scale)}
        for scale in (*SCALES, 1.0)
    ]
    return TableSweep(rows, varying=["init_scale"])


def sample_rate(holds: bool) -> TableSweep:
    rows = [
        {
            "samples": samples, "dim": dim, "spread": spread,
            "early_clean_test_accuracy": [1 - e for e in jitter(0.1 * (20 / samples) ** (0.7 if holds else 0.3))],
        }
        for samples in (20, 80)
        for dim in (100, 400)
        for spread in (0.8, 1.2)
    ]  # fmt: skip
    return TableSweep(rows, varying=["samples", "dim", "spread"])


def sample_excess(holds: bool) -> TableSweep:
    rows = [
        {
            "samples": samples, "spread": spread, "noise_rate": 0.2,
            "early_test_accuracy": jitter(0.8 if holds or samples == 80 else 0.7) if spread == 1.2 else 0.5,
        }
        for samples in (20, 80)
        for spread in (0.8, 1.2)
    ]  # fmt: skip
    return TableSweep(rows, varying=["samples", "spread"])


def figure_2(metric: str, right: float, wrong: float, high: bool) -> Table:
    """Values at the end for n ≫ d or d ≫ n; the other setting has the opposite value."""

    def table(holds: bool) -> TableSweep:
        ends = [jitter(right if holds else wrong), wrong if holds else right]
        return TableSweep(
            [{"dim": dim, metric: end} for dim, end in zip((2000, 16) if high else (16, 2000), ends, strict=True)]
        )

    return table


def drop(holds: bool) -> TableSweep:
    """Frames at step 90, which is the last one up to step 100."""
    runs = [{"dim": dim} for dim in (16, 2000)]
    end = jitter(0.7 if holds else 0.84)
    frames = {0: 0.5, 90: 0.85, 500: end, 1000: end}
    return with_curves(runs, {step: [{"test_accuracy": value}] * 2 for step, value in frames.items()})


def interpolates(holds: bool) -> TableSweep:
    return TableSweep(
        [{"dim": dim, "interpolation_step": 50.0 if holds == (dim == 2000) else np.nan} for dim in (16, 2000)]
    )


def beyond(accuracy: Callable[[Mapping[str, Any], bool], float]) -> Table:
    """A grid over width, noise rate and initialization with this clean test accuracy."""

    def table(holds: bool) -> TableSweep:
        cells = [
            {"width": width, "noise_rate": noise, "init_scale": scale}
            for width in (16, 64, 256)
            for noise in (0.05, 0.15, 0.25, 0.45)
            for scale in (0.01, 0.1, 1.0)
        ]
        rows = [{**cell, "early_clean_test_accuracy": jitter(accuracy(cell, holds))} for cell in cells]
        return TableSweep(rows, varying=["width", "noise_rate", "init_scale"])

    return table


def in_one_cell(**worst: float) -> Table:
    """The claim holds in all cells, or in all but one; the mean over cells stays high."""
    return beyond(lambda cell, holds: 0.9 if not holds and cell.items() >= worst.items() else 1.0)


def alignment_contrast(holds: bool) -> TableSweep:
    scales = (0.001, 1.0)
    shares = [{"alignment_share": jitter(0.95)}, {"alignment_share": jitter(0.2 if holds else 0.8)}]
    runs = [{**LEMMA, "init_scale": scale} for scale in scales]
    return with_curves(runs, {0: [{"alignment_share": 0.1}] * 2, 1: shares, 4: [{"alignment_share": 1.0}] * 2})


def share(step: int, metric: str, right: float, wrong: float) -> Table:
    return lemma(step, {metric: jitter(right)}, {metric: jitter(wrong)})


_EDGE = theory.expected_edge(200, 2.0, 0.15)
_MARGIN, _SUBNETWORK = theory.margin_bound(), theory.subnetwork_margin_bound()
_THEOREM = {"early_clean_accuracy": 1.0, "early_noisy_accuracy": 0.0}

TABLES: dict[str, Table] = {
    "fig1-boundary": boundary,
    "fig1-neurons": final_rows([{"captured_share": jitter(0.99)}], [{"captured_share": jitter(0.8)}]),
    "fig1-training-points": final_rows(
        [{"clean_accuracy": 1.0, "noisy_accuracy": 0.0}], [{"clean_accuracy": 0.999, "noisy_accuracy": 0.0}]
    ),
    "linear-classifiers": one_setting({"linear_test_accuracy": jitter(0.5)}, {"linear_test_accuracy": jitter(0.6)}),
    "theorem1-training-points": one_setting(_THEOREM, {"early_noisy_accuracy": 0.01}),
    "theorem1-test-error": one_setting({"early_test_accuracy": jitter(0.85)}, {"early_test_accuracy": jitter(0.8)}),
    "theorem1-margin": one_setting(
        {"clean_margin": jitter(2 * _MARGIN), "noisy_margin": jitter(-2 * _MARGIN)},
        {"noisy_margin": jitter(-_MARGIN / 2)},
    ),
    "any-small-initialization": lemma(4, _THEOREM, {**_THEOREM, "early_clean_accuracy": 0.99}),
    "sample-size-rate": sample_rate,
    "sample-size-excess": sample_excess,
    "feature-change-scaling": feature_scaling,
    "feature-change-bound": lemma(
        4,
        {"min_feature_change": jitter(20.0)},
        {"min_feature_change": jitter(0.5 * theory.feature_change_bound(0.001))},
    ),
    "initial-norms": initial_norms,
    "correlated-neurons": share(0, "correlated_share", 0.96, 0.7),
    "initial-correlation": share(0, "mean_correlation", theory.initial_correlation(200), 0.1),
    "candidate-neurons": share(0, "candidate_share", 0.9, 0.7),
    "cluster-radius": share(0, "cluster_radius", 1.3, 2.5),
    "first-edge": share(0, "smallest_edge", 0.9 * _EDGE, 0.1 * _EDGE),
    "alignment-share": share(1, "alignment_share", 0.95, 0.8),
    "almost-orthogonality": stopped_conditions("orthogonality_share"),
    "subnetwork-norm": share(4, "weight_norm", 0.1, 1.1),
    "subnetwork-margin": lemma(
        4,
        {"subnetwork_clean_margin": jitter(2 * _SUBNETWORK), "subnetwork_noisy_margin": jitter(-2 * _SUBNETWORK)},
        {"subnetwork_clean_margin": jitter(2 * _SUBNETWORK), "subnetwork_noisy_margin": jitter(2 * _SUBNETWORK)},
    ),
    "alignment-after-one-step": lemma(1, {"alignment_share": 1.0}, {"alignment_share": 0.99}),
    "amplified-correlation": share(1, "captured_share", 0.7, 0.3),
    "conditions-until-early-stop": stopped_conditions("alignment_share"),
    "neuron-norms": norms("largest_neuron_norm"),
    "network-norm": norms("weight_norm"),
    "norms-grow": changes("weight_norm", 0.01, 0.03, 0.011),
    "one-step-is-not-enough": changes("clean_accuracy", 0.6, 1.0, 0.65),
    "fig2-low-overfits": figure_2("noisy_accuracy", 0.9, 0.1, high=False),
    "fig2-low-drop": drop,
    "fig2-high-interpolates": interpolates,
    "fig2-high-accuracy": figure_2("test_accuracy", 0.85, 0.7, high=True),
    "constant-width": in_one_cell(width=64, init_scale=0.1, noise_rate=0.15),
    "a-quarter-of-noise": in_one_cell(width=64, init_scale=0.1, noise_rate=0.25),
    "most-noise-from-small-weights": in_one_cell(width=64, init_scale=0.01, noise_rate=0.45),
    "wider-is-as-good": in_one_cell(width=256, init_scale=0.1, noise_rate=0.05),
    "noise-after-large-weights": beyond(
        lambda cell, holds: 0.6 if cell["noise_rate"] == 0.45 and (holds or cell["width"] < 256) else 0.9
    ),
    "large-weights-do-not-align": alignment_contrast,
}
