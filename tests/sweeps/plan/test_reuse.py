from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mislabel.sweeps.run.launch import Launch, plan_sweep
from mislabel.sweeps.store.outcome import INTERRUPTED, Status, StopCause
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import BOWL, MACHINE, bowl_spec, curves_of, prepared, run, runs_of


def test_runs_of_another_sweep_are_reused(store: Store) -> None:
    first = run(store, name="first", parameters={"x": {"values": [0, 1]}, "snapshots": 1})
    second = run(store, name="second", parameters={"x": {"values": [1, 2]}, "snapshots": 1})
    assert second.driver.progress.statuses == {"done": 2}
    runs, donor = runs_of(second.files), runs_of(first.files)
    assert len(runs) == 4
    shared = runs[runs["x"] == 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(shared, donor[donor["x"] == 1].reset_index(drop=True))
    curves = curves_of(second.files)
    assert len(curves) == 4 * 3
    assert second.files.read("arrays", ["run_id"]).num_rows == 4
    assert len(second.files.launches()) == 2
    assert first.files.launches()[0] in second.files.launches()


def test_runs_with_other_settings_seeds_or_tasks_are_not_reused(store: Store) -> None:
    run(store, name="first")
    assert run(store, name="level", parameters={"x": {"values": [0]}, "level": 2}).plan.missing == 2
    assert run(store, name="seeds", seeds={"count": 2, "first": 5}).plan.missing == 6
    assert run(store, name="task", task="bowl.single").plan.missing == 6


def test_failed_runs_are_not_reused(store: Store) -> None:
    parameters = {"trouble": {"values": [0, 1, 2]}}
    run(store, name="first", parameters=parameters)
    second = run(store, name="second", parameters=parameters)
    assert second.driver.progress.statuses == {"failed": 2}
    assert sorted(runs_of(second.files)["status"]) == ["diverged"] * 2 + ["done"] * 2 + ["failed"] * 2


def test_a_reused_result_replaces_a_failed_run(store: Store) -> None:
    """The failure may have been the machine's: the same run succeeded in another sweep."""
    run(store, name="donor", seeds=1)
    lost = store.sweep("donor").read("runs")
    launch = run(store, name="second", seeds=1, parameters={"x": {"values": [0, 1, 2]}})
    assert launch.plan.missing == 0
    failed = lost.set_column(lost.column_names.index("status"), "status", [["failed"] * 3])
    failed = failed.set_column(failed.column_names.index("attempt"), "attempt", [[7] * 3])
    launch.files.write_results({"runs": failed})
    assert runs_of(launch.files)["status"].tolist() == ["done"] * 3


@pytest.mark.faults
@pytest.mark.parametrize("table", ["runs", "curves"])
def test_a_damaged_sweep_does_not_affect_others(store: Store, table: str) -> None:
    first = run(store, name="first")
    (part,) = Path(first.files.address, table).glob("*.parquet")
    part.write_bytes(part.read_bytes()[:-100])
    second = run(store, name="second")
    assert second.driver.progress.statuses == {"done": 6}


def test_a_plan_counts_reusable_runs_and_writes_nothing(store: Store) -> None:
    run(store, name="first")
    plan = plan_sweep(bowl_spec(name="second", seeds=3), BOWL, store, MACHINE)
    assert plan.elsewhere == {"first": 6}
    assert plan.missing == 9
    assert store.names() == ["first"]


def test_weights_are_reused_with_their_runs(store: Store) -> None:
    run(store, name="without")
    first = run(store, name="first", keep="weights", parameters={"x": {"values": [0, 1]}, "level": 2})
    second = run(store, name="second", keep="weights", parameters={"x": {"values": [0, 1]}, "level": 2})
    assert second.plan.missing == 0
    assert second.files.runs_with_weights() == first.files.runs_with_weights()
    assert second.files.load_weights(runs_of(second.files)["run_id"][0])
    again = run(store, name="third", keep="weights")
    assert again.plan.missing == 6, "the runs of the first sweep have no weights"


SEARCH: dict[str, Any] = {
    "method": {"name": "tpe", "startup": 4}, "budget": {"cells": 10}, "parameters": {"x": {"min": 0, "max": 6}},
    "seeds": 2,
}  # fmt: skip
# The bottom is at 3, and the level does not count: contenders are equally good.
RACE: dict[str, Any] = {
    **SEARCH, "seeds": {"count": 2, "up_to": 6},
    "parameters": {"x": {"values": [3.0, 9.0]}, "level": {"min": 1, "max": 30}},
}  # fmt: skip
ASHA: dict[str, Any] = {
    **SEARCH, "early_terminate": {"type": "asha", "min_steps": 3, "eta": 3},
    "parameters": {**SEARCH["parameters"], "steps": 27, "frames": 10, "spacing": "linear", "rate": 0.1},
}  # fmt: skip


def assert_same_tables(first: SweepFiles, second: SweepFiles) -> None:
    pd.testing.assert_frame_equal(runs_of(first), runs_of(second))
    pd.testing.assert_frame_equal(curves_of(first), curves_of(second))


@pytest.mark.long
@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("changes", [SEARCH, RACE], ids=["search", "race"])
def test_a_renamed_search_trains_nothing(store: Store, changes: dict[str, Any], ahead: bool) -> None:
    machine = replace(MACHINE, ahead=ahead)
    first = run(store, name="first", machine=machine, **changes)
    if changes is RACE:
        assert len(runs_of(first.files)) > 20
    second = run(store, name="second", machine=machine, **changes)
    assert_same_tables(first.files, second.files)
    progress = second.driver.progress
    assert (sum(progress.statuses.values()), progress.steps_done) == (0, 0)
    assert progress.done == progress.runs == first.driver.progress.runs
    assert progress.work == pytest.approx(0)
    assert second.driver.over
    assert first.driver.means.best is not None
    assert second.driver.means.best is not None
    assert second.driver.means.best[0] == first.driver.means.best[0]
    assert second.driver.best_cell["x"] == first.driver.best_cell["x"]
    assert prepared(store, name="second", **changes).complete
    assert first.files.launches()[0] in second.files.launches()


def test_the_race_of_a_grid_reuses_further_seeds(store: Store) -> None:
    parameters = {"x": 3.0, "level": {"values": [1, 2]}}
    run(store, name="first", parameters=parameters, seeds=6)
    second = run(store, name="second", parameters=parameters, seeds={"count": 2, "up_to": 6})
    assert second.driver.progress.steps_done == 0
    assert len(runs_of(second.files)) == 12


@pytest.mark.long
def test_a_search_trains_only_what_other_sweeps_lack(store: Store) -> None:
    first = run(store, name="first", **{**SEARCH, "seeds": 1})
    second = run(store, name="second", **SEARCH)
    table = runs_of(second.files)
    assert len(table) == 20
    reused = table["run_id"].isin(runs_of(first.files)["run_id"])
    assert 4 <= reused.sum() < 20, "at least the cells that were proposed before any result"
    assert second.driver.progress.statuses == {"done": 20 - reused.sum()}
    assert second.driver.progress.done == second.driver.progress.runs == 20


@pytest.mark.long
def test_a_search_that_copies_runs_can_be_interrupted(store: Store) -> None:
    """Half of the seeds are copied, the others are trained."""
    run(store, name="first", **{**SEARCH, "seeds": 1})
    whole = run(store, name="whole", **SEARCH)
    runs_of_first = set(runs_of(store.sweep("first"))["run_id"])
    assert 0 < sum(run in runs_of_first for run in runs_of(whole.files)["run_id"]) < 20
    elsewhere = Store(f"{store.address}-other")
    run(elsewhere, name="first", **{**SEARCH, "seeds": 1})

    def stop(launch: Launch) -> None:
        launch.driver.stop(INTERRUPTED)

    launches = 0
    while not (launch := prepared(elsewhere, name="whole", **SEARCH)).complete:
        launches += 1
        run(elsewhere, stop, name="whole", **SEARCH)
    assert launches > 2
    assert_same_tables(whole.files, launch.files)


def test_copied_runs_count_for_the_budget_of_runs(store: Store) -> None:
    run(store, name="first", **{**SEARCH, "budget": {"cells": 4}})
    launch = run(store, name="second", **{**SEARCH, "budget": {"cells": 10, "runs": 12}})
    assert launch.driver.progress.statuses == {"done": 4}
    assert launch.driver.stop_reason is not None
    assert launch.driver.stop_reason.cause is StopCause.RUNS_USED_UP


@pytest.mark.long
def test_runs_that_another_search_stopped_are_judged_again(store: Store) -> None:
    """Runs that it trained to the end are copied, and the others are compared with them."""
    first = run(store, name="first", **ASHA)
    second = run(store, name="second", **ASHA)
    before, after = runs_of(first.files), runs_of(second.files)
    assert {"done", "stopped"} == set(before["status"])
    assert second.driver.progress.statuses[Status.DONE] == 0
    pd.testing.assert_frame_equal(before, after)


def test_diverged_runs_of_another_search_are_reused(store: Store) -> None:
    changes = {**SEARCH, "parameters": {**SEARCH["parameters"], "trouble": {"values": [0, 2]}}}
    run(store, name="first", **changes)
    second = run(store, name="second", **changes)
    assert second.driver.progress.steps_done == 0
    assert set(runs_of(second.files)["status"]) == {"done", "diverged"}
