import dataclasses
import time
from typing import Any

import pytest

from mislabel.sweeps.plan.pack_size import Speed, measure_speed
from mislabel.tasks.data.images import forget
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.registry import find_task
from tests.bowls import BOWL, CPU

CELL = {name: parameter.default for name, parameter in BOWL.parameters.items()}


def test_the_memory_of_a_lane_grows_with_its_tensors() -> None:
    narrow = measure_speed(BOWL, {**CELL, "width": 2}, CPU, 1 << 30, most=4).lane_bytes
    wide = measure_speed(BOWL, {**CELL, "width": 64}, CPU, 1 << 30, most=4).lane_bytes
    assert 64 * 4 < wide < 100 * 64 * 8
    assert narrow < wide


@pytest.mark.long
def test_data_that_packs_share_does_not_count_as_memory_of_a_lane() -> None:
    task = find_task("self_labeling.sane")
    values = {name: parameter.default for name, parameter in task.parameters.items()}
    values.update({**task.small, "samples": 0})
    forget()
    speed = measure_speed(task, values, CPU, 1 << 30, most=1)
    state = Pack(task, Lanes([task.settings(values)], [0])).state_bytes
    assert speed.lane_bytes > state


def test_measuring_trains_no_step_beyond_the_last() -> None:
    """A task may have no data or schedule for later steps."""
    beyond = []

    def advance(lanes: Any, state: Any, start: int, stop: int) -> Any:
        beyond.append(stop > lanes.shape.steps)
        return BOWL.advance(lanes, state, start, stop)

    for block in (1, 3, 16):
        measure_speed(dataclasses.replace(BOWL, advance=advance, block=block), CELL, CPU, 1 << 30, most=4)
    assert beyond
    assert not any(beyond)


@pytest.mark.long
def test_a_task_with_slow_steps_is_measured_alone_for_two_steps() -> None:
    tried = []

    def advance(lanes: Any, state: Any, start: int, stop: int) -> Any:
        tried.append((len(lanes), stop - start))
        time.sleep(0.3)
        return BOWL.advance(lanes, state, start, stop)

    speed = measure_speed(dataclasses.replace(BOWL, advance=advance), CELL, CPU, 1 << 30)
    assert tried == [(1, 1), (1, 1)]
    assert speed.best_size == 1
    assert not speed.more_may_pay
    assert speed.run_step_seconds[1] >= 0.3


def test_the_speed_between_two_sizes_is_that_of_the_smaller_one() -> None:
    speed = Speed({1: 4.0, 4: 2.0, 16: 1.0}, measure_seconds=0.5, lane_bytes=1, more_may_pay=False)
    assert [speed.at(lanes) for lanes in (1, 3, 4, 15, 16, 100)] == [4, 4, 2, 2, 1, 1]
    assert speed.run_seconds(4, steps=10, frames=3) == 10 * 2 + 3 * 0.5
