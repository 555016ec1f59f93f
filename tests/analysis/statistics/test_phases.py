"""Phases are found on synthetic curves whose answers are known."""

import math

import numpy as np
import pandas as pd
import pytest

from mislabel.analysis.statistics.phases import crossing, phases, smoothed, turn
from tests.analysis.claims.tables import TableSweep


def curves(values: np.ndarray, steps: np.ndarray | None = None, run: str = "a", metric: str = "m") -> pd.DataFrame:
    return pd.DataFrame({"run_id": run, "step": np.arange(len(values)) if steps is None else steps, metric: values})


def test_a_crossing_between_two_frames_is_interpolated() -> None:
    table = curves(np.array([0.0, 1.0, 4.0, 9.0]), np.array([0, 10, 20, 30]))
    assert crossing(table, "m", 2.5, smooth=False)["a"] == 15
    assert crossing(table, "m", 9.0, smooth=False)["a"] == 30
    assert math.isnan(crossing(table, "m", 10.0, smooth=False)["a"])
    assert crossing(table, "m", -1.0, smooth=False)["a"] == 0
    falling = table.assign(m=-table["m"])
    assert crossing(falling, "m", -2.5, "down", smooth=False)["a"] == 15


def test_a_turn_is_the_top_of_the_curve_and_a_curve_that_rises_to_its_end_has_none() -> None:
    steps = np.arange(0, 121)
    hill = curves(-((steps - 70.0) ** 2))
    assert turn(hill, "m")["a"] == pytest.approx(70, abs=1)
    assert turn(hill.assign(m=-hill["m"]), "m", "lowest")["a"] == pytest.approx(70, abs=1)
    assert math.isnan(turn(curves(steps.astype(float)), "m")["a"])


def test_spikes_do_not_move_a_turn() -> None:
    steps = np.arange(0, 121)
    spiky = -((steps - 40.0) ** 2) / 1600
    spiky[100] += 3.5
    assert turn(curves(spiky), "m", smooth=False)["a"] == 100
    assert turn(curves(spiky), "m")["a"] == pytest.approx(40, abs=6)


def test_the_first_frame_is_not_smoothed() -> None:
    values = pd.Series([5.0, 1.0, 1.0, 1.0])
    assert list(smoothed(values)) == [5.0, 1.0, 1.0, 1.0]


def test_the_table_of_phases_has_an_interval_over_seeds_and_counts_runs_that_get_there() -> None:
    steps = np.arange(0, 101)
    tables = []
    for seed in range(20):
        level = 1.0 / (40 + seed) if seed < 19 else 0.0  # α reaches 1 at step 40 + seed; the last run never does
        tables.append(curves(level * steps, run=str(seed), metric="alpha"))
    sweep = TableSweep([{"width": 8}], varying=["width"], curves=pd.concat(tables))
    table = phases(sweep)
    (row,) = table.to_dict("records")
    assert row["phase"] == "α reaches 1"
    assert (row["width"], row["reached"], row["runs"]) == (8, 19, 20)
    assert math.isnan(row["mean"])
    complete = TableSweep(
        [{"width": 8}],
        varying=["width"],
        curves=pd.concat([*tables[:19], curves(steps / 59, run="19", metric="alpha")]),
    )
    (row,) = phases(complete).to_dict("records")
    exact = np.array([40 + seed for seed in range(20)])
    assert row["mean"] == pytest.approx(exact.mean(), abs=0.5)
    assert row["low"] < exact.mean() < row["high"]
