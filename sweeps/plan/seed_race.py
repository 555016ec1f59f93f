"""A race between cells: those that may still be the best are run from more seeds, clear losers are left as they are.

All cells begin with `seeds.count` seeds. In each round the cells in the race double their seeds, up to `seeds.up_to`,
and each is compared with the leader, the cell of the best mean: seeds are common to all cells, so by the differences
seed by seed (a paired t test, one-sided). A cell that is worse beyond doubt leaves the race. The level of the test is
shared out over rounds and cells, so that whoever leads by luck, the best cell is dropped in at most one race in twenty.
A race ends when one cell is left or all have `up_to` seeds. Cells that diverged, failed or were stopped early take no
part.
"""

import math
from collections.abc import Iterable

import numpy as np
from scipy import stats

from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.cell_means import Means

# The chance that the best cell is dropped.
_ERROR = 0.05


class Race:
    """One race in each branch of a sweep; what it decides follows from the means alone, after a restart as before."""

    def __init__(self, spec: Spec, means: Means) -> None:
        assert spec.seeds.up_to is not None
        self.means = means
        self.seeds = spec.seeds.count
        """Seeds of the cells that are in the race."""
        self.racing: list[list[str]] = []
        """The cells in the race, branch by branch; the leader of each comes first."""
        self._up_to = spec.seeds.up_to
        self._level = _ERROR / max(1, math.ceil(math.log2(self._up_to / self.seeds)))
        self._sign = 1 if means.goal == "minimize" else -1
        self._begun = False

    def begin(self, branches: Iterable[Iterable[str]]) -> None:
        """Put the cells in the race. All of them have ended with the seeds that the spec gives them."""
        if not self._begun:
            self.racing = [self._comparable(cells) for cells in branches]
            self._begun = True

    def go_on(self) -> list[str]:
        """The cells that are to get more seeds now: until these have ended, there is nothing to decide.

        None are left when the race is over.
        """
        while self.seeds < self._up_to:
            self.racing = [self._left(self._comparable(cells)) for cells in self.racing]
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

    def _left(self, cells: list[str]) -> list[str]:
        """The leader, and those that are not worse than it beyond doubt."""
        if len(cells) < 2:
            return cells
        seeds = self.means.seeding.of(cells[0])
        values = self._sign * np.array([[self.means.by_seed(cell)[seed][0] for seed in seeds] for cell in cells])
        leader = int(values.mean(axis=1).argmin())
        worse = beyond_doubt(values - values[leader], self._level / (len(cells) - 1))
        return [cells[leader], *(cell for i, cell in enumerate(cells) if i != leader and not worse[i])]


def beyond_doubt(differences: np.ndarray, level: float) -> np.ndarray:
    """Which rows (one value per seed) have a mean above 0, by a one-sided t test at this level."""
    count = differences.shape[1]
    if count < 2:
        return np.zeros(len(differences), bool)
    mean, error = differences.mean(axis=1), differences.std(axis=1, ddof=1) / math.sqrt(count)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 / 0: no difference at all, which is no doubt removed
        t = mean / error
    worse: np.ndarray = stats.t.sf(t, count - 1) < level
    return worse
