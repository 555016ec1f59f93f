"""How many seeds each cell is to have: those of the spec, and more where a search or a race asks for them."""

from mislabel.sweeps.spec.model import Spec


class Seeding:
    def __init__(self, spec: Spec) -> None:
        self._first = spec.seeds.first
        self._count = spec.seeds.count
        self._more: dict[str, int] = {}

    def of(self, cell: str) -> range:
        """The seeds that the cell is to have: the first ones, the same for all cells."""
        return range(self._first, self._first + self._more.get(cell, self._count))

    def want(self, cell: str, seeds: int) -> None:
        """Give the cell at least this many seeds from now on."""
        self._more[cell] = max(seeds, len(self.of(cell)))
