"""The position of the interval decides a claim, and nothing else does."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from mislabel.analysis.claims.claim import Claim, Finding, Region, at_least, at_most, judged, near
from mislabel.analysis.claims.registry import CLAIMS
from mislabel.analysis.statistics.estimate import Estimate
from mislabel.sweeps.papers.bundled import experiments


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.1, 0.9, "confirmed"),
        (0.0, 1.0, "confirmed"),
        (1.1, 1.2, "not confirmed"),
        (-2.0, -0.1, "not confirmed"),
        (0.9, 1.1, "undecided"),
        (-0.1, 0.1, "undecided"),
        (-1.0, 2.0, "undecided"),
        (float("-inf"), float("inf"), "undecided"),
    ],
)
def test_an_interval_inside_confirms_one_outside_does_not_and_one_across_the_edge_is_undecided(
    low: float, high: float, verdict: str
) -> None:
    assert Region(0, 1).verdict(Estimate((low + high) / 2, low, high, 5)) == verdict


def test_a_missing_value_leaves_a_claim_undecided() -> None:
    nan = float("nan")
    for region in (at_least(0), at_most(0), near(0, 1)):
        assert region.verdict(Estimate(nan, float("-inf"), float("inf"), 3)) == "undecided"


def test_regions_print_their_bounds() -> None:
    assert [str(region) for region in (at_least(0.5), at_most(3), near(2, 1))] == ["≥ 0.5", "≤ 3", "1 to 3"]


def test_a_claim_without_an_estimate_is_not_run() -> None:
    assert Finding(CLAIMS["xor-clusters/fig1"][0]).verdict == "not run"


def test_the_claims_are_those_of_the_bundled_experiments() -> None:
    assert set(CLAIMS) == set(experiments())
    for claims in CLAIMS.values():
        assert len({(claim.paper, claim.quantity) for claim in claims}) == len(claims) > 0


@pytest.mark.parametrize("experiment", CLAIMS)
def test_every_claim_begins_with_its_location_in_the_paper(experiment: str) -> None:
    location = re.compile(r"((Figures?|Table|Theorem|Lemma|Proposition|Equations|Section) [0-9]|Beyond the paper: )")
    for claim in CLAIMS[experiment]:
        assert location.match(claim.paper)


@pytest.mark.parametrize("theory", [1.0, lambda sweep: 1.0])
def test_a_finding_has_estimate_theory_and_verdict(theory: float | Callable[[Any], float]) -> None:
    claim = Claim("Figure 1: it is one", "it", near(1, 0.1), lambda sweep: Estimate(1, 0.95, 1.05, 4), theory)
    finding = judged(claim, None)  # type: ignore[arg-type]  # this claim does not read the sweep
    assert (finding.verdict, finding.theory) == ("confirmed", 1.0)
