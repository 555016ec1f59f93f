"""Claims are data: they are complete, and a rule that was decided on is not changed by accident."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mislabel.analysis.claims.claim import BEYOND, Paper, paper, papers, rule_hashes
from mislabel.sweeps.papers.bundled import experiments
from tests.analysis.claims.write_rules import FILE

CLAIM = {
    "item": "Figure 1", "says": "it holds", "quantity": "it", "rule": {"at_least": 1}, "seeds": 5, "origin": "paper",
    "experiments": ["fig1"],
}  # fmt: skip


def test_the_rules_are_those_that_were_decided_on() -> None:
    """A rule is fixed before its experiment runs. To change one, run `python -m tests.analysis.claims.write_rules`."""
    assert {name: rule_hashes(name) for name in papers()} == json.loads(Path(FILE).read_text())


def test_there_are_rules_for_every_paper() -> None:
    assert set(papers()) == {experiment.partition("/")[0] for experiment in experiments()}


@pytest.mark.parametrize("name", papers())
def test_an_item_is_a_place_in_the_paper(name: str) -> None:
    place = re.compile(
        r"(Figures?|Tables?|Theorem|Lemma|Proposition|Corollary|Conditions?|Equations?|Section|Appendix|Definition|"
        r"Assumptions?|Abstract|Algorithm|Remark|Claim|Fact) ?[0-9A-Z]?"
    )
    assert [item.item for item in paper(name).items if not place.match(item.item)] == []


@pytest.mark.parametrize(
    ("items", "claims", "problem"),
    [
        ([], {"a": CLAIM}, "not among the items"),
        ([{"item": "Figure 1", "says": "x"}, {"item": "Figure 2", "says": "x"}], {"a": CLAIM}, "no claim"),
        ([{"item": "Figure 1", "says": "x", "not_tested": "why"}], {"a": CLAIM}, "has claims and"),
        ([{"item": "Figure 1", "says": "x"}], {"a": {**CLAIM, "seeds": 1}}, "seeds"),
        ([{"item": "Figure 1", "says": "x"}], {"a": {**CLAIM, "rule": {"number": 1}}}, "belong together"),
        ([{"item": "Figure 1", "says": "x"}], {"a": {**CLAIM, "sead": 1}}, "sead"),
    ],
)
def test_an_item_is_tested_or_says_why_not_and_a_claim_is_complete(items: Any, claims: Any, problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Paper.model_validate({"items": items, "claims": claims})


def test_statements_beyond_the_paper_need_no_item() -> None:
    found = Paper.model_validate(
        {
            "items": [{"item": "Figure 1", "says": "x", "not_tested": "no data"}],
            "claims": {"a": {**CLAIM, "item": BEYOND}},
        }
    )
    assert found.coverage == (0, 1)
    assert list(found.claims_of("fig1")) == ["a"]
    assert found.claims_of("fig2") == {}
