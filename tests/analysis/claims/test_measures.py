"""Measures on small tables whose result is known."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from mislabel.analysis.claims.measures import (
    by_cell,
    difference,
    end_over_start,
    final,
    in_every_cell,
    largest,
    ratio,
    smallest,
)
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

    @property
    def varying(self) -> list[str]:
        return ["rate"]

    def read(self, table: str, columns: Sequence[str] | None = None, where: Where | None = None) -> pd.DataFrame:
        frame = RUNS if table == "runs" else RUNS.assign(step=0, error=RUNS["error"] * 4)
        for column, value in (where or {}).items():
            frame = frame[frame[column] == value]
        return frame[list(columns or frame.columns)]

    def frames(self, metric: str, runs: pd.DataFrame, where: Where | None = None) -> list[Frames]:
        found = self.read("curves").set_index("run_id").loc[runs["run_id"]]
        return [Frames(np.arange(len(runs)), found["step"].to_numpy(), found[metric].to_numpy())]


SWEEP = Stored()


def test_final_is_the_value_of_each_seed_at_the_end() -> None:
    found = final("error", {"rate": 0.1})(SWEEP)
    assert found[""].to_dict() == {0: 0.5, 1: 0.6, 2: 0.9}
    assert final("error", lambda sweep: {"rate": largest(sweep, "rate")})(SWEEP)[""].to_dict() == {0: 0.2, 1: 0.3}


def test_a_difference_uses_the_seeds_that_both_sides_have() -> None:
    found = difference("error", {"rate": 0.1}, {"rate": 0.2})(SWEEP)[""]
    assert found.to_dict() == pytest.approx({0: 0.3, 1: 0.3})


def test_ratios_are_formed_within_each_seed() -> None:
    assert list(ratio("error", "bound", {"rate": 0.2})(SWEEP)[""]) == pytest.approx([0.25, 0.25])
    assert list(end_over_start("error", {"rate": 0.1})(SWEEP)[""]) == pytest.approx([0.25, 0.25, 0.25])


def test_a_measure_of_every_cell_has_a_series_for_each() -> None:
    found = in_every_cell(lambda runs: runs["error"] < runs["bound"] / 2, ["error", "bound"])(SWEEP)
    assert {name: list(values) for name, values in found.items()} == {
        "rate 0.1": [False, False, False],
        "rate 0.2": [True, True],
    }
    assert all(values.dtype == bool for values in found.values())


def test_a_missing_value_of_a_seed_makes_the_seed_missing() -> None:
    twice = pd.concat([RUNS, RUNS.assign(error=[np.nan, 1.0, 1.0, 1.0, 1.0])])
    found = by_cell(twice, ["rate"], "error")["rate 0.1"]
    assert list(found.isna()) == [True, False, False]


def test_the_extremes_of_a_parameter_are_read_from_the_runs() -> None:
    assert (smallest(SWEEP, "rate"), largest(SWEEP, "rate")) == (0.1, 0.2)
