"""The learning dynamics of a run, read from curves whose dynamics are known."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mislabel.analysis.claims.claim import Region
from mislabel.analysis.claims.clean_priority import _CURVES, _DYNAMICS, _Run, _worst_cell

FRAMES = 31


def curves(peak: int, best: int, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Curves with the largest noisy residual at frame `peak` and the smallest test error at frame `best`."""
    frame = np.arange(FRAMES)
    jitter = noise * np.random.default_rng(seed).standard_normal(FRAMES)
    values = {name: np.zeros(FRAMES) for name in _CURVES}
    values["noisy_residual"] = 1 - np.abs(frame - peak) / FRAMES + jitter
    values["test_error"] = np.abs(frame - best) / FRAMES
    values["noisy_error"] = 0.5 + values["noisy_residual"] / 2
    values["alpha"] = 0.4 + frame / FRAMES
    return pd.DataFrame({"step": frame, **values})


class Stored:
    """A sweep whose tables are given."""

    def __init__(self, runs: Sequence[tuple[str, pd.DataFrame]]) -> None:
        names = [f"run{i}" for i in range(len(runs))]
        self._runs = pd.DataFrame({"run_id": names, "status": [status for status, _ in runs]})
        parts = [
            table.assign(run_id=name, cell_id=f"cell{i % 2}", seed=i // 2)
            for i, (name, (_, table)) in enumerate(zip(names, runs, strict=True))
        ]
        self._curves = pd.concat(parts)

    def read(self, table: str, columns: Sequence[str], where: Mapping[str, Any] | None = None) -> pd.DataFrame:
        return (self._runs if table == "runs" else self._curves)[list(columns)]


def test_the_turning_point_has_the_largest_noisy_residual_even_if_single_frames_jump() -> None:
    def turn(table: pd.DataFrame) -> int:
        return int(str(_Run(table).turn.name))

    assert turn(curves(12, 12)) == 12
    turns = [turn(curves(12, 12, noise=0.05, seed=seed)) for seed in range(20)]
    assert abs(np.mean(turns) - 12) < 2
    assert np.std(turns) < 4


def test_the_start_is_not_smoothed() -> None:
    table = curves(12, 12)
    table.loc[0, "alpha"] = 0.1
    run = _Run(table)
    assert run.first["alpha"] == 0.1
    assert _DYNAMICS["in the early stage α grows (Theorem 4.5)"].value(run) == pytest.approx((0.4 + 12 / FRAMES) / 0.1)
    assert run.smooth["alpha"].min() > 0.4


@pytest.mark.parametrize(("peak", "best", "excess"), [(10, 10, 0.0), (20, 10, 0.5), (10, 30, 1.0), (30, 30, 1.0)])
def test_excess_test_error_is_large_if_the_minimum_is_far_from_the_turning_point_or_at_the_end(
    peak: int, best: int, excess: float
) -> None:
    assert _Run(curves(peak, best)).excess_test_error() == pytest.approx(excess, abs=0.1)


def test_noisy_error_does_not_fall_if_noisy_labels_are_never_learned() -> None:
    assert _DYNAMICS["later the noisy error falls too"].value(_Run(curves(30, 10))) == pytest.approx(0)
    assert _DYNAMICS["later the noisy error falls too"].value(_Run(curves(10, 10))) > 0.2


def test_the_worst_cell_decides_and_a_diverged_run_makes_it_undecided() -> None:
    good, bad = curves(10, 10), curves(30, 10)
    holds, falls = Region(low=0.1), _DYNAMICS["later the noisy error falls too"].value
    sweep: Any = Stored([("done", good), ("done", bad), ("done", good), ("done", bad)])
    assert holds.verdict(_worst_cell(sweep, falls, holds)) == "not confirmed"
    sweep = Stored([("done", good)] * 4)
    assert holds.verdict(_worst_cell(sweep, falls, holds)) == "confirmed"
    sweep = Stored([*[("done", good)] * 3, ("diverged", good)])
    found = _worst_cell(sweep, falls, holds)
    assert math.isnan(found.mean)
    assert holds.verdict(found) == "undecided"
