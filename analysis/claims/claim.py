"""A claim: a statement of a paper, the quantity that tests it, and the region in which the statement holds.

One rule decides every claim. The quantity is estimated with a 95 % interval over seeds. If the interval lies inside the
region, the claim is confirmed; if it lies outside, the claim is not confirmed; if it crosses the region's edge, the
claim is undecided, and more seeds may decide it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from mislabel.analysis.statistics.estimate import Estimate
from mislabel.analysis.sweep import Sweep

Verdict = Literal["confirmed", "not confirmed", "undecided", "not run"]
Measure = Callable[[Sweep], Estimate]
Theory = float | Callable[[Sweep], float] | None


@dataclass(frozen=True)
class Region:
    """Numbers from `low` to `high`, both included."""

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


@dataclass(frozen=True)
class Rule:
    """The rule that decides a claim: the measure must lie in the region."""

    holds: Region
    measure: Measure
    theory: Theory = None
    """The theory's prediction for the quantity, if it predicts a number."""


def at_least(bound: float, measure: Measure, theory: Theory = None) -> Rule:
    return Rule(Region(low=bound), measure, theory)


def at_most(bound: float, measure: Measure, theory: Theory = None) -> Rule:
    return Rule(Region(high=bound), measure, theory)


def near(value: float, within: float, measure: Measure, theory: Theory = None) -> Rule:
    return Rule(Region(value - within, value + within), measure, theory)


@dataclass(frozen=True)
class Claim:
    """How a statement of a paper is tested."""

    quantity: str
    """What is measured to decide it, in words."""
    rule: Rule
    at_any_size: bool = True
    """False if the statement depends on the paper's sizes, so that the small version can't decide it."""


Claims = dict[str, Claim]
"""By statement, with the place where the paper makes it: "Figure 2: …"; or "Beyond the paper: …"."""


def full_size(quantity: str, rule: Rule) -> Claim:
    """A claim that only the paper's sizes can decide."""
    return Claim(quantity, rule, at_any_size=False)


@dataclass(frozen=True)
class Finding:
    """A claim with its estimate from a sweep; without one, the experiment has not run."""

    paper: str
    claim: Claim
    estimate: Estimate | None = None
    theory: float | None = None

    @property
    def verdict(self) -> Verdict:
        return "not run" if self.estimate is None else self.claim.rule.holds.verdict(self.estimate)


def judged(paper: str, claim: Claim, sweep: Sweep) -> Finding:
    rule = claim.rule
    return Finding(paper, claim, rule.measure(sweep), rule.theory(sweep) if callable(rule.theory) else rule.theory)
