"""A paper's statement as a check on the store's tables: a quantity, the region in which the statement holds, a verdict.

Every claim is decided by one rule. The quantity is estimated with a 95 % interval over seeds. Where the interval lies
within the region, the claim is confirmed; where it lies outside, it is not confirmed; where it reaches across the edge,
it is undecided, and more seeds may decide it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mislabel.analysis.statistics.estimate import Estimate
from mislabel.analysis.sweep import Sweep

Verdict = Literal["confirmed", "not confirmed", "undecided", "not run"]


@dataclass(frozen=True)
class Region:
    """Numbers from `low` to `high`, ends included."""

    low: float = float("-inf")
    high: float = float("inf")

    def verdict(self, estimate: Estimate) -> Verdict:
        if self.low <= estimate.low and estimate.high <= self.high:
            return "confirmed"
        if estimate.high < self.low or estimate.low > self.high:
            return "not confirmed"
        return "undecided"

    def __str__(self) -> str:
        if self.low == float("-inf"):
            return f"≤ {self.high:g}"
        return f"≥ {self.low:g}" if self.high == float("inf") else f"{self.low:g} to {self.high:g}"


def at_least(bound: float) -> Region:
    return Region(low=bound)


def at_most(bound: float) -> Region:
    return Region(high=bound)


def near(value: float, within: float) -> Region:
    return Region(value - within, value + within)


@dataclass(frozen=True)
class Claim:
    experiment: str
    """Paper and figure, table or theorem, as in `xor-clusters/theorem1`: a bundled spec."""
    paper: str
    """The statement or number, as the paper has it."""
    quantity: str
    """What is measured to decide it, in words."""
    holds: Region
    measure: Callable[[Sweep], Estimate]
    theory: Callable[[Sweep], float] | None = None
    """What the theory predicts for the quantity, where it predicts a number."""
    at_any_size: bool = True
    """False where the number belongs to the paper's sizes, so that a small version can't decide it."""


@dataclass(frozen=True)
class Finding:
    """A claim, and what a sweep says of it."""

    claim: Claim
    estimate: Estimate | None = None
    theory: float | None = None

    @property
    def verdict(self) -> Verdict:
        return "not run" if self.estimate is None else self.claim.holds.verdict(self.estimate)


def judged(claim: Claim, sweep: Sweep) -> Finding:
    return Finding(claim, claim.measure(sweep), claim.theory(sweep) if claim.theory else None)
