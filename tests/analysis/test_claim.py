import math

import pytest

import analysis
from analysis.claim import Claim, Finding, Region, at_least, at_most, judged, near
from analysis.claims import claims_of
from analysis.estimate import Estimate, at_end, mean_of
from sweeps.bundled import experiments
from sweeps.store import Store
from tests.bowls import run


@pytest.mark.parametrize(
    ("region", "low", "high", "verdict"),
    [
        (at_least(1), 1.0, 2.0, "confirmed"),
        (at_least(1), 0.5, 0.9, "not confirmed"),
        (at_least(1), 0.5, 1.5, "undecided"),
        (at_most(1), 0.5, 1.0, "confirmed"),
        (at_most(1), 1.1, 1.2, "not confirmed"),
        (near(1, 0.5), 0.6, 1.4, "confirmed"),
        (near(1, 0.5), 0.4, 1.4, "undecided"),
        (near(1, 0.5), 0.1, 2.0, "undecided"),
        (near(1, 0.5), 1.6, 2.0, "not confirmed"),
        (at_least(1), -math.inf, math.inf, "undecided"),
    ],
)
def test_the_interval_decides(region: Region, low: float, high: float, verdict: str) -> None:
    assert region.verdict(Estimate((low + high) / 2, low, high, 3)) == verdict


def test_regions_are_read_at_a_glance() -> None:
    assert [str(region) for region in (at_least(0.5), at_most(2), near(1, 0.25))] == ["≥ 0.5", "≤ 2", "0.75 to 1.25"]


def test_a_claim_is_judged_on_a_sweep(store: Store) -> None:
    run(store, seeds=3)
    sweep = analysis.load(store.address, "bowls")
    claim = Claim(
        "bowls/rest",
        "it rests",
        "loss at 2",
        near(1, 0.5),
        lambda s: mean_of(at_end(s, "loss", {"x": 2})),
        lambda s: 1.0,
    )
    finding = judged(claim, sweep)
    assert finding.verdict == "confirmed"
    assert finding.theory == 1.0
    assert Finding(claim).verdict == "not run"


@pytest.mark.parametrize("experiment", experiments())
def test_every_claim_is_one_of_its_experiment_and_says_what_it_measures(experiment: str) -> None:
    for claim in claims_of(experiment):
        assert claim.experiment == experiment
        assert claim.paper
        assert claim.quantity
