import importlib

import pytest

from mislabel.tasks.lanes import Lanes
from tests.bowls import BOWL


def test_a_held_bowl_pauses_for_steps_that_are_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `--train-every` would end a pack that a test holds."""
    bowl, training_speed = importlib.import_module("bowl"), importlib.import_module("training_speed")
    paused: list[int] = []
    monkeypatch.setattr(bowl, "pause", lambda lanes, steps: paused.append(steps))
    monkeypatch.setenv(training_speed.EVERY, "10")
    lanes = Lanes([BOWL.settings({"steps": 2000})], [0])
    training_speed._advance(bowl.advance, 1, lanes, bowl.init(lanes), 0, 20)
    assert sum(paused) == 20
