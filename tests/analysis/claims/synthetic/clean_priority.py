"""Tables in which a claim about clean-priority learning holds, or does not."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from mislabel.analysis.theory import clean_priority as theory
from tests.analysis.claims.tables import SEEDS, TableSweep

Tables = Callable[[bool], TableSweep]
FRAME = np.arange(31)
PEAK = 15


def hill(start: float, middle: float, end: float) -> np.ndarray:
    """A curve that is piecewise linear between the first frame, frame PEAK and the last frame."""
    return np.interp(FRAME, [0, PEAK, FRAME[-1]], [start, middle, end])


def flat(value: float) -> np.ndarray:
    return np.full(len(FRAME), value)


def wave(size: float) -> np.ndarray:
    return size * np.sin(FRAME * 2 * np.pi / 10)


DYNAMICS = {
    "clean_error": hill(0.5, 0.05, 0.0),
    "noisy_error": hill(0.5, 0.95, 0.5),
    "clean_residual": hill(0.5, 0.25, 0.1),
    "noisy_residual": hill(0.5, 0.75, 0.4),
    "clean_loss": hill(0.7, 0.3, 0.1),
    "noisy_loss": hill(0.7, 1.3, 0.6),
    "test_error": hill(0.5, 0.05, 0.2),
    "alpha": hill(3 / 7, 1.1, 1.5),
    "full_alpha": hill(3 / 7, 1.1, 1.5),
    "mean_angle": flat(3.0),
    "full_angle": flat(3.0),
    "clean_gradient": hill(1.0, 0.4, 0.3),
    "noisy_gradient": hill(0.4, 0.8, 0.5),
}
EARLY = np.minimum(0.4 + 0.3 * FRAME, 2.0)
"""A ratio that reaches 1 long before the turn."""


def dynamics(holds: bool, **wrong: np.ndarray) -> TableSweep:
    """Two widths. If the claim does not hold, the second one has wrong curves."""
    rows = [{"width": width, "noise_rate": 0.3, "classes": "7, 9"} for width in (32, 64)]
    sweep = TableSweep(rows, varying=["width"])
    tables = []
    for run, width in sweep.read("runs", ["run_id", "width"]).itertuples(index=False):
        values = {**DYNAMICS, **({} if holds or width == 32 else wrong)}
        tables.append(pd.DataFrame({"run_id": run, "step": 100 * FRAME, **values}))
    sweep.tables["curves"] = pd.concat(tables)
    return sweep


def curves(**wrong: np.ndarray) -> Tables:
    return lambda holds: dynamics(holds, **wrong)


def networks(holds: bool, activation: str, right: Mapping[str, float], wrong: Mapping[str, float]) -> TableSweep:
    """Two depths. If the claim does not hold, the second one has wrong metrics."""
    rows = [
        {"activation": activation, "hidden_layers": depth, "width": 512, "angles": 181}
        | {"cluster_angle": math.pi / 2, "spread": 0.1}
        | dict(wrong if depth == 2 and not holds else right)
        for depth in (1, 2)
    ]
    return TableSweep(rows, varying=["hidden_layers"])


def metric(name: str, right: float, wrong: float, activation: str = "relu") -> Tables:
    return lambda holds: networks(holds, activation, {name: right}, {name: wrong})


def slopes(holds: bool) -> TableSweep:
    rows = [
        {"activation": "relu", "hidden_layers": depth, "width": 512, "small_angle_slope": depth / (2 * np.pi) * factor}
        for depth, factor in ((1, 1.0), (2, 1.0 if holds else 1.3))
    ]
    return TableSweep(rows, varying=["hidden_layers"])


def widths(holds: bool) -> TableSweep:
    power = -0.5 if holds else -0.1
    rows = [
        {"activation": "relu", "hidden_layers": depth, "width": width, "mean_deviation": width**power}
        for depth, width in itertools.product((1, 2), (128, 512, 2048))
    ]
    return TableSweep(rows, varying=["hidden_layers", "width"])


def gaps(holds: bool) -> TableSweep:
    rows = [
        {"hidden_layers": depth, "cluster_angle": 1.5, "spread": 0.1, "within_angle": 0.2}
        | {"between_angle": 0.2 + (1.0 if holds else 0.5) * theory.cluster_gap(depth, 1.5, 0.1)}
        for depth in (2, 3)
    ]
    return TableSweep(rows, varying=["hidden_layers"])


def circles(holds: bool) -> TableSweep:
    theta = np.linspace(0, np.pi, 19)
    values = {"theta_d": theta, "theta_h": theta * (0.9 if holds else 1.2)}
    rows = [
        {"run_id": str(seed), "step": 0, "metric": name, "values": each}
        for seed in range(SEEDS)
        for name, each in values.items()
    ]
    run = {"hidden_layers": 2, "width": 512, "activation": "relu"}
    return TableSweep([run], varying=["hidden_layers"], arrays=pd.DataFrame(rows))


def samples(holds: bool, **wrong: float) -> TableSweep:
    """θ_g of two classes in degrees. If the claim does not hold, the second class has wrong angles."""
    right = {"clean_angles": 30.0, "noisy_angles": 150.0, "other_angles": 90.0, "class_others_angle": 90.0}
    sizes = {"class_others_angle": 1}
    rows: list[dict[str, Any]] = []
    for seed, name in itertools.product(range(SEEDS), right):
        second = right[name] if holds else wrong.get(name, right[name])
        degrees = np.repeat([right[name], second], sizes.get(name, 5))
        rows.append({"seed": seed, "step": 0, "metric": name, "values": np.radians(degrees)})
    return TableSweep([{"classes": "7, 9"}], arrays=pd.DataFrame(rows))


def angles(**wrong: float) -> Tables:
    return lambda holds: samples(holds, **wrong)


_PAPER: dict[str, Tables] = {
    "relu-angles": metric("max_deviation", 0.05, 0.3),
    "linear-angles": metric("max_deviation", 0.05, 0.3, "linear"),
    "small-angles": metric("neighbour_angle", 0.1, 0.5),
    "angles-grow": metric("rising_share", 1.0, 0.8),
    "angles-below-90": circles,
    "infinite-width": widths,
    "feature-angles": metric("max_feature_deviation", 0.05, 0.3),
    "slope-at-small-angles": slopes,
    "cluster-gap": gaps,
    "clusters-separated": metric("separated_share", 0.99, 0.8),
    "opposite-at-start": curves(mean_angle=flat(2.0)),
    "loss-gradients-opposite-at-start": curves(full_angle=flat(2.0)),
    "opposite-at-turn": curves(mean_angle=hill(3.0, 1.5, 1.5)),
    "alpha-at-start": curves(alpha=flat(0.9)),
    "clean-samples-at-small-angles": angles(clean_angles=80.0),
    "noisy-samples-at-large-angles": angles(noisy_angles=100.0),
    "angles-symmetric": angles(noisy_angles=120.0),
    "other-samples-beyond-clean": angles(other_angles=20.0),
    "other-samples-before-noisy": angles(other_angles=170.0),
    "other-gradient-orthogonal-part": angles(class_others_angle=5.0),
    "noisy-loss-rises-below-alpha-1": curves(full_alpha=flat(0.5)),
    "alpha-grows": curves(alpha=flat(0.4)),
    "alpha-monotone": curves(alpha=hill(0.5, 1.1, 1.5) + wave(0.4)),
    "clean-gradient-shrinks": curves(clean_gradient=flat(1.0)),
    "noisy-gradient-grows": curves(noisy_gradient=flat(0.4)),
    "alpha-reaches-1": curves(alpha=flat(0.5)),
    "alpha-1-at-turn": curves(alpha=EARLY),
    "loss-alpha-reaches-1": curves(full_alpha=flat(0.5)),
    "loss-alpha-1-at-turn": curves(full_alpha=EARLY),
    "clean-error-falls": curves(clean_error=hill(0.5, 0.4, 0.0)),
    "noisy-error-rises": curves(noisy_error=hill(0.5, 0.6, 0.3)),
    "noisy-error-falls-later": curves(noisy_error=hill(0.5, 0.95, 0.94)),
    "clean-residual-falls": curves(clean_residual=hill(0.5, 0.47, 0.1)),
    "noisy-residual-rises": curves(noisy_residual=hill(0.5, 0.53, 0.4)),
    "noisy-residual-monotone": curves(noisy_residual=hill(0.5, 0.75, 0.4) + wave(0.2)),
    "test-error-lowest-at-turn": curves(test_error=hill(0.5, 0.3, 0.05)),
    "clean-loss-falls": curves(clean_loss=hill(0.7, 0.65, 0.1)),
    "noisy-loss-rises": curves(noisy_loss=hill(0.7, 0.75, 0.6)),
    "noisy-loss-falls-later": curves(noisy_loss=hill(0.7, 1.3, 1.3)),
}
_PAPER["noisy-loss-turns-at-minus-cosine"] = curves(full_alpha=flat(0.5))
_BEYOND = (
    "clean-error-falls", "noisy-error-rises", "noisy-error-falls-later", "alpha-at-start", "alpha-grows",
    "alpha-reaches-1", "alpha-1-at-turn", "test-error-lowest-at-turn",
)  # fmt: skip
TABLES: dict[str, Tables] = {**_PAPER, **{f"beyond-{name}": _PAPER[name] for name in _BEYOND}}
