from collections import Counter
from typing import Any

import pytest

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.plan.sources import SearchSource
from mislabel.sweeps.search.search import Branches, Proposal
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import BOWL, bowl_spec, prepared, run, runs_of

RANGE = {"min": -10, "max": 10}
GRID: dict[str, Any] = {
    "method": {"name": "tpe", "startup": 3},
    "budget": {"cells": 14},
    "parameters": {"x": RANGE, "level": {"values": [0, 5, 9], "grid": True}},
}


def branches_of(files: SweepFiles, known: dict[tuple[str, int], Mean] | None = None, **changes: Any) -> Branches:
    branches = Branches(Space(bowl_spec(**{**GRID, **changes}), BOWL), files)
    branches.restore(lambda cell, seeds: (known or {}).get((cell, seeds)))
    return branches


def mean_of(proposal: Proposal) -> Mean:
    return Mean(((float(proposal.values["x"]) - float(proposal.values["level"])) ** 2,))


def test_branches_share_the_budget_and_take_turns(files: SweepFiles) -> None:
    branches = branches_of(files)
    asked = [branches.ask(3) for _ in range(3)]
    assert [sorted(p.values["level"] for p in batch) for batch in asked] == [[0, 5, 9]] * 3
    while batch := branches.ask(3):
        asked.append(batch)
    assert Counter(p.values["level"] for batch in asked for p in batch) == {0: 5, 5: 5, 9: 4}
    assert branches.limit == 14


def test_branches_of_different_shape_are_asked_one_at_a_time(files: SweepFiles) -> None:
    """Cells of different shape can't share a pack."""
    parameters = {"x": RANGE, "width": {"values": [1, 2], "grid": True}}
    branches = branches_of(files, parameters=parameters)
    asked = [branches.ask(3) for _ in range(4)]
    assert [{p.values["width"] for p in batch} for batch in asked] == [{1}, {2}, {1}, {2}]
    assert [len(batch) for batch in asked] == [3, 3, 3, 3]


def test_each_branch_learns_separately_and_all_are_resumed(store: Store) -> None:
    def all_of(branches: Branches, batches: int, known: dict[tuple[str, int], Mean]) -> list[Any]:
        found = []
        for _ in range(batches):
            for p in branches.ask(3):
                known[p.cell, p.seeds] = mean_of(p)
                branches.tell(p.cell, mean_of(p), p.seeds)
                found.append(p.values)
        return found

    uninterrupted = all_of(branches_of(store.sweep("a")), 6, {})
    known: dict[tuple[str, int], Mean] = {}
    begun = all_of(branches_of(store.sweep("b"), known), 3, known)
    resumed = all_of(branches_of(store.sweep("b"), known), 3, known)
    assert begun + resumed == uninterrupted
    assert len(uninterrupted) == 14


def test_results_of_other_cells_are_ignored(files: SweepFiles) -> None:
    branches = branches_of(files)
    branches.tell("of another sweep", Mean((1.0,)), 2)
    assert len(branches.ask(3)) == 3


def test_a_new_value_adds_a_branch_and_keeps_the_others(files: SweepFiles) -> None:
    before = {p.cell for _ in range(9) for p in branches_of(files).ask(9)}
    parameters = {"x": RANGE, "level": {"values": [0, 3, 5, 9], "grid": True}}
    after = branches_of(files, parameters=parameters, budget={"cells": 40})
    assert {p.cell for p in after.proposals} == before
    assert [len(search.proposals) for search in after.searches].count(0) == 1


@pytest.mark.long
def test_a_sweep_runs_its_branches(store: Store) -> None:
    launch = run(store, **GRID)
    runs = runs_of(launch.files)
    assert runs.groupby("level")["cell_id"].nunique().to_dict() == {0: 5, 5: 5, 9: 4}
    assert len(runs) == 28
    again = prepared(store, **GRID)
    source = again.driver._source
    assert isinstance(source, SearchSource)
    assert len(source.search.proposals) == 14
    assert again.driver.next() is None


def test_try_first_cells_are_tried_in_every_branch_that_contains_them(files: SweepFiles) -> None:
    branches = branches_of(files, try_first=[{"x": 2.0}, {"x": 4.0, "level": 5}])
    first = [p for _ in range(2) for p in branches.ask(3)]
    tried = {(p.values["level"], p.values["x"]) for p in first}
    assert {(0, 2.0), (5, 2.0), (9, 2.0), (5, 4.0)} <= tried
    assert (0, 4.0) not in tried
