import math
from collections.abc import Sequence
from typing import Any

import pytest

import mislabel
from mislabel.analysis.statistics.ranking import best_of_branches, ranked
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import cut_short, run

TWO = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]


def made(store: Store, **changes: Any) -> Sweep:
    run(store, resources={"pack": 100}, **changes)
    return mislabel.load(store.address, "bowls")


def runs_at(sweep: Sweep, x: float, seeds: Sequence[int] = (0, 1, 2)) -> list[str]:
    return sweep.read("runs", ["run_id"], {"x": x, "seed": seeds})["run_id"].tolist()


def test_stopped_cells_come_last_sorted_by_their_last_step(store: Store) -> None:
    sweep = made(store, parameters={"x": {"values": [0, 1, 2, 3]}, "frames": 5}, seeds=3)
    steps = sorted(sweep.curves["step"].unique())
    # The best two cells are stopped, the best one first.
    cut_short(sweep.files, runs_at(sweep, 3), steps[1])
    cut_short(sweep.files, runs_at(sweep, 2, seeds=[1]), steps[2])
    table = ranked(mislabel.load(store.address, "bowls"))
    assert table["x"].tolist() == [1, 0, 2, 3]
    assert table["stopped"].tolist() == [0, 0, 1, 3]
    assert table["step"].tolist() == [8, 8, steps[2], steps[1]]


def test_a_cell_with_a_diverged_run_comes_after_complete_cells(store: Store) -> None:
    sweep = made(store, parameters={"x": {"values": [1, 3]}, "trouble": {"values": [0, 2], "when": "x == 3"}}, seeds=2)
    table = ranked(sweep)
    assert table["x"].tolist() == [3, 1, 3]
    assert table["trouble"].fillna(-1).tolist() == [0, -1, 2]
    assert table["diverged"].tolist() == [0, 0, 2]


@pytest.mark.long
def test_the_front_comes_first_and_no_cell_dominates_it(store: Store) -> None:
    """The loss is smallest at x = 3. The height = loss + level is largest far from it."""
    parameters = {"x": {"values": [0, 1, 3]}, "level": {"values": [0, 10]}, "rate": 1.0}
    sweep = made(store, parameters=parameters, metric=TWO)
    table = ranked(sweep)
    assert table["front"].tolist() == [True] * 3 + [False] * 3
    assert table[table["front"]][["x", "level"]].to_numpy().tolist() == [[3, 10], [1, 10], [0, 10]]
    front = sweep.front()
    assert front["cell_id"].tolist() == table["cell_id"].tolist()[:3]
    assert {"loss", "loss_low", "loss_high", "height", "runs"} <= set(front.columns)
    # The front is that of the objectives, whatever metrics are shown.
    assert ranked(sweep, ["height"]).set_index("cell_id")["front"].sum() == 3
    assert "front" not in ranked(sweep, by=["x"])


@pytest.mark.long
def test_cells_that_can_not_be_compared_are_not_on_the_front(store: Store) -> None:
    parameters = {"x": {"values": [0, 3]}, "trouble": {"values": [0, 2], "when": "x == 3"}}
    sweep = made(store, parameters=parameters, metric=TWO, seeds=3)
    assert sweep.front()["x"].tolist() == [3, 0]
    assert sweep.front()["trouble"].fillna(-1).tolist() == [0, -1]
    cut_short(sweep.files, runs_at(sweep, 0, seeds=[0]), 1)
    assert mislabel.load(store.address, "bowls").front()["x"].tolist() == [3]


def test_the_front_of_one_objective_is_the_best_cell(store: Store) -> None:
    sweep = made(store)
    assert sweep.front()["cell_id"].tolist() == ranked(sweep)["cell_id"].tolist()[:1]
    assert "front" not in ranked(sweep)


def test_without_an_objective_there_is_no_front(store: Store) -> None:
    with pytest.raises(MislabelError, match="bowls"):
        made(store, metric=None).front()


def test_without_an_objective_cells_keep_their_order(store: Store) -> None:
    sweep = made(store, metric=None, parameters={"x": {"values": [2, 0, 3]}})
    table = ranked(sweep)
    assert table["x"].tolist() == [0, 2, 3]
    assert math.isfinite(table["loss"].iloc[0])


def test_the_best_cell_of_each_branch_is_chosen_by_the_objective(store: Store) -> None:
    """The loss is smallest at x = 3, and the level does not change it."""
    parameters = {"x": {"values": [0, 2, 3]}, "level": {"values": [10, 0], "grid": True}, "rate": 1.0}
    sweep = made(store, parameters=parameters, seeds=2)
    table = best_of_branches(sweep, ["height"])
    assert table[["level", "x"]].to_numpy().tolist() == [[0, 3], [10, 3]]
    assert {"loss", "loss_high", "height", "height_high"} <= set(table.columns)


def test_a_sweep_without_branches_has_no_best_cells_of_them(store: Store) -> None:
    with pytest.raises(MislabelError, match="bowls"):
        best_of_branches(made(store))


def test_the_best_cell_for_each_value_is_found_among_the_finished_ones(store: Store) -> None:
    sweep = made(store, parameters={"x": {"values": [0, 1, 3]}, "level": {"values": [0, 10]}}, seeds=2)
    assert sweep.best()["x"].tolist() == [3]
    assert sweep.best(by="level")[["level", "x"]].to_numpy().tolist() == [[0, 3], [10, 3]]
    stopped = sweep.read("runs", ["run_id"], {"x": 3, "level": 0})["run_id"].tolist()
    cut_short(sweep.files, stopped, 1)
    again = mislabel.load(store.address, "bowls")
    assert again.best(by="level")[["level", "x"]].to_numpy().tolist() == [[0, 1], [10, 3]]
    with pytest.raises(MislabelError, match=r"\blevel\?"):
        sweep.best(by="levl")
