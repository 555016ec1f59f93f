import pytest

from mislabel.sweeps.plan.backlog import RefillQueue
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.store import Store
from tests.bowls import orders_of, prepared


@pytest.fixture
def launch(store: Store) -> Launch:
    """Two shapes, 24 runs of each, in packs of 8."""
    parameters = {"x": {"values": list(range(-1, 11))}, "width": {"values": [2, 3]}}
    return prepared(store, parameters=parameters, resources={"pack": 8})


@pytest.fixture
def packs(launch: Launch) -> list[PackOrder]:
    return orders_of(launch)


@pytest.fixture
def refill_queue(launch: Launch) -> RefillQueue:
    return RefillQueue(launch.driver.backlog)


def half(order: PackOrder) -> PackOrder:
    return order.select(range(4), resume=(order.id,))


def of_width(packs: list[PackOrder], width: int) -> list[PackOrder]:
    return [pack for pack in packs if pack.common["width"] == width]


def test_packs_at_the_same_step_are_merged_into_a_full_one(refill_queue: RefillQueue, packs: list[PackOrder]) -> None:
    first, second, third = map(half, of_width(packs, 2))
    refill_queue.put(first, 3)
    refill_queue.put(second, 9)
    assert refill_queue.full() is None
    refill_queue.put(third, 3)
    full = refill_queue.full()
    assert full is not None
    assert full.run_ids == first.run_ids + third.run_ids
    assert full.resume == (*first.resume, *third.resume)
    assert len(refill_queue) == 1


def test_shapes_are_not_mixed(refill_queue: RefillQueue, packs: list[PackOrder]) -> None:
    two, three = half(of_width(packs, 2)[0]), half(of_width(packs, 3)[0])
    refill_queue.put(two, 3)
    assert refill_queue.holds(of_width(packs, 2)[1])
    assert not refill_queue.holds(of_width(packs, 3)[1])
    refill_queue.put(three, 3)
    assert refill_queue.full() is None
    assert [refill_queue.next(), refill_queue.next(), refill_queue.next()] == [two, three, None]


def test_if_many_wait_those_behind_are_merged_at_different_steps(
    refill_queue: RefillQueue, packs: list[PackOrder]
) -> None:
    pieces = [piece for pack in of_width(packs, 2) for piece in (half(pack), pack.select(range(4, 8), resume=("p",)))]
    for step, piece in enumerate(pieces[:4], start=1):
        assert refill_queue.full() is None
        refill_queue.put(piece, 10 - step)
    full = refill_queue.full()
    assert full is not None
    assert full.run_ids == pieces[3].run_ids + pieces[2].run_ids


def test_a_small_order_is_merged_with_parked_packs(refill_queue: RefillQueue, packs: list[PackOrder]) -> None:
    first, second, third = of_width(packs, 2)
    refill_queue.put(half(first), 3)
    assert refill_queue.filled(second) is second
    few = third.select(range(3))
    filled = refill_queue.filled(few)
    assert filled.run_ids == few.run_ids + half(first).run_ids
    assert filled.resume == (first.id,)
    assert len(refill_queue) == 0


def test_the_last_parked_packs_are_merged_those_behind_first(refill_queue: RefillQueue, packs: list[PackOrder]) -> None:
    first, second, _ = map(half, of_width(packs, 3))
    refill_queue.put(first, 9)
    refill_queue.put(second, 3)
    order = refill_queue.next()
    assert order is not None
    assert order.run_ids == second.run_ids + first.run_ids
    assert refill_queue.next() is None
