"""Each cell's objectives over its seeds: what a search is told, a race compares and the screen shows."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from mislabel.sweeps.cells.seeds import Seeding
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.outcome import Outcome, Status, settled
from mislabel.sweeps.store.run_index import RunIndex


@dataclass(frozen=True)
class Mean:
    """The mean of each objective over a cell's seeds; nan where a seed has none."""

    values: tuple[float, ...]
    stopped_at: int | None = None
    """The step at which a stopping rule ended the first of its runs; None where none was."""

    @property
    def comparable(self) -> bool:
        """Whether it can be ranked among cells that were trained to the end."""
        return self.stopped_at is None and all(map(math.isfinite, self.values))


# A run's objectives, and the step at which a rule stopped it. There may be millions: the garbage collector passes over
# plain tuples of numbers, and would take longer and longer with objects.
_Ended = tuple[tuple[float, ...], int | None]


class Means:
    """Means of cells, from the store and from what has ended since, over as many seeds as each cell is to have."""

    def __init__(self, spec: Spec, index: RunIndex, retry: bool = False, seeding: Seeding | None = None) -> None:
        self.names = [objective.name for objective in spec.metric]
        self.goal = spec.metric[0].goal if spec.metric else "minimize"
        self.best: tuple[float, str] | None = None
        self.seeding = seeding or Seeding(spec)
        self._runs: dict[str, dict[int, _Ended]] = defaultdict(dict)
        if not self.names:
            return
        # Runs that failed have no metrics, and get none unless they are run again.
        statuses, tries = settled(spec), spec.budget.tries if retry else 0
        measured = [name for name in self.names if index.has([name])]
        columns = index.columns("cell_id", "seed", "status", "attempt", "step", *measured)
        for cell, seed, status, attempt, step, *values in zip(*columns, strict=True):
            if status in statuses or (status == Status.FAILED and attempt >= tries):
                known = {n: value for n, value in zip(measured, values, strict=True) if value is not None}
                self.add(Outcome(cell, seed, Status(status), known, step))

    def add(self, outcome: Outcome) -> None:
        stopped_at = outcome.step if outcome.status == Status.STOPPED else None
        values = tuple(outcome.metrics.get(name, math.nan) for name in self.names)
        self._runs[outcome.cell][outcome.seed] = (values, stopped_at)
        if self.best is not None and self.best[1] == outcome.cell:  # its mean, over more seeds now, may be worse
            self.best = None
            for cell in self._runs:
                self._note_if_best(cell)
        else:
            self._note_if_best(outcome.cell)

    def _note_if_best(self, cell: str) -> None:
        mean = self.of(cell)
        if mean is None or not mean.comparable:
            return
        sign = 1 if self.goal == "minimize" else -1
        if self.best is None or sign * mean.values[0] < sign * self.best[0]:
            self.best = (mean.values[0], cell)

    def by_seed(self, cell: str) -> Mapping[int, tuple[float, ...]]:
        """The objectives of the cell's runs that ended, by seed."""
        seeds, runs = self.seeding.of(cell), self._runs.get(cell, {})
        return {seed: runs[seed][0] for seed in seeds if seed in runs}

    def of(self, cell: str) -> Mean | None:
        """The cell's mean once all seeds that it is to have have ended, else None."""
        seeds, runs = self.seeding.of(cell), self._runs.get(cell, {})
        # In the order of the seeds, so that the sum has the same bits whenever it is made.
        ended = [runs[seed] for seed in seeds if seed in runs]
        if not self.names or len(ended) < len(seeds):
            return None
        columns = zip(*(objectives for objectives, _ in ended), strict=True)
        values = tuple(sum(column) / len(ended) for column in columns)
        stops = [step for _, step in ended if step is not None]
        return Mean(values, min(stops, default=None))

    def complete(self) -> dict[str, Mean]:
        """The mean of every cell whose seeds have all ended."""
        means = {cell: self.of(cell) for cell in self._runs}
        return {cell: mean for cell, mean in means.items() if mean is not None}
