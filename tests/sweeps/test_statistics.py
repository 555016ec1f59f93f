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

from mislabel.sweeps import statistics
from mislabel.sweeps.seed_means import half_width
from mislabel.sweeps.statistics import (
    Frames,
    Missing,
    at_best_step,
    at_step,
    cell_table,
    comparable,
    curve_table,
    cut_at,
    first_stops,
    last_values,
    mean,
    measured_frames,
    pooled_table,
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


def test_a_pooled_row_equals_a_hand_computation() -> None:
    """Two cells with three seeds: means 2 and 8 give 5. The seeds' means over cells are 4, 4 and 7."""
    runs = runs_table(cell_id=[*"aaabbb"], seed=[0, 1, 2] * 2, x=0, loss=[1.0, 2.0, 3.0, 7.0, 6.0, 11.0])
    (row,) = pooled_table(runs, "loss", ["x"]).to_dict("records")
    half = 4.302653 * math.sqrt(3.0) / math.sqrt(3)  # t(0.975, 2) · std / √n; the variance of 4, 4, 7 is 3
    assert (row["mean"], row["std"]) == pytest.approx((5.0, math.sqrt(3.0)))
    assert (row["low"], row["high"]) == pytest.approx((5.0 - half, 5.0 + half), rel=1e-6)
    assert (row["cells"], row["n"], row["runs"], row["stopped_cells"]) == (2, 3, 6, 0)


def test_more_seeds_of_one_cell_do_not_narrow_the_interval_of_a_row() -> None:
    """A race gives the best cell more seeds. What the other cells have is still five seeds."""
    rng = np.random.default_rng(0)
    effects = rng.normal(size=60)  # of the seeds, the same in all cells
    few = [(f"c{cell}", seed, cell + effects[seed]) for cell in range(20) for seed in range(5)]
    more = [("c0", seed, effects[seed]) for seed in range(5, 60)]
    tables = [pd.DataFrame(rows, columns=["cell_id", "seed", "loss"]).assign(x=0) for rows in (few, few + more)]
    (before,), (after,) = (summaries(table, "loss", ["x"]).to_dict("records") for table in tables)
    assert (before["n"], after["n"]) == (5, 60)
    assert after["high"] - after["low"] > 0.8 * (before["high"] - before["low"])


@pytest.mark.long
def test_a_pooled_interval_covers_the_mean_as_often_as_it_says_with_unequal_seeds() -> None:
    """Ten cells: nine with four seeds, one with twelve. Seeds have an effect that cells share, and one of their own."""
    rng = np.random.default_rng(1)
    cells = np.repeat(np.arange(10), [12] + [4] * 9)
    seeds = np.concatenate([np.arange(12), *[np.arange(4)] * 9])
    covered = []
    for _ in range(1500):
        loss = rng.normal(size=12)[seeds] + rng.normal(size=len(seeds))
        table = pd.DataFrame({"cell_id": cells, "seed": seeds, "x": 0, "loss": loss})
        (row,) = summaries(table, "loss", ["x"]).to_dict("records")
        covered.append(row["low"] < 0 < row["high"])
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)


def test_stopped_cells_are_left_out_of_pooled_rows_and_counted() -> None:
    runs = runs_table(
        cell_id=[*"aabbcc"], seed=[0, 1] * 3, x=[0] * 4 + [1] * 2, loss=[1.0, 3.0, 9.0, 9.0, 5.0, 5.0],
        status=["done", "done", "done", "stopped", "stopped", "stopped"], step=[8000, 8000, 8000, 816, 50, 50],
    )  # fmt: skip
    first, second = pooled_table(runs, "loss", ["x"]).to_dict("records")
    assert (first["mean"], first["step"]) == (2.0, 8000)
    assert (first["cells"], first["stopped_cells"], first["runs"], first["stopped"]) == (1, 1, 4, 1)
    assert math.isnan(second["mean"])
    assert pd.isna(second["step"])
    assert (second["cells"], second["stopped_cells"]) == (0, 1)


def test_a_cell_with_a_run_that_was_stopped_earlier_has_no_value_at_a_step() -> None:
    runs = runs_table(cell_id=[*"aabb"], seed=[0, 1] * 2, loss=9.0, status=["done", "stopped"] * 2, step=[8, 2, 8, 5])
    frames = [Frames(np.repeat(np.arange(4), 2), np.array([1, 5] * 4), np.arange(8.0))]
    found = at_step(runs, frames, "loss", 4)
    assert found["loss"].tolist() == pytest.approx([math.nan, math.nan, 4.0, 6.0], nan_ok=True)
    assert found["status"].tolist() == ["done", "stopped", "done", "done"]
    assert found["step"].tolist() == [4, 2, 4, 4]


@pytest.mark.parametrize(("goal", "step", "expected"), [("minimize", 1, [2.0, 2.0]), ("maximize", 2, [3.0, 4.0])])
def test_the_best_step_is_that_of_the_mean_over_seeds(goal: str, step: int, expected: list[float]) -> None:
    """Seed 0 alone is best elsewhere. The step after which seed 1 was stopped does not count."""
    runs = runs_table(loss=[0.0, 0.0], status=["done", "stopped"], step=[3, 2])
    loss = np.array([1.0, 2.0, 3.0, -9.0, 9.0, 2.0, 4.0])
    frames = [Frames(np.array([0, 0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 3, 0, 1, 2]), loss)]
    if goal == "maximize":
        loss[4] = 0.0
    found = at_best_step(runs, frames, "loss", goal)
    assert found["loss"].tolist() == expected
    assert found["step"].tolist() == [step, step]


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


def frames_of(runs: pd.DataFrame, metric: str = "loss") -> list[Frames]:
    """One frame per run, at its last step."""
    return [Frames(np.arange(len(runs)), runs["step"].to_numpy(), runs[metric].to_numpy(float))]


def test_a_curve_counts_the_runs_with_a_value_at_each_step() -> None:
    runs = runs_table(cell_id=[*"aab"], seed=[0, 1, 0], x=0)
    frames = [
        Frames(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1.0, 2, 3])),
        Frames(np.array([2, 2]), np.array([0, 1]), np.array([4, math.nan])),
    ]
    curve = curve_table(runs, frames, ["x"])
    assert curve[["step", "cells", "runs", "n"]].to_numpy().tolist() == [[0, 2, 3, 2], [1, 1, 1, 1]]


def test_a_curve_says_how_many_runs_were_stopped_before_each_step() -> None:
    runs = runs_table(status=["done", "stopped", "stopped", "diverged"], step=[3, 1, 2, 2])
    at = [(run, step) for run, last in enumerate(runs["step"]) for step in range(last + 1)]
    run, step = (np.array(column) for column in zip(*at, strict=True))
    curve = curve_table(runs, [Frames(run, step, np.ones(len(run)))], ["cell_id"])
    assert curve["stopped"].tolist() == [0, 0, 1, 2]
    assert curve["diverged"].tolist() == [0, 0, 1, 1]
    assert curve["runs"].tolist() == [4, 4, 2, 1]


places = st.dictionaries(st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 10, 10**9])), values, max_size=30)


@pytest.mark.long
@given(places, st.sampled_from(["cell_id", "x"]), st.booleans())
def test_a_curve_is_a_summary_at_each_step(found: dict[tuple[int, int], float], by: str, sparse: bool) -> None:
    """Also if the runs have few steps in common, and if frames come in several parts and in any order."""
    runs = runs_table(cell_id=[*"aabbccdd"], seed=[0, 1] * 4, x=[0] * 6 + [1] * 2, loss=0.0)
    items = [(run, step, value) for (run, step), value in found.items()]
    frames = [Frames(*map(np.array, zip(*part, strict=True))) for part in (items[::2], items[1::2]) if part]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_LARGEST_TABLE", 1 if sparse else 1 << 24)
        patch.setattr(statistics, "_SPARSEST", 0 if sparse else 4)
        curve = curve_table(runs, frames, [by])
    keys = [*zip(curve[by], curve["step"], strict=True)]
    assert keys == sorted({(runs[by][run], step) for run, step, _ in items})
    for step in {step for _, step, _ in items}:
        at_step = {run: value for run, other, value in items if other == step}
        own = runs.iloc[list(at_step)].assign(loss=list(at_step.values()))
        expected = summaries(own, "loss", [by])
        names = [by, "mean", "std", "n", "low", "high"]
        pd.testing.assert_frame_equal(
            curve.loc[curve["step"] == step, names].reset_index(drop=True), expected[names], rtol=1e-9, atol=1e-6
        )


def test_the_last_value_up_to_a_step_is_found_in_any_order() -> None:
    frames = [
        Frames(np.array([0, 1, 0]), np.array([10, 5, 3]), np.array([1.0, 2.0, 3.0])),
        Frames(np.array([0, 1]), np.array([5, 0]), np.array([4.0, 5.0])),
    ]
    assert last_values(frames, np.array([9, 9])).tolist() == [4.0, 2.0]
    assert last_values(frames, np.array([10, 4])).tolist() == [1.0, 5.0]
    assert last_values(frames, np.array([2, -1])).tolist() == pytest.approx([math.nan] * 2, nan_ok=True)


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
    runs = conditional_runs().assign(step=5)
    found = curve_table(runs, frames_of(runs), [by])
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
