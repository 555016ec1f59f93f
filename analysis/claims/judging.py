"""Decide claims from the values of their seeds.

A region holds if the 95 % confidence interval of the mean lies inside it, and is contradicted if the interval lies
outside. A number of the paper is confirmed if our 95 % prediction interval for one more run contains it and is narrower
than the margin, and contradicted if the interval does not contain it. Everything else is undecided.

Fewer seeds do not make a claim easier to confirm. Fewer seeds than the claim asks for confirm nothing, and with fewer
seeds both intervals are wider on average. A statement about several cells must be confirmed in each of them. One cell
contradicts it, at a level that accounts for the number of cells.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd

from mislabel.analysis.claims.claim import Claim, Rule, Values
from mislabel.analysis.statistics.estimate import Estimate, mean_of, share_of
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.seed_means import CONFIDENCE, half_width

Verdict = Literal["confirmed", "contradicted", "undecided", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("confirmed", "contradicted", "undecided", "not tested")
MOST_SEEDS = 10_000
"""We don't look for larger numbers of seeds that would decide a claim."""
_SEVERITY = {"contradicted": 0, "undecided": 1, "confirmed": 2}


@dataclass(frozen=True)
class Judgement:
    """A verdict and what it rests on."""

    verdict: Verdict
    reason: str = ""
    """Why the claim is undecided or not tested."""
    estimate: Estimate | None = None
    """In the cell that decides: the one in which the claim holds least."""
    prediction: tuple[float, float] | None = None
    """The prediction interval, if the claim is about a number."""
    cell: str = ""
    """Empty if the claim is about one cell."""
    seeds_needed: int | None = None
    """For an undecided claim: how many seeds would decide it, if mean and spread stay as they are. None: no number."""


def judge(claim: Claim, values: Values, quick: bool = False) -> Judgement:
    """Decide the claim. `values` has a value per seed for each cell that the claim is about."""
    if not values:
        raise MislabelError("no runs to judge; the sweep is not complete")
    seeds = claim.quick_seeds if quick else claim.seeds
    found = [
        replace(_judge_cell(claim.rule, cell, seeds, len(values)), cell=name if len(values) > 1 else "")
        for name, cell in values.items()
    ]
    return min(found, key=lambda judged: (_SEVERITY[judged.verdict], _distance(claim.rule, judged)))


def expected_by_chance(claims: Iterable[Claim]) -> tuple[float, float]:
    """How many of the claims chance alone would confirm and contradict, at most.

    A region is confirmed by chance in 2.5 % of the cases if the true value lies at its edge, and as often contradicted.
    A prediction interval misses a right number in 5 % of the cases.
    """
    rules = [claim.rule for claim in claims]
    tail, numbers = (1 - CONFIDENCE) / 2, sum(rule.number is not None for rule in rules)
    return tail * len(rules), tail * (len(rules) - numbers) + 2 * tail * numbers


def _judge_cell(rule: Rule, given: pd.Series, seeds: int, cells: int) -> Judgement:
    values, bounds = _scaled(rule, given)
    n, needed = len(values), None
    strict = 1 - (1 - CONFIDENCE) / cells
    estimate, wide = _interval(values, CONFIDENCE), _interval(values, strict)
    if not math.isfinite(estimate.low):
        missing = int(values.isna().sum())
        reason = f"{missing} of {n} seeds have no value" if missing else "one seed has no interval"
        return Judgement("undecided", reason, estimate, seeds_needed=None if missing else max(seeds, 2))
    prediction = None
    verdict: Verdict
    if rule.number is not None:
        number, margin = bounds[0], float(rule.margin or 0.0)
        inner, outer = _prediction(values, CONFIDENCE), _prediction(values, strict)
        prediction = inner
        if not _contains(outer, number):
            verdict, reason = "contradicted", ""
        elif _contains(inner, number) and _unscaled_width(rule, inner) <= margin:
            verdict, reason = "confirmed", ""
        else:
            verdict, reason = "undecided", f"the prediction interval is wider than ± {margin:g}"
            needed = _first(lambda n: _predicted_width(rule, values, n) <= margin, n)
    elif estimate.low >= bounds[0] and estimate.high <= bounds[1]:
        verdict, reason = "confirmed", ""
    elif wide.high < bounds[0] or wide.low > bounds[1]:
        verdict, reason = "contradicted", ""
    else:
        verdict, reason = "undecided", "the interval crosses the edge"
        needed = _first(lambda n: _would_decide(values, bounds, n), n)
    if verdict == "confirmed" and n < seeds:
        verdict, reason, needed = "undecided", f"{n} of {seeds} seeds", seeds
    elif verdict == "undecided" and needed is not None:
        needed = max(needed, seeds)
    if rule.scale == "log":
        estimate = Estimate(_exp(estimate.mean), _exp(estimate.low), _exp(estimate.high), estimate.n)
        prediction = prediction and (_exp(prediction[0]), _exp(prediction[1]))
    return Judgement(verdict, reason, estimate, prediction, seeds_needed=needed)


def _scaled(rule: Rule, values: pd.Series) -> tuple[pd.Series, tuple[float, float]]:
    """The values and the rule's bounds on the rule's scale. Infinite values and logarithms are missing."""
    low, high = (rule.number, rule.number) if rule.number is not None else (rule.low, rule.high)
    if values.dtype == bool:
        return values, (low, high)
    values = values.astype(float).replace([math.inf, -math.inf], math.nan)
    if rule.scale == "linear":
        return values, (low, high)
    return pd.Series(np.log(values.where(values > 0)), values.index), (_log(low), _log(high))


def _interval(values: pd.Series, confidence: float) -> Estimate:
    return share_of(values, confidence) if values.dtype == bool else mean_of(values, confidence)


def _prediction(values: pd.Series, confidence: float) -> tuple[float, float]:
    """The interval that contains the value of one more run with this probability; unbounded if a value is missing."""
    estimate = mean_of(values, confidence)
    if not math.isfinite(estimate.low):
        return -math.inf, math.inf
    half = (estimate.high - estimate.mean) * math.sqrt(estimate.n + 1)  # s·t·√(1 + 1/n), and the mean's is s·t·√(1/n)
    return estimate.mean - half, estimate.mean + half


def _contains(interval: tuple[float, float], number: float) -> bool:
    """Whether the number lies in the interval, up to the rounding of single precision: equal values have no spread."""
    rounding = 1e-6 * max(1.0, abs(number))
    return interval[0] - rounding <= number <= interval[1] + rounding


def _unscaled_width(rule: Rule, interval: tuple[float, float]) -> float:
    """Half the width of an interval, in the units of the rule."""
    low, high = (_exp(interval[0]), _exp(interval[1])) if rule.scale == "log" else interval
    return (high - low) / 2


def _predicted_width(rule: Rule, values: pd.Series, n: int) -> float:
    center, half = float(values.mean()), float(half_width(values.std(), n)) * math.sqrt(n + 1)
    return _unscaled_width(rule, (center - half, center + half))


def _would_decide(values: pd.Series, bounds: tuple[float, float], n: int) -> bool:
    """Whether n seeds with the mean and the spread of these would decide the claim."""
    if values.dtype == bool:
        likely = share_of(np.arange(n) < round(float(values.mean()) * n))
        low, high = likely.low, likely.high
    else:
        center, half = float(values.mean()), float(half_width(values.std(), n))
        low, high = center - half, center + half
    return (low >= bounds[0] and high <= bounds[1]) or high < bounds[0] or low > bounds[1]


def _first(decides: Callable[[int], bool], above: int) -> int | None:
    """The smallest number of seeds above this one that decides, by bisection; None if none does."""
    low, high = above, 2 * above
    while not decides(high):
        if high >= MOST_SEEDS:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle, high)
    return high


def _distance(rule: Rule, judged: Judgement) -> float:
    """How far inside the region the interval of this cell lies; negative if it crosses the edge."""
    estimate = judged.estimate
    assert estimate is not None
    if rule.number is not None:
        return -abs(estimate.mean - rule.number)
    return min(estimate.low - rule.low, rule.high - estimate.high)


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
