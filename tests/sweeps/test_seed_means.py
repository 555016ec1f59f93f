import math

import numpy as np
import pandas as pd
import pytest

from mislabel.sweeps.seed_means import Rows, half_width
from mislabel.sweeps.statistics import summary


def test_rows_have_the_summaries_of_their_runs_whatever_the_sizes_of_cells() -> None:
    rng = np.random.default_rng(0)
    for sizes in ([3, 3, 3], [1, 4, 2]):
        cells = np.repeat([*"abc"], sizes)
        runs = pd.DataFrame({"cell_id": cells, "seed": np.concatenate([np.arange(size) for size in sizes])})
        order = rng.permutation(len(runs))
        values = rng.normal(size=(len(runs), 3))
        rows = Rows(runs.iloc[order].reset_index(drop=True), ["cell_id"])
        found = rows.summary(values[order][rows.order])
        for i, cell in enumerate("abc"):
            for column in range(3):
                expected = summary(values[cells == cell, column])
                numbers = [found[name][i, column] for name in expected._fields]
                assert numbers == pytest.approx(list(expected), nan_ok=True)


def test_many_columns_are_summarized_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(6, 50))
    runs = pd.DataFrame({"cell_id": [*"aabbcc"], "seed": [0, 1] * 3, "x": [0, 0, 0, 0, 1, 1]})
    for by in ("cell_id", "x"):
        whole = Rows(runs, [by]).summary(values)
        with monkeypatch.context() as patch:
            patch.setattr("mislabel.sweeps.seed_means._VALUES_AT_ONCE", 40)
            parts = Rows(runs, [by]).summary(values)
        for name in whole:
            np.testing.assert_array_equal(whole[name], parts[name])


def test_whole_and_fractional_numbers_of_seeds_have_the_same_interval() -> None:
    whole, fractional = half_width(2.0, np.array([0, 1, 2, 7])), half_width(2.0, np.array([0.0, 1.0, 2.0, 7.0]))
    np.testing.assert_allclose(whole, fractional)
    assert math.isnan(whole[1])
