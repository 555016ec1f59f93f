from types import SimpleNamespace

import pytest

from mislabel.sweeps.run.driver import Progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that the test moves."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr("mislabel.sweeps.run.driver.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_the_rate_is_unknown_until_workers_have_trained_for_a_few_seconds(clock: SimpleNamespace) -> None:
    progress = Progress(runs=4, work=400, began=clock.now)
    assert (progress.run_steps_per_second, progress.seconds_left) == (None, None)
    progress.first_report = clock.now
    progress.steps_done, progress.work_done = 10, 10.0
    clock.now += 2
    assert (progress.run_steps_per_second, progress.seconds_left) == (None, None)
    clock.now += 3
    assert progress.run_steps_per_second == 10 / 5
    assert progress.seconds_left == (400 - 10) * 5 / 10


def test_starting_the_workers_is_part_of_the_elapsed_time_but_not_of_the_rate(clock: SimpleNamespace) -> None:
    progress = Progress(runs=4, work=400, began=clock.now)
    clock.now += 60
    progress.first_report = clock.now
    progress.steps_done, progress.work_done = 50, 50.0
    clock.now += 10
    assert progress.elapsed == 70
    assert progress.run_steps_per_second == 5


def test_the_share_of_the_work_stays_between_0_and_1() -> None:
    assert Progress(runs=4, work=400).share == 0
    assert Progress(runs=4, work=400, work_done=100).share == 0.25
    assert Progress(runs=4, work=400, work_done=500).share == 1
    assert Progress(runs=0, work=0).share == 1


def test_no_time_is_left_once_more_work_is_done_than_was_expected(clock: SimpleNamespace) -> None:
    progress = Progress(runs=4, work=400, steps_done=500, work_done=500, first_report=clock.now)
    clock.now += 10
    assert progress.seconds_left == 0
