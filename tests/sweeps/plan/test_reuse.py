from pathlib import Path

import pandas as pd
import pytest

from mislabel.sweeps.run.launch import plan_sweep
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, MACHINE, bowl_spec, curves_of, run, runs_of


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
