"""The position of the interval decides a claim, and nothing else does."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mislabel.analysis.claims.claim import Claim, Finding, Region, Rule, at_least, at_most, judged, near
from mislabel.analysis.claims.registry import CLAIMS
from mislabel.analysis.statistics.estimate import Estimate
from mislabel.sweeps.papers.bundled import experiments

REGIONS = Path(__file__).parent / "regions.json"


def _one(sweep: Any) -> Estimate:
    return Estimate(1, 0.95, 1.05, 4)


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
    for region in (Region(low=0), Region(high=0), Region(-1, 1)):
        assert region.verdict(Estimate(nan, float("-inf"), float("inf"), 3)) == "undecided"


def test_regions_print_their_bounds() -> None:
    rules = (at_least(0.5, _one), at_most(3, _one), near(2, 1, _one))
    assert [str(rule.holds) for rule in rules] == ["≥ 0.5", "≤ 3", "1 to 3"]


def test_the_regions_are_those_that_were_decided_on() -> None:
    """A bound is chosen before its experiment runs. To change one, change `regions.json` too, and say why."""
    regions = {
        experiment: {statement: str(claim.rule.holds) for statement, claim in claims.items()}
        for experiment, claims in CLAIMS.items()
    }
    assert regions == json.loads(REGIONS.read_text())


def test_a_claim_without_an_estimate_is_not_run() -> None:
    assert Finding(*next(iter(CLAIMS["xor-clusters/fig1"].items()))).verdict == "not run"


def test_the_claims_are_those_of_the_bundled_experiments() -> None:
    assert set(CLAIMS) == set(experiments())
    assert all(CLAIMS.values())


@pytest.mark.parametrize("experiment", CLAIMS)
def test_every_claim_begins_with_its_location_in_the_paper(experiment: str) -> None:
    location = re.compile(r"((Figures?|Table|Theorem|Lemma|Proposition|Equations|Section) [0-9]|Beyond the paper: )")
    assert all(location.match(paper) for paper in CLAIMS[experiment])


@pytest.mark.parametrize("theory", [1.0, lambda sweep: 1.0])
def test_a_finding_has_estimate_theory_and_verdict(theory: float | Callable[[Any], float]) -> None:
    claim = Claim("it", Rule(Region(0.9, 1.1), _one, theory))
    finding = judged("Figure 1: it is one", claim, None)  # type: ignore[arg-type]  # this claim does not read the sweep
    assert (finding.verdict, finding.theory) == ("confirmed", 1.0)
