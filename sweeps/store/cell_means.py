"""The seeds of each cell, and the mean of its objectives over them, for searches, seed races and the progress line."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
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


# A run's objectives, the step at which a rule stopped it, and whether it has a result. These are plain tuples because
# there may be millions: Python's garbage collector does not track tuples of numbers.
_Ended = tuple[tuple[float, ...], int | None, bool]


class Means:
    """The means of cells over the seeds that each cell should have, from the store and from runs that ended since."""

    def __init__(self, spec: Spec, index: RunIndex, retry: bool = False, seeding: Seeding | None = None) -> None:
        self.names = [objective.name for objective in spec.metric]
        self.goal = spec.metric[0].goal if spec.metric else "minimize"
        self.best: tuple[float, str] | None = None
        """The best value of the first objective, and its cell: the best mean over all seeds that have ended.

        A cell counts once the seeds of the spec have ended. While it gets more seeds, it keeps a mean.
        """
        self.seeding = seeding or Seeding(spec)
        self._first_seeds = spec.seed_range
        self._runs: dict[str, dict[int, _Ended]] = defaultdict(dict)
        self._standings: dict[str, float] = {}
        """By cell, the mean of the first objective; only cells that can be compared."""
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
        self._runs[outcome.cell][outcome.seed] = (values, stopped_at, outcome.status.has_result)
        self._rank(outcome.cell)

    def _rank(self, cell: str) -> None:
        runs, sign = self._runs[cell], 1 if self.goal == "minimize" else -1
        if not self.names or any(seed not in runs for seed in self._first_seeds):
            return
        # A further seed that failed says nothing about the cell.
        found = _mean_of([run for seed, run in sorted(runs.items()) if seed in self._first_seeds or run[2]])
        if found.comparable:
            self._standings[cell] = found.values[0]
        else:
            self._standings.pop(cell, None)
        if self.best is not None and self.best[1] == cell:  # over more seeds, its mean may be worse
            values = ((sign * value, other) for other, value in self._standings.items())
            value, best = min(values, key=lambda standing: standing[0], default=(math.nan, ""))
            self.best = (sign * value, best) if best else None
        elif found.comparable and (self.best is None or sign * found.values[0] < sign * self.best[0]):
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
        return _mean_of(ended)


def _mean_of(ended: Sequence[_Ended]) -> Mean:
    columns = zip(*(objectives for objectives, _, _ in ended), strict=True)
    values = tuple(mean(column, missing="poison") for column in columns)
    stops = [step for _, step, _ in ended if step is not None]
    return Mean(values, min(stops, default=None))
