"""The seeds of each cell: those of the spec, and more where a search or a seed race asks for them."""

from mislabel.sweeps.spec.model import Spec


class Seeding:
    def __init__(self, spec: Spec) -> None:
        self._first = spec.seeds.first
        self._count = spec.seeds.count
        self._more: dict[str, int] = {}

    def of(self, cell: str) -> range:
        """The seeds that the cell needs. All cells start with the same seeds."""
        return range(self._first, self._first + self._more.get(cell, self._count))

    def want(self, cell: str, seeds: int) -> None:
        """Give the cell at least this many seeds from now on."""
        self._more[cell] = max(seeds, len(self.of(cell)))
