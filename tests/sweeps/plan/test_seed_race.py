import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from mislabel.sweeps.plan.seed_race import Race, race_is_on, significantly_positive
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Means
from mislabel.sweeps.store.outcome import INTERRUPTED, Outcome, Status, StopCause, StopReason
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import bowl_spec, curves_of, means_of, prepared, run, runs_of
from tests.sweeps.run.parts import tables

Value = Callable[[str, int], float]


def spec_of(count: int = 4, up_to: int = 32, goal: str = "minimize") -> Spec:
    seeds = {"count": count, "up_to": up_to}
    return bowl_spec(seeds=seeds, metric={"name": "loss", "goal": goal})


def end_runs(means: Means, cell: str, value: Value, status: Status = Status.DONE) -> None:
    """End all runs of the cell that have not ended."""
    for seed in means.seeding.of(cell):
        if seed not in means.by_seed(cell):
            means.add(Outcome(cell, seed, status, {"loss": value(cell, seed)}))


def raced(store: Store, cells: dict[str, float], value: Value, spec: Spec | None = None) -> tuple[Race, Means]:
    """Run a race to its end."""
    spec = spec or spec_of()
    means = means_of(spec, store.sweep("bowls"))
    for cell in cells:
        end_runs(means, cell, value)
    race = Race(spec, means, [cells])
    while more := race.next_round():
        for cell in more:
            end_runs(means, cell, value)
    return race, means


def noisy(cells: dict[str, float], common: float = 0.0, own: float = 1.0, salt: int = 0) -> Value:
    """The cell's mean, plus noise that all cells share by seed, plus independent noise."""

    def value(cell: str, seed: int) -> float:
        shared = np.random.default_rng([salt, seed]).normal()
        alone = np.random.default_rng([salt, seed, *cell.encode()]).normal()
        return float(cells[cell] + common * shared + own * alone)

    return value


@pytest.mark.parametrize(("goal", "sign"), [("minimize", 1), ("maximize", -1)])
def test_clear_losers_get_no_more_seeds_and_contenders_get_all(store: Store, goal: str, sign: int) -> None:
    cells = {"a": 0.0, "b": 0.0, "c": sign * 100.0, "d": sign * 200.0}
    _, means = raced(store, cells, noisy(cells), spec_of(goal=goal))
    assert [len(means.by_seed(cell)) for cell in cells] == [32, 32, 4, 4]


def test_noise_that_cells_share_does_not_hide_a_loser(store: Store) -> None:
    """The noise between seeds is a hundred times the difference, but common to both cells."""
    cells = {"a": 0.0, "b": 1.0}
    race, means = raced(store, cells, noisy(cells, common=100.0, own=0.1))
    assert race.racing == [["a"]]
    assert [len(means.by_seed(cell)) for cell in cells] == [4, 4]


def test_a_small_difference_takes_more_seeds(store: Store) -> None:
    cells = {"a": 0.0, "b": 1.2}
    counts = []
    for salt in range(20):
        _, means = raced(store, cells, noisy(cells, salt=salt), spec_of(4, 256))
        counts.append(len(means.by_seed("b")))
    assert 4 < np.mean(counts) < 100


def worse_by(p: float) -> Value:
    """The test of cell `b` against the leader has this p-value after 4 seeds; all other cells are equal."""
    # Differences of margin ± 1 have a standard error of sqrt(4/3) / 2, so that t is margin * sqrt(3).
    margin = float(stats.t.isf(p, 3)) / math.sqrt(3)
    return lambda cell, seed: margin + (-1) ** seed if cell == "b" else 0.0


@pytest.mark.parametrize(
    ("cells", "up_to", "level"),
    [
        ("ab", 5, 0.05),
        ("ab", 8, 0.05),
        ("ab", 16, 0.05 / 2),
        ("ab", 20, 0.05 / 3),
        ("ab", 32, 0.05 / 3),
        ("abc", 8, 0.05 / 2),
        ("abcd", 32, 0.05 / 9),
    ],
)
def test_the_level_is_divided_by_the_rounds_and_by_the_cells_behind_the_leader(
    files: SweepFiles, cells: str, up_to: int, level: float
) -> None:
    for p, stays in ((1.01 * level, True), (0.99 * level, False)):
        means = means_of(spec_of(4, up_to), files)
        for cell in cells:
            end_runs(means, cell, worse_by(p))
        assert ("b" in Race(spec_of(4, up_to), means, [cells]).next_round()) == stays


def test_the_leader_need_not_be_the_first_cell(store: Store) -> None:
    cells = {"a": 100.0, "b": 0.0, "c": 100.0}
    race, _ = raced(store, cells, noisy(cells))
    assert race.racing == [["b"]]


@pytest.mark.long
def test_the_best_cell_is_rarely_dropped(store: Store) -> None:
    """In the worst case, many others are as good and one of them leads by luck: at most one race in twenty."""
    cells = dict.fromkeys("abcdefghij", 0.0)
    dropped = 0
    for salt in range(200):
        race, _ = raced(store, cells, noisy(cells, salt=salt), spec_of(4, 16))
        dropped += not any("a" in left for left in race.racing)
    assert dropped <= stats.binom.ppf(0.99, 200, 0.05)


def test_a_restart_changes_no_decision(store: Store) -> None:
    cells = {name: 0.3 * i for i, name in enumerate("abcdef")}
    first, known = raced(store, cells, noisy(cells))
    means = means_of(spec_of(), store.sweep("bowls"))
    for cell in cells:
        for seed, (loss,) in known.by_seed(cell).items():
            means.add(Outcome(cell, seed, Status.DONE, {"loss": loss}))
    again = Race(spec_of(), means, [cells])
    assert again.next_round() == []
    assert again.racing == first.racing
    assert [means.of(cell) for cell in cells] == [known.of(cell) for cell in cells]


def test_cells_without_a_comparable_mean_do_not_race(store: Store) -> None:
    means = means_of(spec_of(), store.sweep("bowls"))
    end_runs(means, "a", lambda cell, seed: 1.0)
    end_runs(means, "b", lambda cell, seed: math.nan, Status.DIVERGED)
    end_runs(means, "c", lambda cell, seed: 0.0, Status.STOPPED)
    end_runs(means, "d", lambda cell, seed: 1.0)
    race = Race(spec_of(), means, [["a", "b", "c", "d"]])
    assert race.racing == [["a", "d"]]


def test_a_contender_that_diverges_leaves_the_race(store: Store) -> None:
    race, _ = raced(store, {"a": 0, "b": 0}, lambda cell, seed: math.nan if cell == "a" and seed > 5 else seed % 3)
    assert race.racing == [["b"]]


def test_branches_race_separately(store: Store) -> None:
    cells = {"a": 0.0, "b": 0.0, "c": 50.0, "d": 50.0, "e": 90.0}
    means = means_of(spec_of(), store.sweep("bowls"))
    for cell in cells:
        end_runs(means, cell, noisy(cells))
    race = Race(spec_of(), means, [["a", "b"], ["c", "d", "e"]])
    assert set(race.next_round()) == {"a", "b", "c", "d"}
    assert race.seeds == 8


def test_cells_that_are_always_equal_stay_in_the_race(store: Store) -> None:
    race, means = raced(store, {"a": 0, "b": 0}, lambda cell, seed: float(seed))
    assert race.racing == [["a", "b"]]
    assert len(means.by_seed("b")) == 32


def test_the_t_test_agrees_with_scipy_and_needs_two_seeds() -> None:
    values = np.random.default_rng(0).normal(0.5, 1, (50, 6))
    p = stats.ttest_1samp(values, 0, axis=1, alternative="greater").pvalue
    assert (significantly_positive(values, 0.05) == (p < 0.05)).all()
    assert not significantly_positive(np.full((3, 1), 9.0), 0.05).any()
    assert significantly_positive(np.array([[1.0, 1.0], [0.0, 0.0], [-1.0, -1.0]]), 0.05).tolist() == [
        True,
        False,
        False,
    ]


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
    assert (progress.runs, progress.done, progress.statuses[Status.DONE]) == (30, 30, 30)
    assert launch.driver.over


@pytest.mark.long
def test_an_interrupted_race_ends_like_an_uninterrupted_one(store: Store, tmp_path: Any) -> None:
    undisturbed = run(Store(str(tmp_path / "other")), **RACE)

    def stop(launch: Launch) -> None:
        launch.driver.stop(INTERRUPTED)

    launches = 0
    while not (launch := prepared(store, **RACE)).complete:
        launches += 1
        run(store, stop, **RACE)
    assert launches > 3
    pd.testing.assert_frame_equal(runs_of(launch.files), runs_of(undisturbed.files))
    pd.testing.assert_frame_equal(curves_of(launch.files), curves_of(undisturbed.files))


def test_a_finished_race_runs_nothing(store: Store) -> None:
    run(store, **RACE)
    assert prepared(store, **RACE).complete


def test_a_race_with_failed_seeds_continues_if_they_are_retried(files: SweepFiles) -> None:
    """Both cells are equal and have all seeds of the race, but two runs of `a` have failed."""
    done = ["a-0", "a-1", "b-0", "b-1", "b-2", "b-3"]
    for rows in (tables(done, "p"), tables(["a-2", "a-3"], "q", "failed")):
        x = pa.array([0.0] * rows["runs"].num_rows)
        files.write_results({**rows, "runs": rows["runs"].append_column("x", x)})
    spec = spec_of(2, 4)
    assert [race_is_on(spec, RunIndex(spec, files), retry) for retry in (False, True)] == [False, True]


def test_a_larger_limit_continues_the_race(store: Store) -> None:
    run(store, **RACE)
    launch = run(store, **{**RACE, "seeds": {"count": 3, "up_to": 24}})
    assert seeds_of_cells(launch) == {3.0: [24, 24], 9.0: [3, 3]}


@pytest.mark.long
@pytest.mark.parametrize("method", ["random", "tpe"])
def test_cells_that_were_drawn_or_proposed_race_too(store: Store, method: str) -> None:
    parameters = {"x": {"min": -10, "max": 10, "step": 0.5}, "width": {"values": [2, 3]}}
    changes: dict[str, Any] = {"method": {"name": method, "startup": 4}, "budget": {"cells": 12}}
    launch = run(store, **changes, parameters=parameters, seeds=RACE["seeds"])
    counts = runs_of(launch.files).groupby("cell_id").size()
    assert len(counts) == 12
    assert counts.min() == 3
    assert prepared(store, **changes, parameters=parameters, seeds=RACE["seeds"]).complete


def test_each_branch_of_a_sweep_has_its_race(store: Store) -> None:
    """With x = 9 all cells are far worse than with x = 3, but equally good."""
    parameters = {**PARAMETERS, "x": {"values": [3.0, 9.0], "grid": True}}
    launch = run(store, method="random", budget={"cells": 4}, parameters=parameters, seeds={"count": 3, "up_to": 6})
    assert seeds_of_cells(launch) == {3.0: [6, 6], 9.0: [6, 6]}


def test_a_budget_of_runs_limits_a_race(store: Store) -> None:
    launch = run(store, **RACE, budget={"runs": 16})
    assert len(runs_of(launch.files)) == 16
    assert launch.driver.stop_reason == StopReason(StopCause.RUNS_USED_UP, "budget.runs of 16 is used up")
    again = run(store, **RACE, budget={"runs": 16})
    assert len(runs_of(again.files)) == 16
    assert len(runs_of(run(store, **RACE).files)) == 30
