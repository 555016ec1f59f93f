import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mislabel.analysis.statistics.intervals import summarized

values = st.floats(-1e6, 1e6)
rows = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1), values | st.sampled_from([math.nan, math.inf])))


def slowly(group: list[float], confidence: float) -> tuple[float, float, int, float, float]:
    """Mean, standard deviation, count and interval from the textbook, one value after the other."""
    finite = [value for value in group if math.isfinite(value)]
    n = len(finite)
    mean = sum(finite) / n if n else math.nan
    if n < 2:
        return mean, math.nan, n, math.nan, math.nan
    std = math.sqrt(sum((value - mean) ** 2 for value in finite) / (n - 1))
    half = stats.t.ppf(0.5 + confidence / 2, n - 1) * std / math.sqrt(n)
    return mean, std, n, mean - half, mean + half


@given(rows, st.sampled_from([0.5, 0.95, 0.99]))
def test_each_group_has_the_textbooks_mean_and_interval(found: list[tuple[str, int, float]], confidence: float) -> None:
    table = pd.DataFrame(found, columns=["kind", "level", "loss"]).astype({"level": "int64", "loss": "float64"})
    out = summarized(table, "loss", ["kind", "level"], confidence).set_index(["kind", "level"])
    groups: dict[tuple[str, int], list[float]] = {}
    for kind, level, loss in found:
        groups.setdefault((kind, level), []).append(loss)
    assert set(out.index) == set(groups)
    for key, row in zip(out.index, out.itertuples(index=False, name=None), strict=True):
        assert row == pytest.approx(slowly(groups[key], confidence), rel=1e-6, abs=1e-6, nan_ok=True)


def test_the_interval_on_hand_made_numbers() -> None:
    table = pd.DataFrame({"x": [0, 0, 0, 1], "loss": [1.0, 2.0, 3.0, 7.0]})
    first, second = summarized(table, "loss", ["x"]).to_dict("records")
    assert first == pytest.approx(
        {"x": 0, "mean": 2, "std": 1, "n": 3, "low": 2 - 2.48414, "high": 2 + 2.48414}, rel=1e-5
    )
    assert (second["mean"], second["n"]) == (7.0, 1)
    assert all(math.isnan(second[key]) for key in ("std", "low", "high"))


def test_values_that_are_not_finite_are_left_out_and_counted_out() -> None:
    table = pd.DataFrame({"x": [0] * 4 + [1] * 2, "loss": [1.0, math.nan, 3.0, math.inf, math.nan, -math.inf]})
    first, second = summarized(table, "loss", ["x"]).to_dict("records")
    assert (first["mean"], first["n"]) == (2.0, 2)
    assert second["n"] == 0
    assert math.isnan(second["mean"])


def test_the_table_that_was_given_is_not_changed() -> None:
    table = pd.DataFrame({"x": [0, 0], "loss": [math.inf, 1.0]})
    summarized(table, "loss", ["x"])
    assert table["loss"].tolist() == [math.inf, 1.0]


def test_an_empty_table_has_no_groups() -> None:
    table = pd.DataFrame({"x": pd.Series([], dtype="int64"), "loss": pd.Series([], dtype="float64")})
    assert summarized(table, "loss", ["x"]).empty


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(5.0, 2.0, size=(4000, 4))
    table = pd.DataFrame({"trial": np.repeat(np.arange(4000), 4), "loss": draws.ravel()})
    out = summarized(table, "loss", ["trial"], confidence=0.9)
    assert ((out["low"] < 5.0) & (out["high"] > 5.0)).mean() == pytest.approx(0.9, abs=0.015)
