"""A parameter added to a task with `earlier` keeps the task's stored runs: their ids, and their place in sweeps."""

import dataclasses
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mislabel
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.ids import cell_id, cell_ids, run_id
from mislabel.sweeps.run.launch import plan_sweep
from mislabel.sweeps.store.store import Store
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.registry import find_task
from mislabel.tasks.task import Task
from tests.bowls import BOWL, MACHINE, bowl_spec, run
from tests.regression.write_records import RECORDS, recorded, stored_runs

Add = Callable[..., Task[Any]]


def with_parameters(task: Task[Any], **added: tuple[type, Any]) -> Task[Any]:
    """The task as its author would write it later, with these parameters added."""
    fields = [(name, kind, field) for name, (kind, field) in added.items()]
    later = dataclasses.make_dataclass("Later", fields, bases=(task.params,), frozen=True, kw_only=True)
    return dataclasses.replace(task, params=later)


SLOPE = (float, knob(0.0, between=(-1, 1), earlier=0.0, help="slope of the table"))
STEEP = (float, knob(0.5, between=(-1, 1), earlier=0.0, help="slope of the table, by default a steep one"))
MATERIAL = (str, shape("wood", choices=("wood", "glass"), earlier="wood", help="of the bowl"))


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """Installs a later `bowl`, with these parameters added."""

    def added(**parameters: tuple[type, Any]) -> Task[Any]:
        monkeypatch.setattr(importlib.import_module("bowl"), "task", with_parameters(BOWL, **parameters))
        find_task.cache_clear()
        return find_task("bowl")

    yield added
    monkeypatch.undo()
    find_task.cache_clear()


def cells_of(task: Task[Any], **changes: Any) -> dict[str, float]:
    """The ids of the cells that the spec has for the task, with their x."""
    chunks = list(Space(bowl_spec(**changes), task).cells())
    return {cell: chunk.values(i)["x"] for chunk in chunks for i, cell in enumerate(chunk.ids)}  # type: ignore[misc]


values = st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3)


@given(st.dictionaries(st.sampled_from("abcdefg"), values), st.floats(-1, 1), st.sampled_from(["wood", "glass"]))
def test_an_id_has_a_parameter_that_was_added_unless_it_has_its_earlier_value(
    cell: dict[str, Any], c2: float, e2: str
) -> None:
    later = with_parameters(BOWL, c2=STEEP, e2=MATERIAL)
    added: dict[str, Any] = {"c2": c2, "e2": e2}
    before = {name: value for name, value in added.items() if value not in (0.0, "wood")}
    assert cell_id(later, {**cell, **added}) == cell_id(BOWL, {**cell, **before})
    assert cell_id(BOWL, {**cell, "c2": c2}) != cell_id(BOWL, cell)


@given(st.lists(st.floats(-1, 1) | st.just(0.0) | st.just(-0.0), max_size=5), st.booleans())
def test_many_ids_at_once_leave_out_earlier_values_too(column: list[float], alone: bool) -> None:
    later = with_parameters(BOWL, a=SLOPE, m=MATERIAL)
    common: dict[str, Any] = {} if alone else {"b": 1, "m": "wood"}
    found = cell_ids(later, common, {"a": column}, len(column))
    assert found == [cell_id(later, {**common, "a": value}) for value in column]
    assert [cell == cell_id(BOWL, {} if alone else {"b": 1}) for cell in found] == [value == 0 for value in column]


def test_cells_of_a_spec_keep_their_ids_at_the_earlier_value(add: Add) -> None:
    before = cells_of(BOWL)
    later = add(slope=SLOPE, material=MATERIAL)
    assert cells_of(later) == before
    both = cells_of(later, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "slope": {"values": [0.0, 0.25]}})
    assert len(both) == 6
    assert {cell: x for cell, x in both.items() if cell in before} == before
    glass = cells_of(later, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "material": "glass"})
    assert not glass.keys() & before.keys()


def test_a_default_other_than_the_earlier_value_gives_other_cells(add: Add) -> None:
    before = cells_of(BOWL)
    later = add(slope=STEEP)
    assert not cells_of(later).keys() & before.keys()
    assert cells_of(later, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "slope": 0.0}) == before


@pytest.mark.parametrize("name", [name for _, _, name in recorded()])
def test_the_bundled_records_keep_their_ids(name: str) -> None:
    spec = mislabel.load(str(RECORDS), name).spec
    task = find_task(spec.task)
    later = with_parameters(task, slope=SLOPE, material=MATERIAL)
    cells = [cell for chunk in Space(spec, later).cells() for cell in chunk.ids]
    stored = set(stored_runs(name))
    assert {run_id(cell, seed) for cell in cells for seed in spec.seed_range} & stored
    assert cells == [cell for chunk in Space(spec, task).cells() for cell in chunk.ids]
    other = spec.model_copy(update={"parameters": {**spec.parameters, "slope": 0.25}})
    changed = {
        run_id(cell, seed) for chunk in Space(other, later).cells() for cell in chunk.ids for seed in spec.seed_range
    }
    assert not changed & stored


def test_a_stored_sweep_continues_with_the_runs_that_it_has(store: Store, add: Add) -> None:
    run(store)
    later = add(slope=SLOPE, material=MATERIAL)
    plan = plan_sweep(bowl_spec(), later, store, MACHINE)
    assert (plan.runs, plan.missing) == (6, 0)
    wider = run(store, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "slope": {"values": [0.0, 0.25]}})
    assert wider.driver.progress.statuses == {"done": 6}
    sweep = mislabel.load(store.address, "bowls")
    assert sweep.runs["slope"].value_counts().to_dict() == {0.0: 6, 0.25: 6}
    assert set(sweep.runs["material"]) == {"wood"}
    assert sweep.cells("loss", by="slope")["runs"].tolist() == [6, 6]
    assert len(sweep.read("curves", where={"slope": 0.0})) == 6 * 3


def test_the_parameter_is_there_while_the_first_new_runs_train(store: Store, add: Add) -> None:
    run(store)
    add(slope=SLOPE)
    seen: list[int] = []
    axes = {"x": {"values": [0.0, 1.0, 2.0]}, "slope": {"values": [0.0, 0.25]}}
    run(store, lambda launch: seen.append(len(mislabel.load(store.address, "bowls").cells("loss"))), parameters=axes)
    assert seen[0] >= 3
    assert seen[-1] == 6


def test_a_sweep_whose_runs_had_no_such_parameter_cannot_take_its_new_default(store: Store, add: Add) -> None:
    run(store)
    add(slope=STEEP)
    with pytest.raises(SpecError) as refused:
        run(store)
    (problem,) = refused.value.problems
    assert "slope" in str(problem)
    assert run(store, parameters={"x": {"values": [0.0, 1.0, 2.0]}, "slope": 0.0}).complete


def test_other_sweeps_take_over_runs_from_before(store: Store, add: Add) -> None:
    run(store, name="first")
    add(slope=STEEP)
    second = run(store, name="second", parameters={"x": {"values": [1.0, 2.0, 3.0]}, "slope": {"values": [0.0, 0.25]}})
    assert second.driver.progress.statuses == {"done": 2 + 6}
    runs = mislabel.load(store.address, "second").runs
    assert runs["slope"].value_counts().to_dict() == {0.0: 6, 0.25: 6}


SEARCH: dict[str, Any] = {
    "method": {"name": "tpe", "startup": 4}, "budget": {"cells": 6}, "parameters": {"x": {"min": -10, "max": 10}},
}  # fmt: skip


def test_a_search_learns_from_runs_from_before(store: Store, add: Add) -> None:
    from mislabel.sweeps.search.warm_start import earlier_cells

    first = run(store, name="first")
    later = add(slope=STEEP)
    spec = bowl_spec(**{**SEARCH, "parameters": {"x": {"min": -10, "max": 10}, "slope": {"min": -1, "max": 1}}})
    found = earlier_cells([first.files], Space(spec, later))
    assert sorted((values["x"], values["slope"]) for values, _ in found) == [(0.0, 0.0), (1.0, 0.0), (2.0, 0.0)]


def test_a_search_continues_with_the_cells_that_it_proposed(store: Store, add: Add) -> None:
    run(store, **SEARCH)
    add(slope=SLOPE)
    wider = run(store, **{**SEARCH, "budget": {"cells": 9}})
    assert wider.driver.progress.statuses == {"done": 3 * 2}
    assert mislabel.load(store.address, "bowls").runs["cell_id"].nunique() == 9


@pytest.mark.long
def test_a_search_runs_its_unfinished_proposals_with_the_earlier_value(store: Store, add: Add) -> None:
    files = run(store, **SEARCH).files
    cells = set(files.read("runs", ["cell_id"])["cell_id"].to_pylist())
    for table in ("runs", "curves", "arrays"):
        for part in files.parts(table):
            files.remove(f"{table}/{part}.parquet")
    add(slope=SLOPE)
    assert run(store, **SEARCH).driver.progress.statuses == {"done": 6 * 2}
    runs = mislabel.load(store.address, "bowls").runs
    assert set(runs["cell_id"]) == cells
    assert set(runs["slope"]) == {0.0}


def test_the_earlier_value_must_be_a_valid_one() -> None:
    later = with_parameters(BOWL, slope=(float, knob(0.0, between=(-1, 1), earlier=2.0, help="slope of the table")))
    with pytest.raises(ValueError, match=r"Later\.slope: earlier: 2\.0"):
        later.parameters  # noqa: B018
    typed = with_parameters(BOWL, slope=(float, knob(0.5, at_least=0, earlier=1, help="slope of the table")))
    assert repr(typed.earlier["slope"]) == "1.0"
