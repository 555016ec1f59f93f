"""When a run is given up before its last step: the rules of `early_terminate`.

A rule is told, contender by contender, the means at the steps measured so far, and says whether a contender that has
just been measured goes on. A contender is a cell (its mean over seeds) or, with `per: run`, a single run. Means are
costs: less is better, nan is nothing measured, infinity is a run that diverged.
"""

import math
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Protocol

from mislabel.sweeps.spec.model import Axis, EarlyTerminate, Spec

if TYPE_CHECKING:
    from mislabel.tasks.task import Task

Curve = Mapping[int, float]
"""A contender's mean cost by step."""


class Rule(Protocol):
    def told(self, contender: str, group: str, step: int, means: Curve) -> None:
        """The contender's mean at this step is new, or another. Only contenders of one group are compared."""

    def stops(self, contender: str, group: str, step: int, means: Curve) -> bool:
        """Whether a contender that was just measured at this step is given up."""


def rule_of(wanted: EarlyTerminate, steps: int) -> Rule:
    """The rule, for runs of that many steps."""
    match wanted.type:
        case "asha":
            return Halving(wanted.min_steps, wanted.eta)
        case "hyperband":
            return Halving(wanted.min_steps, wanted.eta, _exponent(steps // wanted.min_steps, wanted.eta) + 1)
        case "median":
            return Median(wanted.min_steps, wanted.min_cells)
        case "patience":
            assert wanted.patience is not None
            return Patience(wanted.min_steps, wanted.patience, wanted.min_gain)


def judged_steps(wanted: EarlyTerminate, measured: Sequence[int]) -> frozenset[int]:
    """The steps at which the rule is to be told, of those at which a run is measured; the last is not among them."""
    before_last = measured[:-1]
    if wanted.type in ("median", "patience"):
        return frozenset(before_last)
    rungs, target = set(), wanted.min_steps
    while before_last and target <= before_last[-1]:
        rungs.add(next(step for step in before_last if step >= target))
        target *= wanted.eta
    return frozenset(rungs)


class Ranking:
    """Contenders in the order of their costs, best first; equal ones in the order of their names."""

    def __init__(self) -> None:
        self._costs: dict[str, float] = {}
        self._order: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def put(self, contender: str, cost: float) -> None:
        cost = math.inf if math.isnan(cost) else cost
        if contender in self._costs:
            del self._order[self.place(contender)]
        self._costs[contender] = cost
        insort(self._order, (cost, contender))

    def place(self, contender: str) -> int:
        """0 for the best."""
        return bisect_left(self._order, (self._costs[contender], contender))

    def median_without(self, contender: str) -> float:
        """The median of the others' costs, of which there is at least one."""
        others, own = len(self._order) - 1, self.place(contender)
        low, high = ((i if i < own else i + 1) for i in ((others - 1) // 2, others // 2))
        return (self._order[low][0] + self._order[high][0]) / 2


class Halving:
    """At rungs, min_steps times a power of eta, the best one in eta of those who have come there so far goes on (ASHA).

    The first measured step at or after a rung counts for it. With several brackets (Hyperband), the later a bracket the
    higher its first rung, and contenders are compared within theirs; a contender's name decides its bracket.
    """

    def __init__(self, min_steps: int, eta: int, brackets: int = 1) -> None:
        self.min_steps = min_steps
        self.eta = eta
        self.brackets = brackets
        # Hyperband's: all brackets together cost about the same, so that those who stop early have more contenders.
        self._shares = [-(-brackets * eta**s // (s + 1)) for s in reversed(range(brackets))]
        self._rankings: dict[tuple[str, int, int], Ranking] = defaultdict(Ranking)
        self._came: dict[tuple[str, int], int] = {}

    def told(self, contender: str, group: str, step: int, means: Curve) -> None:
        rung = self._rung(contender, step)
        if rung is None or self._came.get((contender, rung), step) < step:
            return
        self._came[contender, rung] = step
        self._rankings[group, self.bracket(contender), rung].put(contender, means[step])

    def stops(self, contender: str, group: str, step: int, means: Curve) -> bool:
        rung = self._rung(contender, step)
        if rung is None or self._came[contender, rung] != step:
            return False
        ranking = self._rankings[group, self.bracket(contender), rung]
        return ranking.place(contender) >= max(1, len(ranking) // self.eta)

    def bracket(self, contender: str) -> int:
        """The same for all seeds of a cell, and in every launch."""
        if self.brackets == 1:
            return 0
        cell = contender.split("-")[0]
        at = int.from_bytes(blake2b(cell.encode(), digest_size=8).digest()) % sum(self._shares)
        for bracket, share in enumerate(self._shares):
            if at < share:
                return bracket
            at -= share
        raise AssertionError("shares add up")

    def _rung(self, contender: str, step: int) -> int | None:
        """The highest rung that is reached with this step; None below the first of the contender's bracket."""
        if step < self.min_steps:
            return None
        rung = _exponent(step // self.min_steps, self.eta)
        return rung if rung >= self.bracket(contender) else None


class Median:
    """A contender whose best mean so far is worse than the median of the others' running averages is given up (Vizier).

    The running average is that of all means up to this step, over the others that have come this far.
    """

    def __init__(self, min_steps: int, min_cells: int) -> None:
        self.min_steps = min_steps
        self.min_cells = min_cells
        self._averages: dict[tuple[str, int], Ranking] = defaultdict(Ranking)

    def told(self, contender: str, group: str, step: int, means: Curve) -> None:
        # A seed that comes later than the cell's others changes the averages at all steps from there on.
        for at in means:
            if at >= max(step, self.min_steps):
                upto = [cost for s, cost in means.items() if s <= at and not math.isnan(cost)]
                self._averages[group, at].put(contender, math.fsum(upto) / len(upto) if upto else math.inf)

    def stops(self, contender: str, group: str, step: int, means: Curve) -> bool:
        averages = self._averages[group, step] if step >= self.min_steps else ()
        if len(averages) <= self.min_cells:
            return False
        best = min((cost for s, cost in means.items() if s <= step and not math.isnan(cost)), default=math.inf)
        return best > self._averages[group, step].median_without(contender)


class Patience:
    """A contender that for `patience` steps has not gained more than min_gain on its best mean is given up."""

    def __init__(self, min_steps: int, patience: int, min_gain: float) -> None:
        self.min_steps = min_steps
        self.patience = patience
        self.min_gain = min_gain

    def told(self, contender: str, group: str, step: int, means: Curve) -> None:
        """Others do not matter."""

    def stops(self, contender: str, group: str, step: int, means: Curve) -> bool:
        best, gained_at = math.inf, min(means)
        for at in sorted(means):
            if at <= step and means[at] < best - self.min_gain:
                best, gained_at = means[at], at
        return step >= self.min_steps and step - gained_at >= self.patience


def shortest_run(spec: Spec, task: "Task[Any]") -> int:
    """The least `steps` that a run of the sweep can have."""
    given = spec.parameters.get("steps", task.parameters["steps"].default)
    if not isinstance(given, Axis):
        return int(given)
    ends: list[Any] = given.values if given.values is not None else [given.min]
    return int(min(end for end in ends))


def _exponent(ratio: int, eta: int) -> int:
    """The largest k with eta to the power of k at most `ratio`, which is at least 1."""
    k = 0
    while eta ** (k + 1) <= ratio:
        k += 1
    return k
