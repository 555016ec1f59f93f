import platform
import random
from dataclasses import asdict, replace
from typing import Any

import pytest

from mislabel.sweeps.plan.stages import (
    FILE,
    Expected,
    Measured,
    StageClock,
    Stages,
    contention,
    expected_time,
    note_stages,
    start_seconds,
)
from mislabel.sweeps.run.launch import inline_host, plan_sweep, run_sweep
from mislabel.sweeps.spec.model import EarlyTerminate
from mislabel.sweeps.stopping.rules import decision_steps, expected_shares
from mislabel.sweeps.stopping.stopper import Entry, Stopper
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, MACHINE, bowl_spec, run, store_speeds


@pytest.fixture(autouse=True)
def idle_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr("mislabel.sweeps.plan.stages.start_seconds", lambda: 2.0)


def expected_of(store: Store, on_ray: bool = False, workers: int = 1, **changes: Any) -> Expected:
    machine = replace(MACHINE, ahead=on_ray, workers=workers)
    found = plan_sweep(bowl_spec(**changes), BOWL, store, machine).expected
    assert found is not None
    return found


def measured(**changes: Any) -> Measured:
    seconds = Stages(start=4.0, machine=10.0, measure=1.0, workers=6.0, train=20.0, merge=2.0, view=8.0)
    found = Measured(platform.node(), True, "2026-01-01T00:00:00+00:00", seconds, 1.5, pack_seconds=0.4, new_view=True)
    return replace(found, **changes)


def test_training_takes_as_long_as_its_runs_and_packs(store: Store) -> None:
    """Six runs of eight steps in two packs. Without earlier launches, defaults count."""
    store_speeds(store.sweep("bowls"), {2: 1.0})
    found = expected_of(store)
    assert found.stages.train == found.most_train == pytest.approx(1.05 * 6 * 8 + 2 * 0.03 * 2)
    assert found.seconds == found.most_seconds == sum(asdict(found.stages).values())
    assert found.stages.measure == 0, "the store has the speed"
    assert expected_of(store, workers=2).stages.train == pytest.approx(1.05 * 4 * 8), "the longest pack"


@pytest.mark.long
def test_runs_that_are_copied_take_no_time(store: Store) -> None:
    run(store, name="first", parameters={"x": {"values": [0.0, 1.0]}})
    for name in ("second", "search"):
        store_speeds(store.sweep(name), {2: 1.0})
    plan = plan_sweep(bowl_spec(name="second"), BOWL, store, MACHINE)
    assert (plan.missing, plan.to_train, plan.packs, plan.elsewhere) == (6, 2, 1, {"first": 4})
    assert plan.expected is not None
    assert plan.expected.stages.train == pytest.approx(1.05 * 2 * 8 + 0.03 * 2)
    search: dict[str, Any] = {
        "method": {"name": "tpe", "startup": 2}, "budget": {"cells": 4}, "parameters": {"x": {"min": 0, "max": 6}},
    }  # fmt: skip
    run(store, name="donor", **search)
    assert plan_sweep(bowl_spec(name="search", **search), BOWL, store, MACHINE).to_train == 0
    other = {**search, "method": {"name": "tpe", "startup": 2, "seed": 1}}
    assert plan_sweep(bowl_spec(name="search", **other), BOWL, store, MACHINE).to_train == 8


def test_the_further_seeds_of_a_race_are_a_range(store: Store) -> None:
    store_speeds(store.sweep("bowls"), {2: 1.0})
    found = expected_of(store, seeds={"count": 2, "up_to": 6})
    assert found.stages.train == expected_of(store).stages.train
    assert found.most_train == pytest.approx(1.05 * 3 * 6 * 8 + 5 * 0.03 * 2)
    assert found.most_seconds - found.seconds == pytest.approx(found.most_train - found.stages.train)


def test_a_budget_of_time_is_an_upper_limit(store: Store) -> None:
    store_speeds(store.sweep("bowls"), {2: 1.0})
    assert expected_of(store, budget={"wall": "9s"}).stages.train == 9


def test_other_processes_slow_training_down(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert [contention(workers) for workers in (1, 2)] == [1.0, 1.0]
    monkeypatch.setattr("os.getloadavg", lambda: (5.0, 0.0, 0.0))
    assert [contention(workers) for workers in (1, 2)] == [2.5, 3.0]


def test_the_last_launch_on_this_machine_scales_the_stages(store: Store) -> None:
    """It started in four seconds, and this process in two: everything takes half as long."""
    store_speeds(store.sweep("bowls"), {2: 1.0})
    usual = expected_of(store, on_ray=True)
    note_stages(store.sweep("bowls"), measured())
    found = expected_of(store, on_ray=True).stages
    assert (found.machine, found.workers, found.merge) == (5.0, 3.0, 1.0)
    assert found.train == pytest.approx(1.5 * 6 * 8 + 2 * 0.2)
    assert expected_of(store).stages.machine == 0, "that launch was not inline"
    note_stages(store.sweep("bowls"), measured(host=f"not-{platform.node()}"))
    assert expected_of(store, on_ray=True) == usual


def test_a_new_sweep_uses_the_newest_launch_of_the_store(store: Store) -> None:
    for name, at, seconds in (("new", "2026-02-01T00:00:00+00:00", 8.0), ("old", "2026-01-01T00:00:00+00:00", 4.0)):
        run(store, name=name)
        note_stages(store.sweep(name), measured(at=at, seconds=replace(measured().seconds, machine=seconds)))
    assert expected_of(store, on_ray=True, name="third").stages.machine == 4.0


def test_a_damaged_file_of_stages_is_ignored(store: Store) -> None:
    store_speeds(store.sweep("bowls"), {2: 1.0})
    usual = expected_of(store, on_ray=True)
    store.sweep("bowls").write_text(FILE, "{")
    assert expected_of(store, on_ray=True) == usual


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


def test_the_start_of_a_process_is_its_age_at_the_first_plan() -> None:
    assert start_seconds() == start_seconds() > 0


def test_a_plan_that_nothing_is_known_of_has_finite_times(store: Store) -> None:
    plan = plan_sweep(bowl_spec(parameters={"x": 1.0}), BOWL, store, MACHINE)
    assert expected_time(plan, store, store.sweep("bowls"), False, 0.0).seconds < 60


MEASURED = list(range(82))


@pytest.mark.parametrize("at_once", [1, 4, 20])
@pytest.mark.parametrize(
    "rule",
    [
        {"type": "asha", "min_steps": 3, "eta": 3},
        {"type": "asha", "min_steps": 9, "eta": 2},
        {"type": "hyperband", "min_steps": 3, "eta": 3},
    ],
    ids=lambda rule: f"{rule['type']} {rule['eta']}",
)
def test_the_expected_share_of_steps_is_that_of_cells_in_random_order(rule: dict[str, Any], at_once: int) -> None:
    wanted, cells, trained, finished = EarlyTerminate(**rule), 60, 0, 0
    repetitions = 30
    for seed in range(repetitions):
        chance, stopper = random.Random(seed), Stopper(wanted, "minimize", MEASURED[-1])
        quality = {f"{seed}x{i}": chance.random() for i in range(cells)}
        for first in range(0, cells, at_once):
            live = list(quality)[first : first + at_once]
            for step in sorted(decision_steps(wanted, MEASURED)):
                stops = stopper.decide(step, [Entry(cell, 0) for cell in live], [quality[cell] for cell in live])
                trained += step * sum(stops)
                live = [cell for cell, stop in zip(live, stops, strict=True) if not stop]
            trained += MEASURED[-1] * len(live)
            finished += len(live)
    share, left = expected_shares(wanted, MEASURED, cells, at_once)
    assert share == pytest.approx(trained / (repetitions * cells * MEASURED[-1]), rel=0.25)
    assert left == pytest.approx(finished / (repetitions * cells), rel=0.4)
