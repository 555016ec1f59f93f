"""Means and intervals against slow textbook formulas, and the rules for runs without a value."""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mislabel.sweeps.statistics import (
    Missing,
    cell_table,
    comparable,
    curve_table,
    cut_at,
    first_stops,
    half_width,
    mean,
    measured_frames,
    summaries,
    summary,
    values_at_end,
)

values = st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf])
rows = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 4), values), unique_by=lambda row: row[:2]
)  # cell, seed, value


def slow_summary(group: list[float], confidence: float) -> tuple[float, float, int, float, float]:
    """Mean, standard deviation, count and interval by the textbook formulas."""
    finite = [value for value in group if math.isfinite(value)]
    n = len(finite)
    center = sum(finite) / n if n else math.nan
    if n < 2:
        return center, math.nan, n, math.nan, math.nan
    std = math.sqrt(sum((value - center) ** 2 for value in finite) / (n - 1))
    half = stats.t.ppf(0.5 + confidence / 2, n - 1) * std / math.sqrt(n)
    return center, std, n, center - half, center + half


def runs_table(**columns: Any) -> pd.DataFrame:
    """Runs of one cell, seeds 0, 1, …, trained to step 20,000 unless given otherwise."""
    count = len(next(iter(columns.values())))
    defaults = {"run_id": [f"a-{i}" for i in range(count)], "cell_id": "a", "seed": range(count), "status": "done"}
    return pd.DataFrame({**defaults, "step": 20_000, **columns})


@given(st.lists(values), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_summary_has_the_textbook_mean_and_interval(group: list[float], confidence: float) -> None:
    found = summary(group, confidence=confidence)
    row = (found.mean, found.std, found.n, found.low, found.high)
    assert row == pytest.approx(slow_summary(group, confidence), rel=1e-6, abs=1e-6, nan_ok=True)


@given(rows, st.sampled_from([0.5, 0.95, 0.99]))
def test_each_cell_of_a_table_has_the_summary_of_its_values(
    found: list[tuple[str, int, float]], confidence: float
) -> None:
    table = pd.DataFrame(found, columns=["cell_id", "seed", "loss"]).astype({"seed": "int64", "loss": "float64"})
    out = summaries(table, "loss", ["cell_id"], confidence).set_index("cell_id")
    groups = defaultdict(list)
    for cell, _, loss in found:
        groups[cell].append(loss)
    assert set(out.index) == set(groups)
    for cell, row in zip(out.index, out.itertuples(index=False, name=None), strict=True):
        assert row == pytest.approx(slow_summary(groups[cell], confidence), rel=1e-6, abs=1e-5, nan_ok=True)


def test_the_interval_on_known_numbers() -> None:
    table = pd.DataFrame({"cell_id": list("aaab"), "seed": [0, 1, 2, 0], "loss": [1.0, 2.0, 3.0, 7.0]})
    first, second = summaries(table, "loss", ["cell_id"]).to_dict("records")
    assert {key: first[key] for key in ("mean", "std", "n", "low", "high")} == pytest.approx(
        {"mean": 2, "std": 1, "n": 3, "low": 2 - 2.48414, "high": 2 + 2.48414}, rel=1e-5
    )
    assert (second["mean"], second["n"]) == (7.0, 1)
    assert all(math.isnan(second[key]) for key in ("std", "low", "high"))


@pytest.mark.parametrize(
    ("missing", "center", "n"), [("drop", 0.15, 2), ("poison", math.nan, 2)], ids=["drop", "poison"]
)
def test_a_missing_value_is_left_out_or_makes_the_mean_missing(missing: Missing, center: float, n: int) -> None:
    for gap in (math.nan, math.inf, -math.inf):
        found = summary([0.1, 0.2, gap], missing)
        assert (found.mean, found.n) == pytest.approx((center, n), nan_ok=True)
        assert mean([0.1, 0.2, gap], missing) == pytest.approx(center, nan_ok=True)
        assert math.isnan(found.low) == (missing == "poison")
    assert math.isnan(mean([], missing))


def test_a_mean_has_the_same_bits_in_any_order() -> None:
    assert mean([0.1, 1e16, -1e16, 0.3]) == mean([-1e16, 0.3, 0.1, 1e16]) == 0.1


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(5.0, 2.0, size=(4000, 4))
    table = pd.DataFrame({"cell_id": np.repeat(np.arange(4000), 4), "seed": np.tile(range(4), 4000)})
    out = summaries(table.assign(loss=draws.ravel()), "loss", ["cell_id"], confidence=0.9)
    assert ((out["low"] < 5.0) & (out["high"] > 5.0)).mean() == pytest.approx(0.9, abs=0.015)


def test_joined_cells_have_the_interval_over_seeds() -> None:
    """Cells differ a lot, seeds little. The interval must not contain the difference between cells."""
    table = pd.DataFrame(
        {"cell_id": list("aaabbb"), "seed": [0, 1, 2] * 2, "loss": [1.0, 2.0, 3.0, 101.0, 102.0, 103.0], "x": 0}
    )
    (row,) = summaries(table, "loss", ["x"]).to_dict("records")
    expected = summary([51.0, 52.0, 53.0])  # the mean over cells of each seed
    assert (row["mean"], row["std"], row["n"], row["low"], row["high"]) == pytest.approx(
        (expected.mean, expected.std, expected.n, expected.low, expected.high)
    )


def test_joined_cells_average_within_each_cell_first() -> None:
    """A cell with fewer values has the same weight, and does not look like a difference between seeds."""
    table = pd.DataFrame(
        {"cell_id": list("aaabbb"), "seed": [0, 1, 2] * 2, "loss": [1.0, 1.0, 1.0, 101.0, 101.0, math.nan], "x": 0}
    )
    (row,) = summaries(table, "loss", ["x"]).to_dict("records")
    assert (row["mean"], row["std"], row["n"]) == (51.0, 0.0, 3)


def test_a_diverged_run_is_counted_and_has_no_value() -> None:
    runs = runs_table(loss=[0.5, 9.0, 8.0], status=["done", "diverged", "diverged"], step=[20_000, 10, 10])
    assert values_at_end(runs, "loss").tolist() == pytest.approx([0.5, math.nan, math.nan], nan_ok=True)
    (row,) = cell_table(runs, "loss", ["cell_id"]).to_dict("records")
    assert (row["mean"], row["n"], row["runs"], row["diverged"], row["stopped"]) == (0.5, 1, 3, 2, 0)


def test_a_cell_whose_runs_all_diverged_has_no_mean() -> None:
    (row,) = cell_table(runs_table(loss=[0.5, 9.0], status="diverged"), "loss", ["cell_id"]).to_dict("records")
    assert math.isnan(row["mean"])
    assert (row["n"], row["runs"], row["diverged"]) == (0, 2, 2)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"status": ["done", "diverged"]}, False),
        ({"status": ["done", "stopped"]}, False),
        ({"loss": [1.0, math.nan]}, False),
    ],
)
def test_cells_are_compared_if_all_runs_ended_with_a_value(changes: dict[str, Any], expected: bool) -> None:
    table = cell_table(runs_table(**{"loss": [1.0, 2.0], **changes}), "loss", ["cell_id"])
    assert comparable(table).tolist() == [expected]


def test_runs_are_cut_at_the_step_of_the_first_stop() -> None:
    runs = runs_table(loss=[1.0, 5.0, 4.0], status=["done", "stopped", "stopped"], step=[100, 10, 20])
    stops = first_stops(runs, ["cell_id"])
    assert stops.tolist() == [10, 10, 10]
    frames = pd.DataFrame({"run_id": ["a-0"] * 3 + ["a-2"] * 2, "step": [5, 9, 100, 10, 20], "loss": [3, 2, 1, 6, 4]})
    cut = cut_at(runs, stops, frames, ["loss"])
    assert cut["loss"].tolist() == [2.0, 5.0, 6.0]
    assert cut["step"].tolist() == [10, 10, 10]
    assert first_stops(runs_table(loss=[1.0]), ["cell_id"]).isna().all()


def test_frames_end_before_the_step_at_which_a_run_diverged() -> None:
    frames = pd.DataFrame({"run_id": ["a-0", "a-0", "a-1", "a-1"], "step": [0, 10, 0, 10], "loss": [1.0, 2, 3, 4]})
    runs = runs_table(status=["done", "diverged"], step=[10, 10])
    assert measured_frames(frames, runs)["loss"].tolist() == [1.0, 2.0, 3.0]


def test_a_curve_counts_the_runs_with_a_value_at_each_step() -> None:
    frames = pd.DataFrame(
        {"cell_id": list("aaabb"), "seed": [0, 0, 1, 0, 0], "step": [0, 1, 0, 0, 1], "loss": [1, 2, 3, 4, math.nan]}
    )
    curve = curve_table(frames.assign(x=0), "loss", ["x"])
    assert curve[["step", "runs", "n"]].to_numpy().tolist() == [[0, 3, 2], [1, 1, 1]]


def conditional_runs() -> pd.DataFrame:
    """Two seeds of three cells, not in order. The cell without refinery has no `tau`; no cell has the category `q`."""
    refinery = pd.Categorical(["p", "p", "none", "none", "both", "both"], categories=["none", "p", "q", "both"])
    return runs_table(
        cell_id=[*"bbaacc"], seed=[0, 1] * 3, refinery=refinery, tau=[0.5, 0.5, math.nan, math.nan, 0.1, 0.1],
        loss=[1.0, 3.0, 5.0, 7.0, 9.0, 9.0], step=[10, 20, 30, 30, 40, 40],
        status=["stopped", "stopped", "done", "done", "done", "done"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("by", "keys"),
    [("tau", [0.1, 0.5, None]), ("refinery", ["none", "p", "both"]), ("cell_id", ["a", "b", "c"])],
)
def test_rows_are_sorted_and_include_cells_without_the_parameter(by: str, keys: list[Any]) -> None:
    found = cell_table(conditional_runs(), "loss", [by])
    assert [None if pd.isna(key) else key for key in found[by]] == keys
    means = {0.1: 9.0, 0.5: 2.0, None: 6.0, "none": 6.0, "p": 2.0, "both": 9.0, "a": 6.0, "b": 2.0, "c": 9.0}
    assert found["mean"].tolist() == [means[key] for key in keys]
    last = {9.0: 40, 2.0: 20, 6.0: 30}
    assert found["step"].tolist() == [last[center] for center in found["mean"]]
    assert found["stopped"].tolist() == [2 if center == 2.0 else 0 for center in found["mean"]]
    spread = {9.0: 0.0, 2.0: math.sqrt(2), 6.0: math.sqrt(2)}
    assert found["n"].tolist() == [2, 2, 2]
    assert found["std"].tolist() == pytest.approx([spread[center] for center in found["mean"]])
    assert len(summaries(conditional_runs(), "loss", [by])) == 3


def test_a_table_by_step_has_the_steps_once() -> None:
    found = cell_table(conditional_runs(), "loss", ["cell_id", "step"])
    assert [*zip(found["cell_id"], found["step"], strict=True)] == [("a", 30), ("b", 10), ("b", 20), ("c", 40)]


@pytest.mark.parametrize("by", ["tau", "refinery"])
def test_the_first_stop_is_that_of_the_group(by: str) -> None:
    runs = conditional_runs().assign(status="stopped")
    assert first_stops(runs, [by]).tolist() == [10, 10, 30, 30, 40, 40]


@pytest.mark.parametrize("by", ["tau", "refinery"])
def test_a_curve_includes_cells_without_the_parameter(by: str) -> None:
    found = curve_table(conditional_runs().assign(step=5), "loss", [by])
    assert sorted(found["mean"]) == [2.0, 6.0, 9.0]
    assert found["runs"].tolist() == [2, 2, 2]


def test_a_seed_alone_in_its_cell_does_not_narrow_the_interval_of_a_row() -> None:
    runs = runs_table(cell_id=[*"aab"], seed=[0, 1, 2], x=0, loss=[1.0, 3.0, 9.0])
    (row,) = summaries(runs, "loss", ["x"]).to_dict("records")
    assert (row["mean"], row["n"]) == (5.5, 3)
    assert row["std"] == pytest.approx(math.sqrt(2))  # of the deviations -1 and 1


def test_one_value_has_no_interval() -> None:
    found = half_width(1.0, [1, 2])
    assert [math.isnan(half) for half in found] == [True, False]


def test_the_given_table_is_not_changed() -> None:
    table = runs_table(loss=[math.inf, 1.0])
    before = table.copy()
    cell_table(table, "loss", ["cell_id"])
    pd.testing.assert_frame_equal(table, before)


def test_an_empty_table_has_no_rows() -> None:
    empty = runs_table(loss=[1.0]).head(0)
    assert summaries(empty, "loss", ["cell_id"]).empty
    assert cell_table(empty, "loss", ["cell_id"]).empty
