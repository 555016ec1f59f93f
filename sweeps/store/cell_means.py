"""The seeds of each cell, and the mean of its objectives over them, for searches, seed races and the progress line."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.statistics import mean
from mislabel.sweeps.store.outcome import Outcome, Status, settled
from mislabel.sweeps.store.run_index import RunIndex


class Seeding:
    """The seeds of each cell: those of the spec, and more where a search or a seed race asks for them."""

    def __init__(self, spec: Spec) -> None:
        self._seeds = spec.seeds
        self._more: dict[str, int] = {}

    def of(self, cell: str) -> range:
        """The seeds that the cell needs. All cells start with the same seeds."""
        return range(self._seeds.first, self._seeds.first + self._more.get(cell, self._seeds.count))

    def want(self, cell: str, seeds: int) -> None:
        """Give the cell at least this many seeds from now on."""
        self._more[cell] = max(seeds, len(self.of(cell)))


@dataclass(frozen=True)
class Mean:
    """The mean of each objective over a cell's seeds; NaN if a seed has no value."""

    values: tuple[float, ...]
    stopped_at: int | None = None
    """The step at which a stopping rule ended the first of its runs; None if it ended none."""

    @property
    def comparable(self) -> bool:
        """Whether the cell can be compared with others: its runs were trained to the end and have a value."""
        return self.stopped_at is None and all(map(math.isfinite, self.values))


# A run's objectives, and the step at which a rule stopped it. These are plain tuples because there may be millions:
# Python's garbage collector does not track tuples of numbers.
_Ended = tuple[tuple[float, ...], int | None]


class Means:
    """The means of cells over the seeds that each cell should have, from the store and from runs that ended since."""

    def __init__(self, spec: Spec, index: RunIndex, retry: bool = False, seeding: Seeding | None = None) -> None:
        self.names = [objective.name for objective in spec.metric]
        self.goal = spec.metric[0].goal if spec.metric else "minimize"
        self.best: tuple[float, str] | None = None
        self.seeding = seeding or Seeding(spec)
        self._runs: dict[str, dict[int, _Ended]] = defaultdict(dict)
        if not self.names:
            return
        # A failed run counts as ended without a value, unless it is tried again.
        statuses, tries = settled(spec), spec.budget.tries if retry else 0
        measured = [name for name in self.names if index.has([name])]
        columns = index.columns("cell_id", "seed", "status", "attempt", "step", *measured)
        for cell, seed, status, attempt, step, *values in zip(*columns, strict=True):
            if status in statuses or (status == Status.FAILED and attempt >= tries):
                known = {n: value for n, value in zip(measured, values, strict=True) if value is not None}
                self.add(Outcome(cell, seed, Status(status), known, step))

    def add(self, outcome: Outcome) -> None:
        stopped_at = outcome.step if outcome.status == Status.STOPPED else None
        metrics = {} if outcome.status == Status.DIVERGED else outcome.metrics
        values = tuple(metrics.get(name, math.nan) for name in self.names)
        self._runs[outcome.cell][outcome.seed] = (values, stopped_at)
        if self.best is not None and self.best[1] == outcome.cell:  # over more seeds, its mean may be worse
            self.best = None
            for cell in self._runs:
                self._note_if_best(cell)
        else:
            self._note_if_best(outcome.cell)

    def _note_if_best(self, cell: str) -> None:
        found = self.of(cell)
        if found is None or not found.comparable:
            return
        sign = 1 if self.goal == "minimize" else -1
        if self.best is None or sign * found.values[0] < sign * self.best[0]:
            self.best = (found.values[0], cell)

    def by_seed(self, cell: str) -> Mapping[int, tuple[float, ...]]:
        """The objectives of the cell's ended runs, by seed."""
        runs = self._runs.get(cell, {})
        return {seed: runs[seed][0] for seed in self.seeding.of(cell) if seed in runs}

    def of(self, cell: str) -> Mean | None:
        """The cell's mean once all its seeds have ended, else None."""
        seeds, runs = self.seeding.of(cell), self._runs.get(cell, {})
        ended = [runs[seed] for seed in seeds if seed in runs]
        if not self.names or len(ended) < len(seeds):
            return None
        columns = zip(*(objectives for objectives, _ in ended), strict=True)
        values = tuple(mean(column, missing="poison") for column in columns)
        stops = [step for _, step in ended if step is not None]
        return Mean(values, min(stops, default=None))
