"""Packs emptied by early stopping wait here to be merged with others at the same step.

Lanes of a pack share each operation, so a step of a nearly empty pack costs almost as much as a step of a full one.
Runs that survive a rung are therefore checkpointed there and continue together with the survivors of other packs. In
the meantime, workers begin other runs. If parked packs are at different steps, those behind catch up first.
"""

from collections import defaultdict
from dataclasses import dataclass

from mislabel.sweeps.plan.backlog import Backlog
from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.plan.plan import Shape, shape_of

# Parked packs at different steps are merged once they have enough lanes for this many full packs.
_MOST_PACKS = 2


@dataclass(frozen=True)
class Parked:
    order: PackOrder
    step: int


class RefillQueue:
    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._parked: dict[Shape, list[Parked]] = defaultdict(list)
        self._most: dict[Shape, int] = {}
        """The largest number of lanes, for shapes whose packs did not fit into memory."""

    def __len__(self) -> int:
        return sum(map(len, self._parked.values()))

    def put(self, order: PackOrder, step: int) -> None:
        """Park the rest of a pack, which is at this step."""
        self._parked[self._shape(order)].append(Parked(order, step))

    def holds(self, order: PackOrder) -> bool:
        return bool(self._parked[self._shape(order)])

    def full(self) -> PackOrder | None:
        """A full pack of runs at the same step; if very many wait, a pack of those furthest behind."""
        for shape, parked in self._parked.items():
            size = self._size(parked[0].order) if parked else 0
            lanes: dict[int, int] = defaultdict(int)
            for pack in parked:
                lanes[pack.step] += len(pack.order)
            for step in sorted(lanes, reverse=True):
                if lanes[step] >= size:
                    return self._joined(shape, [pack for pack in parked if pack.step == step], size)
            if sum(lanes.values()) >= _MOST_PACKS * size > 0:
                return self._joined(shape, parked, size)
        return None

    def next(self) -> PackOrder | None:
        """Parked packs of one shape as one order, even if that is not a full pack."""
        shape, parked = next(((shape, parked) for shape, parked in self._parked.items() if parked), ((), []))
        return self._joined(shape, parked, self._size(parked[0].order)) if parked else None

    def filled(self, order: PackOrder) -> PackOrder:
        """The order, merged with parked packs of its shape that fit into it."""
        shape = self._shape(order)
        room = self._size(order) - len(order)
        fitting = [pack for pack in self._parked[shape] if len(pack.order) <= room]
        return order.joined(self._joined(shape, fitting, room)) if fitting else order

    def limit(self, order: PackOrder, lanes: int) -> None:
        """From now on, packs of the order's shape have at most this many lanes."""
        shape = self._shape(order)
        self._most[shape] = min(lanes, self._most.get(shape, lanes))

    def fitting(self, order: PackOrder) -> list[PackOrder]:
        """The order, split if its shape has a limit."""
        most = self._most.get(self._shape(order), len(order))
        return [order.select(range(i, min(i + most, len(order)))) for i in range(0, len(order), most)]

    def _joined(self, shape: Shape, among: list[Parked], size: int) -> PackOrder:
        """Merge these packs, those behind first, until the size is reached; the first one always fits."""
        joined: PackOrder | None = None
        for pack in sorted(among, key=lambda pack: pack.step):
            if joined is None or len(joined) + len(pack.order) <= size:
                joined = pack.order if joined is None else joined.joined(pack.order)
                self._parked[shape].remove(pack)
        assert joined is not None
        return joined

    def _size(self, order: PackOrder) -> int:
        """The planned size of packs of the order's shape."""
        shape = self._shape(order)
        size = self._backlog.groups[shape].size if shape in self._backlog.groups else len(order)
        return min(size, self._most.get(shape, size))

    def _shape(self, order: PackOrder) -> Shape:
        return shape_of(self._backlog.plan.task, order.common)
