"""Runs at different steps catch up, are merged, and end as they would alone."""

import numpy as np
import pytest

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.pack_group import PackGroup
from mislabel.sweeps.store.store import Store
from mislabel.tasks.pack import Frame, Label
from tests.bowls import BOWL, CPU, orders_of, prepared

Curves = dict[Label, list[tuple[int, float]]]


@pytest.fixture
def order(store: Store) -> PackOrder:
    parameters = {"x": {"values": [0, 1, 2]}, "steps": 20, "frames": 11, "spacing": "linear", "precision": "float64"}
    (order,) = orders_of(prepared(store, parameters=parameters, resources={"pack": 6}))
    return order


def curves(frames: list[Frame]) -> Curves:
    found: Curves = {}
    for frame in frames:
        for run, loss in zip(frame.labels.tolist(), frame.metrics["loss"].tolist(), strict=True):
            found.setdefault(run, []).append((frame.step, loss))
    return found


def whole(order: PackOrder) -> Curves:
    pack_group = PackGroup(BOWL, order, CPU)
    pack_group.begin(order.run_ids)
    return curves(pack_group.advance(60.0))


def runs(order: PackOrder, lanes: list[int]) -> list[str]:
    return [order.run_ids[lane] for lane in lanes]


def trained_to(order: PackOrder, lanes: list[int], until: int) -> tuple[PackGroup, list[Frame]]:
    """A group of some of the runs, trained until a frame at that step."""
    pack_group, frames = PackGroup(BOWL, order.select(lanes), CPU), []
    pack_group.begin(runs(order, lanes))
    while pack_group.step < until:
        frames += pack_group.advance(0.0)
    return pack_group, frames


def test_runs_from_two_checkpoints_and_new_ones_are_merged_and_end_as_they_would_alone(order: PackOrder) -> None:
    ahead, first = trained_to(order, [4, 1], 12)
    behind, second = trained_to(order, [5], 4)
    pack_group = PackGroup(BOWL, order, CPU)
    for saved in (*ahead.checkpoint(), *behind.checkpoint()):
        pack_group.resume(saved)
    pack_group.begin(runs(order, [0, 2, 3]))
    assert [pack.step for pack in pack_group.packs] == [0, 4, 12]
    assert pack_group.packs[0].live == runs(order, [0, 2, 3])
    frames = pack_group.advance(60.0)
    found = curves(frames)
    for run, early in {**curves(first), **curves(second)}.items():
        found[run] = early + found[run]
    expected = whole(order)
    assert found.keys() == expected.keys()
    for run, curve in expected.items():
        np.testing.assert_allclose(found[run], curve, rtol=1e-9)
    assert frames[-1].labels.tolist() == runs(order, [0, 2, 3, 5, 4, 1])
    assert pack_group.run_steps == 3 * 20 + 16 + 2 * 8
    assert pack_group.live == []


def test_a_group_resumed_from_its_own_checkpoint_continues_with_the_same_bits(order: PackOrder) -> None:
    ahead, _ = trained_to(order, [4, 1], 12)
    first = PackGroup(BOWL, order, CPU)
    first.resume(ahead.checkpoint()[0])
    first.begin(runs(order, [0, 2, 3, 5]))
    early = first.advance(0.0)
    second = PackGroup(BOWL, order, CPU)
    for saved in first.checkpoint():
        second.resume(saved)
    assert second.steps() == first.steps()
    assert curves(second.advance(60.0)) == curves(first.advance(60.0))
    assert early


def test_unwanted_runs_of_a_checkpoint_are_dropped_and_no_run_is_resumed_twice(order: PackOrder) -> None:
    one, _ = trained_to(order, [0, 1, 2], 6)
    two, _ = trained_to(order, [2, 3], 8)
    pack_group = PackGroup(BOWL, order.select([1, 2, 3]), CPU)
    assert pack_group.resume(one.checkpoint()[0]) == runs(order, [1, 2])
    assert pack_group.resume(two.checkpoint()[0]) == runs(order, [3])
    assert sorted(map(str, pack_group.live)) == sorted(runs(order, [1, 2, 3]))


def test_a_judge_sees_run_ids_and_training_ends_with_the_fewest_lanes(order: PackOrder) -> None:
    ahead, _ = trained_to(order, [4, 1], 12)
    pack_group = PackGroup(BOWL, order, CPU)
    pack_group.resume(ahead.checkpoint()[0])
    pack_group.begin(runs(order, [0, 2, 3, 5]))
    seen: list[list[Label]] = []

    def judge(frame: Frame) -> list[str]:
        seen.append(frame.labels.tolist())
        return runs(order, [3, 5] if frame.step == 8 else [1] if frame.step == 14 else [])

    pack_group.advance(60.0, judge, fewest=3)
    assert pack_group.steps() == dict.fromkeys(runs(order, [0, 2, 4]), 14)
    assert seen[0] == runs(order, [0, 2, 3, 5])
    assert seen[-1] == runs(order, [0, 2, 4, 1])
