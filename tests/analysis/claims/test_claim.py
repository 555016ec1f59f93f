"""Claims are decided by where an interval lies, and by nothing else."""

import pytest

from mislabel.analysis.claims.claim import Claim, Finding, Region, at_least, at_most, judged, near
from mislabel.analysis.claims.registry import CLAIMS, claims_of
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
def test_an_interval_within_the_region_confirms_one_outside_does_not_and_one_across_decides_nothing(
    low: float, high: float, verdict: str
) -> None:
    assert Region(0, 1).verdict(Estimate((low + high) / 2, low, high, 5)) == verdict


def test_a_value_that_is_not_a_number_decides_nothing() -> None:
    nan = float("nan")
    for region in (at_least(0), at_most(0), near(0, 1)):
        assert region.verdict(Estimate(nan, float("-inf"), float("inf"), 3)) == "undecided"


def test_regions_say_what_they_are() -> None:
    assert [str(region) for region in (at_least(0.5), at_most(3), near(2, 1))] == ["≥ 0.5", "≤ 3", "1 to 3"]


def test_what_was_not_run_has_no_verdict() -> None:
    assert Finding(CLAIMS[0]).verdict == "not run"


def test_every_claim_belongs_to_a_bundled_experiment_and_every_experiment_has_claims() -> None:
    assert {claim.experiment for claim in CLAIMS} == set(experiments())
    for experiment in experiments():
        assert claims_of(experiment)
    assert len({(claim.experiment, claim.paper, claim.quantity) for claim in CLAIMS}) == len(CLAIMS)


def test_a_finding_carries_estimate_theory_and_verdict() -> None:
    claim = Claim("a/b", "it is one", "it", near(1, 0.1), lambda sweep: Estimate(1, 0.95, 1.05, 4), lambda sweep: 1.0)
    finding = judged(claim, None)  # type: ignore[arg-type]  # this claim asks nothing of the sweep
    assert (finding.verdict, finding.theory) == ("confirmed", 1.0)
