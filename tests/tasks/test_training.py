"""Measured steps: each step once, the first and the last included; arrays at some of them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.tasks.training import Training, measured_steps, snapshot_steps

TRAININGS = st.builds(
    Training,
    steps=st.integers(1, 10**7),
    frames=st.integers(2, 200),
    spacing=st.sampled_from(["linear", "log"]),
    snapshots=st.integers(0, 250),
)


@given(TRAININGS)
def test_measured_steps_increase_from_0_to_the_last_step(training: Training) -> None:
    steps = measured_steps(training)
    assert steps[0] == 0
    assert steps[-1] == training.steps
    assert len(steps) <= training.frames
    assert all(before < after for before, after in itertools.pairwise(steps))


@given(TRAININGS)
def test_snapshots_are_frames_and_the_last_frame_is_among_them(training: Training) -> None:
    steps, snapshots = measured_steps(training), snapshot_steps(training)
    assert snapshots <= set(steps)
    assert len(snapshots) <= training.snapshots
    assert (training.steps in snapshots) == (training.snapshots > 0)


@pytest.mark.parametrize(
    ("spacing", "expected"), [("linear", [0, 250, 500, 750, 1000]), ("log", [0, 1, 10, 100, 1000])]
)
def test_frames_are_spaced_as_asked(spacing: str, expected: list[int]) -> None:
    assert measured_steps(Training(steps=1000, frames=5, spacing=spacing)) == expected


def test_short_runs_are_measured_at_every_step() -> None:
    assert measured_steps(Training(steps=3, frames=50)) == [0, 1, 2, 3]
    assert measured_steps(Training(steps=1, frames=2)) == [0, 1]


def test_snapshots_are_spread_over_the_frames() -> None:
    training = Training(steps=100, frames=11, spacing="linear", snapshots=3)
    assert snapshot_steps(training) == {0, 50, 100}
    assert snapshot_steps(Training(steps=100, frames=11, spacing="linear", snapshots=11)) == set(range(0, 101, 10))
