"""Every claim can fail: a synthetic table confirms it, another one contradicts it."""

import importlib
from collections.abc import Callable

import pytest

from mislabel.analysis.claims.claim import paper, papers
from mislabel.analysis.claims.registry import measures, predictions
from mislabel.sweeps.papers.bundled import experiments
from tests.analysis.claims.tables import TableSweep, finding


def synthetic(name: str) -> dict[str, Callable[[bool], TableSweep]]:
    """For each claim of a paper, a function that makes a table in which the claim holds, or does not hold."""
    module = importlib.import_module(f"tests.analysis.claims.synthetic.{name.replace('-', '_')}")
    tables: dict[str, Callable[[bool], TableSweep]] = module.TABLES
    return tables


CLAIMS = [(name, claim) for name in papers() for claim in paper(name).claims]


@pytest.mark.parametrize("name", papers())
def test_every_claim_has_a_measure_and_synthetic_tables(name: str) -> None:
    claims = set(paper(name).claims)
    assert set(measures(name)) == claims
    assert set(synthetic(name)) == claims
    assert set(predictions(name)) <= claims


@pytest.mark.long
@pytest.mark.parametrize(("name", "claim"), CLAIMS)
@pytest.mark.parametrize("holds", [True, False])
def test_a_claim_is_confirmed_by_one_table_and_contradicted_by_another(name: str, claim: str, holds: bool) -> None:
    experiment = f"{name}/{paper(name).claims[claim].experiments[0]}"
    found = finding(experiment, claim, synthetic(name)[claim](holds))
    assert found.verdict == ("confirmed" if holds else "contradicted"), found.judgement


def test_the_experiments_with_claims_are_the_bundled_ones() -> None:
    named = {f"{name}/{part}" for name in papers() for each in paper(name).claims.values() for part in each.experiments}
    assert named == set(experiments())


@pytest.mark.parametrize("name", papers())
def test_the_coverage_follows_from_the_list_of_items(name: str) -> None:
    found = paper(name)
    with_claim = {claim.item for claim in found.claims.values()} & {item.item for item in found.items}
    assert found.coverage == (len(with_claim), len(found.items))
    assert len({item.item for item in found.items}) == len(found.items)
