"""The bundled records give the same claims, summaries and ids as when records.json was written; see write_records."""

import json
from typing import Any

import pytest

from mislabel.sweeps.papers.bundled import examples, sweep_name
from tests.regression.write_records import (
    FILE,
    RECORDS,
    cells_of,
    claims_of,
    recorded,
    runs_of_spec,
    stored_runs,
)

EXPECTED: dict[str, Any] = json.loads(FILE.read_text())
SWEEPS = [pytest.param(*found, id=found[2]) for found in recorded()]


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    """The row, whose numbers equal those that differ by rounding alone."""
    return {
        key: pytest.approx(value, rel=1e-9, abs=1e-15) if isinstance(value, float) else value
        for key, value in row.items()
    }


def test_every_recorded_sweep_is_compared() -> None:
    searches = {sweep_name(name, quick=True) for name in examples()}  # test_searches reads them
    in_store = {path.parent.name for path in RECORDS.glob("*/spec.yaml")} - searches
    assert {name for _, _, name in recorded()} == in_store == set(EXPECTED)
    assert sum(claim["mean"] is not None for sweep in EXPECTED.values() for claim in sweep["claims"]) > 40


@pytest.mark.long
@pytest.mark.parametrize(("experiment", "quick", "name"), SWEEPS)
def test_claims_have_the_same_estimates_and_verdicts(experiment: str, quick: bool, name: str) -> None:
    assert claims_of(experiment, quick) == [_rounded(claim) for claim in EXPECTED[name]["claims"]]


@pytest.mark.parametrize(("experiment", "quick", "name"), SWEEPS)
def test_cells_have_the_same_summaries(experiment: str, quick: bool, name: str) -> None:
    expected = {
        metric: {cell: _rounded(row) for cell, row in rows.items()} for metric, rows in EXPECTED[name]["cells"].items()
    }
    assert cells_of(name) == expected


@pytest.mark.parametrize(("experiment", "quick", "name"), SWEEPS)
def test_ids_of_the_spec_are_those_in_the_records(experiment: str, quick: bool, name: str) -> None:
    named, stored = runs_of_spec(name), stored_runs(name)
    assert stored == EXPECTED[name]["stored_runs"]
    assert named == EXPECTED[name]["runs_of_spec"]
    assert set(named) & set(stored)
