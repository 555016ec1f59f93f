"""A race between cells: cells that may be the best get more seeds; cells that are clearly worse do not.

All cells start with `seeds.count` seeds. In each round, the cells in the race double their seeds, up to `seeds.up_to`.
Then each is compared with the leader, the cell with the best mean, by a one-sided paired t test: all cells have the
same seeds. A cell that is significantly worse leaves the race. The level of the test is divided by the number of rounds
and cells, so that the best cell is dropped in at most one race in twenty, even if another cell leads by luck. A race
ends when one cell is left or all have `up_to` seeds. Cells that diverged, failed or were stopped early do not race.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from scipy import stats

from mislabel.sweeps.cells.space import branch_of
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Means
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.tasks.parameters import Value

# The probability that the best cell is dropped.
_ERROR = 0.05


class Race:
    """One race in each branch of a sweep. Its decisions depend on the means alone, so a restart changes nothing."""

    def __init__(self, spec: Spec, means: Means, branches: Iterable[Iterable[str]]) -> None:
        """Start the race of these cells, all of which have ended with the seeds of the spec."""
        assert spec.seeds.up_to is not None
        self.means = means
        self.seeds = spec.seeds.count
        """How many seeds the cells in the race have."""
        self.racing = [self._comparable(cells) for cells in branches]
        """The cells in the race by branch; the leader comes first."""
        self._up_to = spec.seeds.up_to
        self._level = _ERROR / max(1, math.ceil(math.log2(self._up_to / self.seeds)))
        self._sign = 1 if means.goal == "minimize" else -1

    def next_round(self) -> list[str]:
        """The cells that get more seeds now; empty if the race is over. Call this again when they have ended."""
        while self.seeds < self._up_to:
            self.racing = [self._contenders(self._comparable(cells)) for cells in self.racing]
            contenders = [cell for cells in self.racing for cell in cells if len(cells) > 1]
            if not contenders:
                return []
            self.seeds = min(2 * self.seeds, self._up_to)
            for cell in contenders:
                self.means.seeding.want(cell, self.seeds)
            self.racing = [cells for cells in self.racing if len(cells) > 1]
            missing = [cell for cell in contenders if self.means.of(cell) is None]
            if missing:
                return missing
        return []

    def _comparable(self, cells: Iterable[str]) -> list[str]:
        return [cell for cell in cells if (mean := self.means.of(cell)) is not None and mean.comparable]

    def _contenders(self, cells: list[str]) -> list[str]:
        """The leader, and the cells that are not significantly worse."""
        if len(cells) < 2:
            return cells
        seeds = self.means.seeding.of(cells[0])
        values = self._sign * np.array([[self.means.by_seed(cell)[seed][0] for seed in seeds] for cell in cells])
        leader = int(values.mean(axis=1).argmin())
        worse = significantly_positive(values - values[leader], self._level / (len(cells) - 1))
        return [cells[leader], *(cell for i, cell in enumerate(cells) if i != leader and not worse[i])]


def race_is_on(spec: Spec, index: RunIndex, retry: bool) -> bool:
    """Whether some cells of a sweep whose runs have all ended still get more seeds."""
    if spec.seeds.up_to is None:
        return False
    branches = cells_by_branch(spec, index.cells(list(spec.axes())))
    return bool(Race(spec, Means(spec, index, retry), branches).next_round())


def cells_by_branch(spec: Spec, cells: Mapping[str, Mapping[str, Value]]) -> list[list[str]]:
    """The cells of each branch, in an order that does not depend on when they ended."""
    axes = spec.branch_axes()
    branches: dict[str, list[str]] = defaultdict(list)
    for cell, values in sorted(cells.items()):
        branches[branch_of(values, axes)].append(cell)
    return [cells for _, cells in sorted(branches.items())]


def significantly_positive(differences: np.ndarray, level: float) -> np.ndarray:
    """Which rows (one value per seed) have a mean significantly above 0, by a one-sided t test at this level."""
    count = differences.shape[1]
    if count < 2:
        return np.zeros(len(differences), bool)
    mean, error = differences.mean(axis=1), differences.std(axis=1, ddof=1) / math.sqrt(count)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0: no difference, so not significant
        t = mean / error
    worse: np.ndarray = stats.t.sf(t, count - 1) < level
    return worse
