"""Measures on small tables whose result is known."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from mislabel.analysis.claims.measures import difference, end_over_start, estimates, final, largest, ratio, smallest
from mislabel.analysis.statistics.tables import Where
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.statistics import Frames

RUNS = pd.DataFrame(
    {
        "run_id": ["a-0", "a-1", "a-2", "b-0", "b-1"],
        "cell_id": ["a", "a", "a", "b", "b"],
        "seed": [0, 1, 2, 0, 1],
        "status": "done",
        "step": 100,
        "rate": [0.1, 0.1, 0.1, 0.2, 0.2],
        "error": [0.5, 0.6, 0.9, 0.2, 0.3],
        "bound": [1.0, 1.2, 1.8, 0.8, 1.2],
    }
)


class Stored(Sweep):
    """A sweep with the runs above; each metric's value at step 0 is four times its value at the end."""

    def __init__(self) -> None:
        """The tables are not in a store."""

    def read(self, table: str, columns: Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        frame = RUNS if table == "runs" else RUNS.assign(step=0, error=RUNS["error"] * 4)
        for column, value in (where or {}).items():
            frame = frame[frame[column] == value]
        return frame[list(columns or frame.columns)]

    def frames(self, metric: str, runs: pd.DataFrame, where: Where | None = None) -> list[Frames]:
        found = self.read("curves").set_index("run_id").loc[runs["run_id"]]
        return [Frames(np.arange(len(runs)), found["step"].to_numpy(), found[metric].to_numpy())]


SWEEP = Stored()


def test_final_is_the_mean_over_seeds_at_the_end() -> None:
    found = final("error", {"rate": 0.1})(SWEEP)
    assert (found.mean, found.n) == pytest.approx((2 / 3, 3))


def test_a_difference_uses_the_seeds_that_both_sides_have() -> None:
    found = difference("error", {"rate": 0.1}, {"rate": 0.2})(SWEEP)
    assert (found.mean, found.n) == pytest.approx((0.3, 2))


def test_ratios_are_formed_within_each_seed() -> None:
    assert ratio("error", "bound", {"rate": 0.2})(SWEEP).mean == pytest.approx(0.25)
    found = end_over_start("error", {"rate": 0.1})(SWEEP)
    assert (found.mean, found.low, found.high) == pytest.approx((0.25, 0.25, 0.25))


def test_each_group_has_its_own_estimate() -> None:
    assert [found.n for found in estimates(RUNS["error"], RUNS["rate"])] == [3, 2]


def test_the_extremes_of_a_parameter_are_read_from_the_runs() -> None:
    assert (smallest(SWEEP, "rate"), largest(SWEEP, "rate")) == (0.1, 0.2)
