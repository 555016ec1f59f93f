"""The story of a run of clean-priority learning, read off curves whose story is known."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mislabel.analysis.claims.claim import Region
from mislabel.analysis.claims.clean_priority import _NEEDED, _STORY, _Run, _worst

FRAMES = 31


def curves(peak: int, best: int, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """The residual of the noisy segment is largest at one frame, test error is smallest at another."""
    frame = np.arange(FRAMES)
    jitter = noise * np.random.default_rng(seed).standard_normal(FRAMES)
    told = {name: np.zeros(FRAMES) for name in _NEEDED}
    told["noisy_residual"] = 1 - np.abs(frame - peak) / FRAMES + jitter
    told["test_error"] = np.abs(frame - best) / FRAMES
    told["noisy_error"] = 0.5 + told["noisy_residual"] / 2
    told["alpha"] = 0.4 + frame / FRAMES
    return pd.DataFrame({"step": frame, **told})


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


def test_the_turn_is_where_the_noisy_residual_is_largest_however_single_frames_jump() -> None:
    def turn(table: pd.DataFrame) -> int:
        return int(str(_Run(table).turn.name))

    assert turn(curves(12, 12)) == 12
    turns = [turn(curves(12, 12, noise=0.05, seed=seed)) for seed in range(20)]
    assert abs(np.mean(turns) - 12) < 2
    assert np.std(turns) < 4


def test_the_start_is_read_as_it_was_measured() -> None:
    table = curves(12, 12)
    table.loc[0, "alpha"] = 0.1
    run = _Run(table)
    assert run.first["alpha"] == 0.1
    assert _STORY["alpha grows"](run) == pytest.approx((0.4 + 12 / FRAMES) / 0.1)
    assert run.smooth["alpha"].min() > 0.4


@pytest.mark.parametrize(("peak", "best", "missed"), [(10, 10, 0.0), (20, 10, 0.5), (10, 30, 1.0), (30, 30, 1.0)])
def test_a_minimum_far_from_the_turn_or_at_the_end_is_missed(peak: int, best: int, missed: float) -> None:
    assert _Run(curves(peak, best)).missed() == pytest.approx(missed, abs=0.1)


def test_where_noisy_labels_are_never_learned_their_error_does_not_fall() -> None:
    assert _STORY["noisy error falls"](_Run(curves(30, 10))) == pytest.approx(0)
    assert _STORY["noisy error falls"](_Run(curves(10, 10))) > 0.2


def test_the_worst_cell_decides_and_a_run_that_diverged_leaves_it_undecided() -> None:
    good, bad = curves(10, 10), curves(30, 10)
    holds = Region(low=0.1)
    sweep: Any = Stored([("done", good), ("done", bad), ("done", good), ("done", bad)])
    assert holds.verdict(_worst(sweep, "noisy error falls", holds)) == "not confirmed"
    sweep = Stored([("done", good)] * 4)
    assert holds.verdict(_worst(sweep, "noisy error falls", holds)) == "confirmed"
    sweep = Stored([*[("done", good)] * 3, ("diverged", good)])
    found = _worst(sweep, "noisy error falls", holds)
    assert math.isnan(found.mean)
    assert holds.verdict(found) == "undecided"
