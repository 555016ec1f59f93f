"""Packs that have lost lanes to early stopping, and wait to be filled up: with each other and with runs that wait.

Lanes of a pack share each operation, so a pack of few lanes pays nearly as much for a step as a full one. The runs of a
parked pack go on from its checkpoint beside others of their shape, once those have caught up.
"""

from collections import deque

from sweeps.order import PackOrder
from sweeps.plan import Plan


class Parking:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rest: deque[PackOrder] = deque()
        """Runs that were to fill up a pack and found no room: they come next."""
        self._parked: list[PackOrder] = []

    def __len__(self) -> int:
        return len(self._parked)

    def put(self, order: PackOrder) -> None:
        """Park what is left of a pack."""
        self._parked.append(order)

    def holds(self, order: PackOrder) -> bool:
        """Whether something of the order's shape waits here."""
        return any(self._shape(other) == self._shape(order) for other in (*self._parked, *self.rest))

    def filled(self, order: PackOrder) -> PackOrder:
        """The order together with parked packs of its shape, up to the planned size; what finds no room waits."""
        size = self.size_of(order)
        taken = self._taken(self._shape(order), size)
        if taken is None:
            return order
        room = self._whole_cells(order, size - len(taken))
        if room < len(order):
            self.rest.appendleft(order.select(range(room, len(order))))
        return taken.joined(order.select(range(room))) if room else taken

    def next(self) -> PackOrder | None:
        """Parked packs of one shape as one order, where nothing else waits that could fill them up."""
        if not self._parked:
            return None
        first = self._parked[0]
        return self._taken(self._shape(first), self.size_of(first))

    def size_of(self, order: PackOrder) -> int:
        """The planned size of packs of the order's shape."""
        shapes = self.plan.task.names("shape")
        for group in self.plan.groups.values():
            if all(group.values[name] == order.common[name] for name in shapes):
                return group.size
        return len(order)

    def _taken(self, shape: tuple[object, ...], size: int) -> PackOrder | None:
        """Parked packs of the shape that fit together; the first one always does."""
        joined: PackOrder | None = None
        for parked in [other for other in self._parked if self._shape(other) == shape]:
            if joined is None or len(joined) + len(parked) <= size:
                joined = parked if joined is None else joined.joined(parked)
                self._parked.remove(parked)
        return joined

    def _whole_cells(self, order: PackOrder, room: int) -> int:
        """How many runs of the order fit in, without parting the seeds of a cell where a rule compares cells."""
        room = max(0, min(room, len(order)))
        rule = self.plan.spec.early_terminate
        if rule is not None and rule.per == "cell" and not order.resume:
            while 0 < room < len(order) and order.cells[room] == order.cells[room - 1]:
                room -= 1
        return room if not order.resume or room == len(order) else 0

    def _shape(self, order: PackOrder) -> tuple[object, ...]:
        return tuple(order.common[name] for name in self.plan.task.names("shape"))
