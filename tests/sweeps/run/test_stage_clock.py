from dataclasses import asdict

import pytest

from mislabel.sweeps.plan.stages import FILE, Stages
from mislabel.sweeps.run.launch import inline_host, run_sweep
from mislabel.sweeps.run.stage_clock import StageClock
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec


def test_the_first_launch_of_a_process_stores_its_stages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StageClock, "_launches", 0)
    run_sweep(bowl_spec(), BOWL, store, inline_host)
    stored = store.sweep("bowls").read_json(FILE)
    assert set(stored["seconds"]) == set(asdict(Stages(0.0)))
    assert stored["seconds"]["train"] > 0
    assert not stored["on_ray"]
    run_sweep(bowl_spec(name="second", parameters={"x": 1.0, "level": 3}), BOWL, store, inline_host)
    assert not store.sweep("second").read_json(FILE)["is_whole"], "it imported and started nothing"
    assert store.sweep("bowls").read_json(FILE)["is_whole"]


def test_a_launch_that_trains_nothing_stores_no_stages(store: Store) -> None:
    run_sweep(bowl_spec(name="first"), BOWL, store, inline_host)
    run_sweep(bowl_spec(name="second"), BOWL, store, inline_host)
    assert store.sweep("first").read_json(FILE) is not None
    assert store.sweep("second").read_json(FILE) is None
