import dataclasses
from typing import Any

import pytest

from mislabel.sweeps.plan.pack_size import Profiler, Sizing, measure_speed
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.task import Task
from tests.bowls import BOWL, CPU, MACHINE, prepared, run

CELL = {name: parameter.default for name, parameter in BOWL.parameters.items()}


def sizing(files: SweepFiles, task: Task[Any] = BOWL, memory_bytes: int = 1 << 30, workers: int = 1) -> Sizing:
    return Sizing(task, files, Profiler(CPU), memory_bytes, workers)


def known_speed(files: SweepFiles, seconds: dict[int, float], lane_bytes: int = 100, more: bool = False) -> None:
    """Store a speed as if it had been measured."""
    key = sizing(files)._key(CELL)
    speed = {"run_step_seconds": seconds, "measure_seconds": 0.0, "lane_bytes": lane_bytes, "more_may_pay": more}
    files.write_json("speeds.json", {key: speed})


def test_the_smallest_pack_within_10_percent_of_the_best_speed_is_chosen(files: SweepFiles) -> None:
    known_speed(files, {1: 10.0, 4: 3.0, 16: 1.05, 64: 1.0})
    assert sizing(files).speed(CELL, 64).best_size == 16
    assert sizing(files).size(CELL, 1000, "auto") == 16


def test_memory_limits_the_size_of_a_pack(files: SweepFiles) -> None:
    known_speed(files, {1: 1e-3, 4: 1e-4, 16: 1e-5, 64: 1e-6}, lane_bytes=1000)
    assert sizing(files, memory_bytes=1 << 30).size(CELL, 1000, "auto") == 64
    assert sizing(files, memory_bytes=20_000).size(CELL, 1000, "auto") == 12
    assert sizing(files, memory_bytes=10).size(CELL, 1000, "auto") == 1


def test_a_run_that_does_not_fit_is_still_tried_alone(files: SweepFiles) -> None:
    speed = measure_speed(BOWL, CELL, CPU, memory_bytes=1)
    assert list(speed.run_step_seconds) == [1]
    assert sizing(files, memory_bytes=1).size(CELL, 100, "auto") == 1


def test_a_pack_is_at_most_a_workers_share_of_the_runs(files: SweepFiles) -> None:
    known_speed(files, {1: 1e-3, 4: 1e-4, 16: 1e-5, 64: 1e-6})
    assert sizing(files, workers=1).size(CELL, 40, "auto") == 40
    assert sizing(files, workers=4).size(CELL, 40, "auto") == 10
    assert sizing(files, workers=100).size(CELL, 40, "auto") == 1


def test_long_runs_go_into_small_packs(files: SweepFiles) -> None:
    """A pack trains for at most about ten minutes, but has at least sixteen runs."""
    known_speed(files, {1: 2e-3, 4: 1.4e-3, 16: 1e-3, 64: 8e-4})
    assert sizing(files).size(CELL, 1000, "auto") == 64
    known_speed(files, {1: 2.0, 4: 1.4, 16: 1.0, 64: 0.8})
    assert sizing(files).size(CELL, 1000, "auto") == 64
    known_speed(files, {1: 8.0, 4: 5.6, 16: 4.0, 64: 3.2})
    assert sizing(files).size(CELL, 1000, "auto") == 23


@pytest.mark.parametrize(("wanted", "size"), [(1, 1), (3, 3), (500, 40)])
def test_the_size_in_the_spec_is_used_up_to_the_number_of_runs(files: SweepFiles, wanted: int, size: int) -> None:
    assert sizing(files).size(CELL, 40, wanted) == size


@pytest.mark.parametrize("wanted", [8, "auto"])
def test_the_largest_pack_of_a_task_is_a_limit(files: SweepFiles, wanted: int | str) -> None:
    task = dataclasses.replace(BOWL, largest_pack=2)
    known_speed(files, {1: 1e-3, 4: 1e-4})
    assert sizing(files, task).size(CELL, 40, wanted) == 2
    assert max(measure_speed(task, CELL, CPU, 1 << 30).run_step_seconds) == 1


def test_measurements_are_stored_with_the_sweep(files: SweepFiles) -> None:
    first = sizing(files)
    speed = first.speed(CELL, 4)
    first.keep()
    again = sizing(files)
    assert again.speed(CELL, 4) == speed
    assert again.size(CELL, 4, "auto") == first.size(CELL, 4, "auto")


def test_a_continued_sweep_is_cut_into_the_same_packs(store: Store) -> None:
    changes: dict[str, Any] = {"parameters": {"x": {"min": 0, "max": 1, "points": 20}}, "resources": {"pack": "auto"}}
    first = run(store, lambda launch: launch.driver.stop(INTERRUPTED), **changes)
    second = prepared(store, **changes)
    assert [group.size for group in second.plan.groups.values()] == [group.size for group in first.plan.groups.values()]


def test_knobs_share_a_measurement_and_shapes_do_not(files: SweepFiles) -> None:
    measured = sizing(files)
    speed = measured.speed(CELL, 1)
    assert measured.speed({**CELL, "x": 5.0, "rate": 0.1}, 1) is speed
    assert measured.speed({**CELL, "width": 3}, 1) is not speed


def test_a_setting_that_raises_while_it_is_measured_is_left_to_its_runs(files: SweepFiles) -> None:
    assert sizing(files).size({**CELL, "trouble": 1}, 40, "auto") == 1
    assert sizing(files).size({**CELL, "trouble": 1}, 40, 8) == 8


def test_a_sweep_whose_first_cell_raises_runs_the_others(store: Store) -> None:
    launch = run(store, parameters={"trouble": {"values": [1, 0]}}, resources={"pack": "auto"})
    assert launch.driver.progress.statuses == {"failed": 2, "done": 2}


def test_a_plan_estimates_time_and_memory_of_missing_runs(store: Store) -> None:
    known_speed(store.sweep("bowls"), {1: 1.0, 4: 0.5}, lane_bytes=1000)
    plan = prepared(store, resources={"pack": 4}).plan
    assert plan.train_seconds == pytest.approx(6 * 8 * 0.5)
    assert plan.pack_bytes == 4000
    assert plan.workers == MACHINE.workers
