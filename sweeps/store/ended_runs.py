"""The ended runs of a sweep: which seeds of each cell the store has, and how they ended."""

from collections import Counter, defaultdict
from collections.abc import Mapping

from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.outcome import Status, settled
from mislabel.sweeps.store.store import SweepFiles


class Ended:
    """The runs that the store has, by cell: their seeds and how they ended."""

    def __init__(self, spec: Spec, files: SweepFiles) -> None:
        self.seeds: dict[str, set[int]] = defaultdict(set)
        self.failed: dict[str, set[int]] = defaultdict(set)
        self.given_up: dict[str, set[int]] = defaultdict(set)
        """Of those that failed, the ones that have done so as often as the budget allows."""
        self.attempts: dict[str, dict[int, int]] = defaultdict(dict)
        """How often runs have failed that may be run again. One that was lost has not failed."""
        self.statuses: Counter[str] = Counter()
        rows = files.read("runs", ["cell_id", "seed", "status", "attempt"])
        for cell, seed, status, attempt in zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True):
            self.statuses[status] += 1
            if status in settled(spec):
                self.seeds[cell].add(seed)
                continue
            self.attempts[cell][seed] = attempt if status == Status.FAILED else attempt - 1
            if status == Status.FAILED:
                self.failed[cell].add(seed)
                if attempt >= spec.budget.tries:
                    self.given_up[cell].add(seed)

    def unwanted(self, retry: bool) -> Mapping[str, set[int]]:
        """Runs that failed and are not run again: all of them, or where they are to be retried, those given up."""
        return self.given_up if retry else self.failed

    @property
    def count(self) -> int:
        """Runs that need not be run again."""
        return sum(map(len, self.seeds.values()))
