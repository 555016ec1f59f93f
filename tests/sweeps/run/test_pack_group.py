"""Runs that have come unequally far: they catch up, meet, and end as they would have alone."""

import numpy as np
import pytest

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.pack_group import PackGroup
from mislabel.sweeps.store.store import Store
from mislabel.tasks.pack import Frame
from tests.bowls import BOWL, CPU, orders_of, prepared

Curves = dict[int, list[tuple[int, float]]]


@pytest.fixture
def order(store: Store) -> PackOrder:
    parameters = {"x": {"values": [0, 1, 2]}, "steps": 20, "frames": 11, "spacing": "linear", "precision": "float64"}
    (order,) = orders_of(prepared(store, parameters=parameters, resources={"pack": 6}))
    return order


def curves(frames: list[Frame]) -> Curves:
    found: Curves = {}
    for frame in frames:
        for lane, loss in zip(frame.lanes.tolist(), frame.metrics["loss"].tolist(), strict=True):
            found.setdefault(lane, []).append((frame.step, loss))
    return found


def whole(order: PackOrder) -> Curves:
    pack_group = PackGroup(BOWL, order, CPU)
    pack_group.begin(range(6))
    return curves(pack_group.advance(60.0))


def taken_to(order: PackOrder, lanes: list[int], until: int) -> tuple[PackGroup, list[Frame]]:
    """A convoy of some of the runs, advanced until a frame at that step."""
    pack_group, frames = PackGroup(BOWL, order.select(lanes), CPU), []
    pack_group.begin(range(len(lanes)))
    while pack_group.step < until:
        frames += pack_group.advance(0.0)
    return pack_group, frames


def test_runs_from_two_checkpoints_and_fresh_ones_meet_and_end_as_they_would_alone(order: PackOrder) -> None:
    ahead, first = taken_to(order, [4, 1], 12)
    behind, second = taken_to(order, [5], 4)
    pack_group = PackGroup(BOWL, order, CPU)
    for saved in (*ahead.checkpoint(), *behind.checkpoint()):
        pack_group.take_up(saved)
    pack_group.begin([0, 2, 3])
    assert [member.pack.step for member in pack_group.members] == [0, 4, 12]
    assert pack_group.members[0].live == [0, 2, 3]
    frames = pack_group.advance(60.0)
    found = curves(frames)
    for lane, early in {4: curves(first)[0], 1: curves(first)[1], 5: curves(second)[0]}.items():
        found[lane] = early + found[lane]
    expected = whole(order)
    assert found.keys() == expected.keys()
    for lane, curve in expected.items():
        np.testing.assert_allclose(found[lane], curve, rtol=1e-9)
    assert frames[-1].lanes.tolist() == [0, 2, 3, 5, 4, 1]
    assert pack_group.run_steps == 3 * 20 + 16 + 2 * 8
    assert pack_group.live == []


def test_a_convoy_taken_up_from_its_own_checkpoint_goes_on_as_it_was(order: PackOrder) -> None:
    ahead, _ = taken_to(order, [4, 1], 12)
    first = PackGroup(BOWL, order, CPU)
    first.take_up(ahead.checkpoint()[0])
    first.begin([0, 2, 3, 5])
    early = first.advance(0.0)
    second = PackGroup(BOWL, order, CPU)
    for saved in first.checkpoint():
        second.take_up(saved)
    assert second.steps() == first.steps()
    assert curves(second.advance(60.0)) == curves(first.advance(60.0))
    assert early


def test_what_the_order_does_not_want_is_dropped_and_no_run_is_taken_twice(order: PackOrder) -> None:
    one, _ = taken_to(order, [0, 1, 2], 6)
    two, _ = taken_to(order, [2, 3], 8)
    pack_group = PackGroup(BOWL, order.select([1, 2, 3]), CPU)
    assert pack_group.take_up(one.checkpoint()[0]) == [0, 1]
    assert pack_group.take_up(two.checkpoint()[0]) == [2]
    assert sorted(pack_group.live) == [0, 1, 2]


def test_a_judge_sees_lanes_as_the_order_counts_them_and_training_ends_with_the_fewest(order: PackOrder) -> None:
    ahead, _ = taken_to(order, [4, 1], 12)
    pack_group = PackGroup(BOWL, order, CPU)
    pack_group.take_up(ahead.checkpoint()[0])
    pack_group.begin([0, 2, 3, 5])
    seen: list[list[int]] = []

    def judge(frame: Frame) -> list[int]:
        seen.append(frame.lanes.tolist())
        return [3, 5] if frame.step == 8 else [1] if frame.step == 14 else []

    pack_group.advance(60.0, judge, fewest=3)
    assert pack_group.steps() == {0: 14, 2: 14, 4: 14}
    assert seen[0] == [0, 2, 3, 5]
    assert seen[-1] == [0, 2, 4, 1]
