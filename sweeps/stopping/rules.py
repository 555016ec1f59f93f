"""The rules of `early_terminate`: when to stop a run before its last step.

A rule records the mean of every candidate at every step, again if it changes, and decides whether a candidate that was
just measured stops. A candidate is a cell (the mean over its seeds) or, with `per: run`, a single run. Candidates of
different groups are not compared. Means are costs: less is better, nan means not measured, and infinity means diverged.
"""

import math
import random
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from mislabel.sweeps.spec.model import Axis, EarlyTerminate, Spec

if TYPE_CHECKING:
    from mislabel.tasks.task import Task

Curve = Mapping[int, float]
"""A candidate's mean cost at each step."""
# Sweeps that are simulated to estimate how much a rule stops, and their largest number of cells.
_SIMULATIONS, _MOST_SIMULATED = 5, 200


def rule_of(wanted: EarlyTerminate, steps: int) -> "Halving | Median | Patience":
    """The rule for runs of this many steps."""
    if wanted.type == "median":
        return Median(wanted)
    if wanted.type == "patience":
        return Patience(wanted)
    return Halving(wanted, 1 if wanted.type == "asha" else _exponent(steps // wanted.min_steps, wanted.eta) + 1)


def decision_steps(wanted: EarlyTerminate, measured: Sequence[int]) -> frozenset[int]:
    """The measured steps at which the rule records and decides. The last step is not one of them."""
    before_last = measured[:-1]
    if wanted.type in ("median", "patience"):
        return frozenset(before_last)
    rungs, target = set(), wanted.min_steps
    while before_last and target <= before_last[-1]:
        rungs.add(next(step for step in before_last if step >= target))
        target *= wanted.eta
    return frozenset(rungs)


def expected_shares(
    wanted: EarlyTerminate, measured: Sequence[int], cells: float, at_once: float
) -> tuple[float, float]:
    """The expected shares of all steps that are trained, and of cells that are trained to the end.

    For asha and hyperband, this many cells arrive in random order, `at_once` at a time, and their order never changes.
    About half of the cells fall behind the median. How many lose `patience` can't be known: none is assumed to.
    """
    steps = measured[-1]
    if wanted.type == "patience":
        return 1.0, 1.0
    if wanted.type == "median":
        return 0.5 * (1 + min(1.0, wanted.min_steps / steps)), 0.5
    count, together = max(1, min(_MOST_SIMULATED, round(cells))), max(1, round(at_once))
    rungs, trained, finished = sorted(decision_steps(wanted, measured)), 0, 0
    for repetition in range(_SIMULATIONS):
        rule, chance = rule_of(wanted, steps), random.Random(repetition)
        ranks = {f"{repetition}.{i}": chance.random() for i in range(count)}
        for first in range(0, count, together):
            live = list(ranks)[first : first + together]
            for rung in rungs:
                for cell in live:
                    rule.record(cell, "", rung, {rung: ranks[cell]})
                stopped = {cell for cell in live if rule.should_stop(cell, "", rung, {rung: ranks[cell]})}
                trained += rung * len(stopped)
                live = [cell for cell in live if cell not in stopped]
            trained += steps * len(live)
            finished += len(live)
    return trained / (_SIMULATIONS * count * steps), finished / (_SIMULATIONS * count)


class Ranking:
    """Candidates sorted by cost, best first; equal ones by name."""

    def __init__(self) -> None:
        self._costs: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def put(self, candidate: str, cost: float) -> None:
        cost = math.inf if math.isnan(cost) else cost
        if candidate in self._costs:
            del self._order[self.rank(candidate)]
        self._costs[candidate] = cost
        insort(self._order, (cost, candidate))

    def rank(self, candidate: str) -> int:
        """0 for the best."""
        return bisect_left(self._order, (self._costs[candidate], candidate))

    def median_without(self, candidate: str) -> float:
        """The median cost of the other candidates; there must be at least one."""
        others, own = len(self._order) - 1, self.rank(candidate)
        low, high = ((i if i < own else i + 1) for i in ((others - 1) // 2, others // 2))
        return (self._order[low][0] + self._order[high][0]) / 2


class Halving:
    """Successive halving (ASHA): at each rung, only the best 1/eta of the candidates that have reached it continue.

    Rungs are min_steps times the powers of eta. The first measured step at or after a rung counts for it. With several
    brackets (Hyperband), each bracket has a higher first rung than the one before, and candidates are compared within
    their bracket. The bracket depends on the candidate's name.
    """

    def __init__(self, wanted: EarlyTerminate, brackets: int) -> None:
        self.min_steps, self.eta = wanted.min_steps, wanted.eta
        # Brackets cost about the same, so those that stop earlier start with more candidates.
        shares = [-(-brackets * self.eta**s // (s + 1)) for s in reversed(range(brackets))]
        self._share_ends = list(accumulate(shares))
        self._rankings: dict[tuple[str, int, int], Ranking] = defaultdict(Ranking)
        self._reached: dict[tuple[str, int], int] = {}

    def record(self, candidate: str, group: str, step: int, means: Curve) -> None:
        rung = self._rung(candidate, step)
        if rung is not None and self._reached.get((candidate, rung), step) >= step:
            self._reached[candidate, rung] = step
            self._rankings[group, self.bracket(candidate), rung].put(candidate, means[step])

    def should_stop(self, candidate: str, group: str, step: int, means: Curve) -> bool:
        rung = self._rung(candidate, step)
        if rung is None or self._reached[candidate, rung] != step:
            return False
        ranking = self._rankings[group, self.bracket(candidate), rung]
        return ranking.rank(candidate) >= max(1, len(ranking) // self.eta)

    def bracket(self, candidate: str) -> int:
        """The bracket is the same for all seeds of a cell, and in every launch."""
        cell = candidate.split("-")[0]
        at = int.from_bytes(blake2b(cell.encode(), digest_size=8).digest()) % self._share_ends[-1]
        return bisect_right(self._share_ends, at)

    def _rung(self, candidate: str, step: int) -> int | None:
        """The highest rung at or below this step; None below the first rung of the candidate's bracket."""
        if step < self.min_steps:
            return None
        rung = _exponent(step // self.min_steps, self.eta)
        return rung if rung >= self.bracket(candidate) else None


class Median:
    """Median rule (Vizier): stop a candidate whose best mean is worse than the median of the others' running averages.

    A running average is over all means up to this step. Only candidates that have reached this step count.
    """

    def __init__(self, wanted: EarlyTerminate) -> None:
        self.min_steps, self.min_cells = wanted.min_steps, wanted.min_cells
        self._averages: dict[tuple[str, int], Ranking] = defaultdict(Ranking)

    def record(self, candidate: str, group: str, step: int, means: Curve) -> None:
        # A seed that is measured later than the cell's others changes the averages at this and all later steps.
        for at in means:
            if at >= max(step, self.min_steps):
                upto = [cost for s, cost in means.items() if s <= at and not math.isnan(cost)]
                self._averages[group, at].put(candidate, math.fsum(upto) / len(upto) if upto else math.inf)

    def should_stop(self, candidate: str, group: str, step: int, means: Curve) -> bool:
        averages = self._averages[group, step]
        if step < self.min_steps or len(averages) <= self.min_cells:
            return False
        best = min((cost for s, cost in means.items() if s <= step and not math.isnan(cost)), default=math.inf)
        return best > averages.median_without(candidate)


class Patience:
    """Stop a candidate whose best mean has not improved by more than min_gain for `patience` steps."""

    def __init__(self, wanted: EarlyTerminate) -> None:
        assert wanted.patience is not None
        self.min_steps, self.patience, self.min_gain = wanted.min_steps, wanted.patience, wanted.min_gain

    def record(self, candidate: str, group: str, step: int, means: Curve) -> None:
        """Nothing to record: other candidates do not matter."""

    def should_stop(self, candidate: str, group: str, step: int, means: Curve) -> bool:
        best, gained_at = math.inf, min(means)
        for at in sorted(means):
            if at <= step and means[at] < best - self.min_gain:
                best, gained_at = means[at], at
        return step >= self.min_steps and step - gained_at >= self.patience


def shortest_run(spec: Spec, task: "Task[Any]") -> int:
    """The fewest `steps` that a run of the sweep can have."""
    given = spec.parameters.get("steps", task.parameters["steps"].default)
    if not isinstance(given, Axis):
        return int(given)
    ends: list[Any] = given.values or [given.min]
    return int(min(ends))


def _exponent(ratio: int, eta: int) -> int:
    """The largest k with eta**k <= ratio, for a ratio of at least 1."""
    return next(k for k in range(ratio + 1) if eta ** (k + 1) > ratio)
