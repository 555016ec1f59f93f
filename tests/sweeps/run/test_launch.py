from pathlib import Path
from typing import Any

import pytest

from mislabel.sweeps.errors import SpecError, StoreError
from mislabel.sweeps.run.launch import plan_sweep, prepare
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, MACHINE, bowl_spec, prepared, run


def files_in(store: Store) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path(store.address).rglob("*") if path.is_file()}


def test_a_launch_leaves_spec_revisions_and_provenance_in_the_store(store: Store) -> None:
    run(store)
    run(store, seeds=3)
    files = store.sweep("bowls")
    assert files.read_text("spec.yaml") == files.read_text("revisions/0002.yaml") == bowl_spec(seeds=3).to_yaml()
    assert files.read_text("revisions/0001.yaml") == bowl_spec().to_yaml()
    launches = files.launches()
    assert len(launches) == 2
    assert launches[0]["versions"]["bowl"] == "1.0"
    assert launches[0]["started_at"] <= launches[1]["started_at"]


def test_a_launch_with_nothing_to_run_is_not_recorded(store: Store) -> None:
    run(store)
    run(store)
    assert len(store.sweep("bowls").launches()) == 1


def test_a_plan_writes_nothing(store: Store) -> None:
    run(store)
    before = files_in(store)
    plan = plan_sweep(bowl_spec(seeds=4), BOWL, store, MACHINE)
    assert plan.missing == 6
    assert files_in(store) == before


def test_a_sweep_that_can_not_run_leaves_the_store_as_it_was(store: Store) -> None:
    run(store)
    before = files_in(store)
    wrong: dict[str, Any] = {"parameters": {"surface": {"values": ["smooth", "rough"]}, "width": {"values": [2, 64]}}}
    with pytest.raises(SpecError, match="a rough bowl holds at most 32 weights"):
        prepare(bowl_spec(name="other", **wrong), BOWL, store, lambda text: None)
    with pytest.raises(SpecError, match="a sweep with another spec"):
        prepare(bowl_spec(seeds=1), BOWL, store, lambda text: None)
    assert store.names() == ["bowls"]
    assert files_in(store) == before


def test_what_was_damaged_is_said(store: Store) -> None:
    launch = run(store)
    (part,) = Path(launch.files.address, "runs").glob("*.parquet")
    part.write_bytes(b"garbage")
    said: list[str] = []
    prepare(launch.spec, BOWL, store, said.append)
    assert sorted(said) == [
        f"{launch.files.address}/{table}/{part.name} is damaged: set aside, and its runs are run again"
        for table in ("curves", "runs")
    ]


def test_a_broken_sweep_is_not_tidied(store: Store) -> None:
    """The store can't be written: what there is, is left alone."""
    launch = prepared(store)
    launch.driver.break_off(StoreError("the disk is full"))
    before = files_in(store)
    launch.finish()
    assert files_in(store) == before
