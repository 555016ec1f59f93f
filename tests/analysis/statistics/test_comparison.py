"""Comparisons against scipy's tests and against hand computations."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import mislabel
from mislabel.analysis.statistics.comparison import difference, holm
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run


def series(values: list[float], first: int = 0) -> "pd.Series[float]":
    return pd.Series(values, range(first, first + len(values)))


def test_shared_seeds_are_compared_in_pairs() -> None:
    a, b = series([1.0, 2.0, 4.0, 3.0]), series([1.5, 2.4, 4.6, 3.3])
    found = difference(a, b)
    expected = stats.ttest_rel(b, a)
    assert (found.n, found.paired) == (4, True)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))
    # Unpaired, the difference between seeds hides it.
    assert found.p < 0.05 < stats.ttest_ind(a, b).pvalue


def test_other_seeds_are_compared_as_independent_groups() -> None:
    a, b = series([1.0, 2.0, 4.0]), series([3.0, 5.5, 6.0, 9.0], first=10)
    found = difference(a, b)
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert (found.n, found.paired) == (3, False)
    assert found.p == pytest.approx(expected.pvalue)
    assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval()))


def test_only_pairs_with_both_values_count() -> None:
    found = difference(series([1.0, 2.0, math.nan, 5.0]), series([2.0, 3.5, 9.0, math.nan]))
    assert (found.n, found.a, found.b) == (2, 1.5, 2.75)


def test_the_effect_is_the_difference_in_standard_deviations() -> None:
    """Both variances are 1, so d = 2, and Hedges' factor for 4 degrees of freedom is 1 - 3 / 15."""
    assert difference(series([0.0, 1.0, 2.0]), series([2.0, 3.0, 4.0])).effect == pytest.approx(2 * 0.8)


def test_one_pair_has_no_interval() -> None:
    found = difference(series([1.0]), series([2.0]))
    assert (found.difference, found.n) == (1.0, 1)
    assert all(math.isnan(number) for number in (found.low, found.p, found.effect))


@pytest.mark.parametrize(("shift", "p"), [(0.0, 1.0), (1.0, 0.0)])
def test_equal_differences_have_no_spread(shift: float, p: float) -> None:
    found = difference(series([1.0, 2.0]), series([1.0 + shift, 2.0 + shift]))
    assert (found.p, found.low, found.high) == (p, shift, shift)


def test_p_values_are_corrected_by_holm() -> None:
    found = holm(pd.Series([0.01, 0.04, math.nan, 0.03, 0.005]))
    assert found.tolist() == pytest.approx([0.03, 0.06, math.nan, 0.06, 0.02], nan_ok=True)
    assert holm(pd.Series([0.9, 0.8])).tolist() == [1.0, 1.0]


@pytest.mark.long
def test_correction_keeps_false_findings_rare() -> None:
    """Of 300 comparisons of 20 equal cells, about one in twenty finds a difference."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(300):
        p = pd.Series([stats.ttest_1samp(rng.normal(size=5), 0).pvalue for _ in range(20)])
        found += bool((holm(p) < 0.05).any())
    assert found / 300 < 0.09


def test_stopped_and_diverged_runs_have_no_value(store: Store) -> None:
    parameters = {"x": {"values": [0, 1]}, "level": {"values": [1, 2]}, "frames": 9, "spacing": "linear"}
    run(store, parameters=parameters, seeds=3, resources={"pack": 20})
    sweep = mislabel.load(store.address, "bowls")
    cut_short(sweep.files, sweep.read("runs", ["run_id"], {"x": 0, "level": 1, "seed": 0})["run_id"].tolist(), 2)
    sweep = mislabel.load(store.address, "bowls")
    rows = sweep.compare({"x": 0}, {"x": 1}).set_index("level")
    assert rows["missing"].to_dict() == {1: 3, 2: 0}
    assert math.isnan(rows["difference"][1])
    assert rows["n"].to_dict() == {1: 0, 2: 3}
    early = sweep.compare({"x": 0}, {"x": 1}, at=2).set_index("level")
    assert early["missing"].to_dict() == {1: 0, 2: 0}


def test_conditional_parameters_are_matched_where_they_are_inactive(store: Store) -> None:
    parameters = {
        "x": {"values": [0, 1]}, "surface": {"values": ["smooth", "rough"]},
        "level": {"values": [1, 2], "when": "surface == 'rough'"},
    }  # fmt: skip
    run(store, parameters=parameters, seeds=2, resources={"pack": 20})
    rows = mislabel.load(store.address, "bowls").compare({"x": 0}, {"x": 1})
    assert sorted(zip(rows["surface"], rows["level"].fillna(-1), strict=True)) == [
        ("rough", 1), ("rough", 2), ("smooth", -1)
    ]  # fmt: skip
