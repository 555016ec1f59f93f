from typing import Any

import pandas as pd
import pytest

from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.store import Store
from tests.bowls import curves_of, prepared, run, runs_of

# The bottom is at 3, and the level does not count: two cells are equally good, the other two far off.
PARAMETERS: dict[str, Any] = {"x": {"values": [3.0, 9.0]}, "level": {"values": [1, 2]}}
RACE: dict[str, Any] = {"parameters": PARAMETERS, "seeds": {"count": 3, "up_to": 12}}


def seeds_of_cells(launch: Launch, by: str = "x") -> dict[Any, list[int]]:
    """How many seeds the cells have, for each value of a parameter."""
    counts = runs_of(launch.files).groupby([by, "cell_id"]).size()
    return {value: sorted(counts[value]) for value in counts.index.get_level_values(by).unique()}


def test_contenders_of_a_grid_get_more_seeds_and_losers_do_not(store: Store) -> None:
    launch = run(store, **RACE)
    assert seeds_of_cells(launch) == {3.0: [12, 12], 9.0: [3, 3]}
    progress = launch.driver.progress
    assert (progress.runs, progress.done, progress.statuses["done"]) == (30, 30, 30)
    assert launch.driver.over


def test_a_race_that_was_broken_off_goes_on_and_ends_as_an_undisturbed_one(store: Store, tmp_path: Any) -> None:
    undisturbed = run(Store(str(tmp_path / "other")), **RACE)

    def stop(launch: Launch) -> None:
        launch.driver.stop("interrupted")

    launches = 0
    while not (launch := prepared(store, **RACE)).complete:
        launches += 1
        run(store, stop, **RACE)
    assert launches > 3
    pd.testing.assert_frame_equal(runs_of(launch.files), runs_of(undisturbed.files))
    pd.testing.assert_frame_equal(curves_of(launch.files), curves_of(undisturbed.files))


def test_nothing_is_run_when_the_race_is_over(store: Store) -> None:
    run(store, **RACE)
    assert prepared(store, **RACE).complete


def test_a_larger_limit_continues_the_race(store: Store) -> None:
    run(store, **RACE)
    launch = run(store, **{**RACE, "seeds": {"count": 3, "up_to": 24}})
    assert seeds_of_cells(launch) == {3.0: [24, 24], 9.0: [3, 3]}


@pytest.mark.parametrize("method", ["random", "tpe"])
def test_cells_that_were_drawn_or_proposed_race_too(store: Store, method: str) -> None:
    parameters = {"x": {"min": -10, "max": 10, "step": 0.5}, "width": {"values": [2, 3]}}
    changes: dict[str, Any] = {"method": {"name": method, "startup": 4}, "budget": {"cells": 12}}
    launch = run(store, **changes, parameters=parameters, seeds=RACE["seeds"])
    counts = runs_of(launch.files).groupby("cell_id").size()
    assert len(counts) == 12
    assert counts.min() == 3
    assert prepared(store, **changes, parameters=parameters, seeds=RACE["seeds"]).complete


def test_each_branch_has_its_race(store: Store) -> None:
    """With x = 9 all are far worse than with x = 3, but as good as each other."""
    parameters = {**PARAMETERS, "x": {"values": [3.0, 9.0], "grid": True}}
    launch = run(store, method="random", budget={"cells": 4}, parameters=parameters, seeds={"count": 3, "up_to": 6})
    assert seeds_of_cells(launch) == {3.0: [6, 6], 9.0: [6, 6]}


def test_a_budget_of_runs_holds_for_a_race(store: Store) -> None:
    launch = run(store, **RACE, budget={"runs": 16})
    assert len(runs_of(launch.files)) == 16
    assert launch.driver.stop_reason == "budget.runs of 16 is used up"
    again = run(store, **RACE, budget={"runs": 16})
    assert len(runs_of(again.files)) == 16
    assert len(runs_of(run(store, **RACE).files)) == 30
