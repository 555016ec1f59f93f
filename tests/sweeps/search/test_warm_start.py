from typing import Any

import pytest

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.plan.sources import SearchSource
from mislabel.sweeps.search.warm_start import earlier_cells, refuse_unknown_sweeps
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec, prepared, run, runs_of

RANGE = {"min": -10, "max": 10}
SEARCH: dict[str, Any] = {
    "name": "search", "method": {"name": "tpe", "startup": 4}, "budget": {"cells": 6}, "parameters": {"x": RANGE},
}  # fmt: skip


def search_of(launch: Any) -> Any:
    source = launch.driver._source
    assert isinstance(source, SearchSource)
    (search,) = source.search.searches
    return search


def test_cells_of_the_space_have_their_means(store: Store) -> None:
    launch = run(store, parameters={"x": {"values": [-20 / 4, 1.0, 2.0]}, "level": {"values": [1, 7]}}, seeds=3)
    space = Space(bowl_spec(**{**SEARCH, "parameters": {"x": {"min": 0, "max": 10}}}), BOWL)
    found = earlier_cells([launch.files], space)
    # The first x is outside the range, and this sweep has another fixed level than 7.
    assert sorted((values["x"], values["level"]) for values, _ in found) == [(1.0, 1), (2.0, 1)]
    runs = runs_of(launch.files)
    for values, mean in found:
        mine = runs[(runs["x"] == values["x"]) & (runs["level"] == 1)]
        assert len(mine) == 3
        assert mean.values == pytest.approx((mine["loss"].mean(),))


def test_excluded_cells_and_cells_without_a_result_are_left_out(store: Store) -> None:
    launch = run(store, parameters={"x": {"values": [0.0, 1.0]}, "trouble": {"values": [0, 2]}})
    axes = {"x": RANGE, "trouble": {"values": [0, 2]}}
    space = Space(bowl_spec(**{**SEARCH, "parameters": axes, "exclude": ["x > 0.5"]}), BOWL)
    assert [(values["x"], values["trouble"]) for values, _ in earlier_cells([launch.files], space)] == [(0.0, 0)]
    assert earlier_cells([store.sweep("nothing")], space) == []


@pytest.mark.long
@pytest.mark.parametrize("method", ["tpe", "gp", "cmaes", "nsga2"])
def test_a_search_learns_from_earlier_cells_before_its_first_proposal(store: Store, method: str) -> None:
    run(store, parameters={"x": {"min": -10, "max": 10, "points": 30}}, seeds=1)
    options = {"name": method, "startup": 4, "population": 5}
    launch = prepared(store, **{**SEARCH, "method": options, "start_from": ["bowls"]})
    search = search_of(launch)
    proposals = search.ask(6)
    assert len(proposals) == 6  # earlier cells do not count
    told = [trial.value for trial in search.study._study.trials if trial.value is not None]
    assert len(told) == 30
    if method != "nsga2":  # its second generation still explores
        assert sum(abs(p.values["x"] - 3) < 4 for p in proposals) >= 4


def test_a_resumed_search_learns_from_the_same_cells(store: Store) -> None:
    run(store, parameters={"x": {"values": [1.0, 2.0]}})
    changes = {**SEARCH, "start_from": ["bowls"]}
    before = search_of(prepared(store, **changes)).ask(2)
    run(store, parameters={"x": {"values": [1.0, 2.0, 3.0, 4.0]}})
    after = search_of(prepared(store, **changes))
    assert after.proposals == before
    assert [trial.value is not None for trial in after.study._study.trials] == [True, True, False, False]


@pytest.mark.long
def test_unknown_sweeps_and_sweeps_of_another_task_are_refused(store: Store) -> None:
    run(store)
    spec = bowl_spec(**{**SEARCH, "start_from": ["bowl", "bowls"]})
    with pytest.raises(SpecError, match=r"'bowl' is not a sweep of the store.*did you mean bowls"):
        refuse_unknown_sweeps(spec, BOWL, store)
    run(store, name="single", task="bowl.single")
    with pytest.raises(SpecError, match=r"'single' is a sweep of bowl.single"):
        refuse_unknown_sweeps(bowl_spec(**{**SEARCH, "start_from": ["single"]}), BOWL, store)


def test_lost_proposals_are_recovered_from_the_runs(store: Store) -> None:
    launch = run(store, **SEARCH)
    cells = set(runs_of(launch.files)["cell_id"])
    for name in launch.files.names("proposals"):
        launch.files.write_text(f"proposals/{name}", "damaged")
    again = prepared(store, **SEARCH)
    assert {p.cell for p in search_of(again).proposals} == cells
    assert again.driver.next() is None
