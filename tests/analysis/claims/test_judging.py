"""The values of the seeds decide a claim, and nothing else does."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mislabel.analysis.claims.claim import Claim, Rule
from mislabel.analysis.claims.judging import Judgement, expected_by_chance, judge


def claim(seeds: int = 2, **rule: Any) -> Claim:
    return Claim(
        item="Figure 1", says="it holds", quantity="it", rule=Rule(**rule), seeds=seeds, experiments=("fig1",),
        origin="chosen before the runs",
    )  # fmt: skip


def judged(values: list[float] | list[bool], *, seeds: int = 2, **rule: Any) -> Judgement:
    return judge(claim(seeds, **rule), {"": pd.Series(values)})


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        ({"at_least": 0.9}, "confirmed"),
        ({"at_most": 1.1}, "confirmed"),
        ({"at_least": 0.9, "at_most": 1.1}, "confirmed"),
        ({"at_least": 1.1}, "contradicted"),
        ({"at_most": 0.9}, "contradicted"),
        ({"at_least": 1.01}, "undecided"),
        ({"at_least": 0.9, "at_most": 1.01}, "undecided"),
    ],
)
def test_the_interval_of_the_mean_decides_a_region(rule: dict[str, Any], verdict: str) -> None:
    values = [0.98, 1.0, 1.02]
    half = stats.t.ppf(0.975, 2) * 0.02 / math.sqrt(3)
    found = judged(values, **rule)
    assert found.verdict == verdict
    assert found.estimate is not None
    assert found.estimate.high == pytest.approx(1 + half)


@pytest.mark.parametrize(
    ("number", "margin", "verdict"),
    [(1.0, 0.2, "confirmed"), (1.08, 0.2, "confirmed"), (1.0, 0.05, "undecided"), (1.2, 0.2, "contradicted")],
)
def test_the_prediction_interval_decides_a_number(number: float, margin: float, verdict: str) -> None:
    half = stats.t.ppf(0.975, 2) * 0.02 * math.sqrt(1 + 1 / 3)  # 0.0994
    found = judged([0.98, 1.0, 1.02], number=number, margin=margin)
    assert found.verdict == verdict
    assert found.prediction == pytest.approx((1 - half, 1 + half))


def test_equal_values_in_single_precision_are_the_number() -> None:
    assert judged([float(np.float32(0.85))] * 5, number=0.85, margin=0.01).verdict == "confirmed"
    assert judged([0.8501] * 5, number=0.85, margin=0.01).verdict == "contradicted"


def test_a_share_has_an_exact_interval() -> None:
    found = judged([True] * 10, at_least=0.6)
    assert found.verdict == "confirmed"
    assert found.estimate is not None
    assert found.estimate.low == pytest.approx(0.025 ** (1 / 10))
    assert judged([True] * 10, at_least=0.9).verdict == "undecided"
    assert judged([True] * 10, at_least=0.9).seeds_needed == 36  # 0.025^(1/n) ≥ 0.9
    assert judged([False] * 10, at_least=0.6).verdict == "contradicted"


def test_a_ratio_has_a_geometric_mean() -> None:
    values = [0.5, 1.0, 2.0]
    found = judged(values, at_most=100, scale="log")
    assert found.estimate is not None
    half = stats.t.ppf(0.975, 2) * math.log(2) / math.sqrt(3)
    assert (found.estimate.mean, found.estimate.high) == pytest.approx((1.0, math.exp(half)))
    assert judged([1.0, 0.0, 1.0], at_most=100, scale="log").verdict == "undecided"


@pytest.mark.parametrize("values", [[1.0], [1.0, math.nan, 1.0], [1.0, math.inf, 1.0]])
@pytest.mark.parametrize("rule", [{"at_least": 0.0}, {"at_most": 0.0}, {"number": 1.0, "margin": 9.0}])
def test_a_missing_value_or_a_single_one_decides_nothing(values: list[float], rule: dict[str, Any]) -> None:
    found = judged(values, **rule)
    assert found.verdict == "undecided"
    assert found.reason


def test_fewer_seeds_than_the_claim_asks_for_confirm_nothing_but_may_contradict() -> None:
    found = judged([1.0, 1.01, 1.02], seeds=5, at_least=0.5)
    assert (found.verdict, found.seeds_needed) == ("undecided", 5)
    assert judged([1.0, 1.01, 1.02], seeds=5, at_least=2.0).verdict == "contradicted"


def test_an_undecided_claim_says_how_many_seeds_would_decide_it() -> None:
    values = [0.8, 1.0, 1.2, 1.0]
    found = judged(values, at_least=0.9)
    needed, spread = found.seeds_needed, float(np.std(values, ddof=1))
    assert needed is not None
    assert found.verdict == "undecided"

    def half(n: int) -> float:
        return float(stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n))

    assert half(needed) <= 0.1 < half(needed - 1)
    assert judged([0.0, 2.0, 0.0, 2.0], number=1.0, margin=0.5).seeds_needed is None


def test_a_statement_about_several_cells_must_hold_in_each() -> None:
    holds, fails, crosses = (pd.Series(values) for values in ([1.0, 1.1, 0.9], [-1.0, -1.1, -0.9], [0.5, -0.4, 0.1]))
    assert judge(claim(at_least=0), {"a": holds, "b": holds}).verdict == "confirmed"
    found = judge(claim(at_least=0), {"a": holds, "b": crosses})
    assert (found.verdict, found.cell) == ("undecided", "b")
    found = judge(claim(at_least=0), {"a": crosses, "b": fails, "c": holds})
    assert (found.verdict, found.cell) == ("contradicted", "b")


def test_one_cell_of_many_contradicts_at_a_level_that_accounts_for_their_number() -> None:
    below = pd.Series([-0.6, -0.1, -0.5, -0.2, -0.35])  # the 95 % interval ends below 0, the 99.75 % interval does not
    assert judge(claim(at_least=0), {"a": below}).verdict == "contradicted"
    above = pd.Series([1.0, 1.1, 0.9, 1.0, 1.0])
    many = {str(i): above for i in range(40)}
    assert judge(claim(at_least=0), {**many, "a": below}).verdict == "undecided"


@given(
    values=st.lists(st.floats(-2, 2), min_size=4, max_size=12),
    kept=st.integers(2, 11),
    rule=st.sampled_from([{"at_least": 0.5}, {"at_most": 0.5}, {"number": 0.5, "margin": 1.0}]),
)
def test_dropping_seeds_never_confirms_a_claim(values: list[float], kept: int, rule: dict[str, Any]) -> None:
    part = values[: min(kept, len(values) - 1)]
    assert judged(part, seeds=len(values), **rule).verdict != "confirmed"


@pytest.mark.long
def test_fewer_seeds_confirm_a_true_claim_less_often() -> None:
    """Not only because of the number of seeds that a claim asks for: the rules themselves are stricter."""
    random = np.random.default_rng(0)
    rules: list[dict[str, Any]] = [{"at_least": 0.6}, {"number": 1.0, "margin": 2.5}]
    for rule in rules:
        shares = [
            np.mean([judged(list(random.normal(1, 0.8, n)), **rule).verdict == "confirmed" for _ in range(300)])
            for n in (4, 8, 32)
        ]
        assert shares[0] < shares[1] < shares[2], rule


def test_chance_is_counted_over_all_claims() -> None:
    claims = [claim(at_least=0)] * 60 + [claim(number=1, margin=1)] * 40
    assert expected_by_chance(claims) == pytest.approx((2.5, 3.5))


def test_a_rule_is_complete() -> None:
    for wrong in (
        {},
        {"number": 1},
        {"margin": 1, "at_least": 0},
        {"at_least": 2, "at_most": 1},
        {"number": 1, "at_most": 2},
    ):
        with pytest.raises(ValueError, match=r"rule|belong|above"):
            Rule(**wrong)


def test_the_hash_of_a_claim_changes_with_its_rule_and_not_with_its_words() -> None:
    before = claim(at_least=0.5)
    assert before.hash != claim(at_least=0.4).hash
    assert before.hash != claim(seeds=3, at_least=0.5).hash
    assert before.hash == before.model_copy(update={"says": "it is so"}).hash
    assert before.hash != before.model_copy(update={"quantity": "something else"}).hash
