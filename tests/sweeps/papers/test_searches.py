"""The bundled searches: what they search, that their small versions run, and that the records are of these specs."""

from pathlib import Path
from typing import Any

import pytest

import mislabel
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.reader import read_spec
from mislabel.sweeps.papers.bundled import examples, sweep_name
from mislabel.sweeps.plan.plan import make_plan
from mislabel.sweeps.run.launch import inline_host, run_sweep
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.run_index import RunIndex
from mislabel.sweeps.store.store import Store

pytestmark = pytest.mark.long

SEARCHES = [name for name in examples() if name.endswith("/search")]
SANE = "self-labeling/search"
BRANCHED = [name for name in SEARCHES if name != SANE]
RECORDS = Path(__file__).parents[3] / "records"
QUICK = pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])


def _read(name: str, quick: bool) -> tuple[Spec, Any]:
    return read_spec(name, quick=quick)


@QUICK
@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_plans_and_races_for_seeds(name: str, quick: bool, store: Store) -> None:
    spec, task = _read(name, quick)
    assert spec.name == sweep_name(name, quick)
    plan = make_plan(spec, task, RunIndex(spec, store.sweep(spec.name)), store.sweep(spec.name))
    assert plan.missing == plan.runs > 0
    assert spec.method.name == "tpe"
    assert spec.seeds.up_to is not None
    assert spec.seeds.up_to >= 2 * spec.seeds.count
    assert spec.fixed()["data"] == ("digits" if quick else "cifar10" if name == SANE else "mnist")
    assert spec.resources.gpu == (name == SANE and not quick)


@QUICK
def test_the_search_of_sane_has_settings_of_the_refinery_only_where_it_is_on(quick: bool) -> None:
    spec, task = _read(SANE, quick)
    assert set(spec.axes()) == {"refinery", "tau", "tau_prime", "m1", "m2", "kappa", "mixup_weight", "iota"}
    assert spec.early_terminate is not None
    assert spec.early_terminate.type == "asha"
    of_refinery = ("tau_prime", "m1", "m2")
    given: dict[bool, set[tuple[Any, ...]]] = {True: set(), False: set()}
    for chunk in Space(spec, task).drawn(64):
        for cell in map(chunk.values, range(len(chunk))):
            given[cell["refinery"] != "none"].add(tuple(cell.get(name) for name in of_refinery))
    defaults = tuple(task.parameters[name].default for name in of_refinery)
    assert given[False] == {defaults}
    assert len(given[True]) > 10


@QUICK
@pytest.mark.parametrize("name", BRANCHED)
def test_each_noise_rate_width_and_scale_has_its_own_search_over_the_learning_rate(name: str, quick: bool) -> None:
    spec, task = _read(name, quick)
    assert spec.branch_axes() == ["noise_rate", "width", "init_scale"]
    assert set(spec.axes()) - set(spec.branch_axes()) == {"learning_rate"}
    branches = Space(spec, task).branches()
    lengths = [len(axis.values or ()) for axis in (spec.axes()[each] for each in spec.branch_axes())]
    assert len(branches) == lengths[0] * lengths[1] * lengths[2]
    assert {branch.spec.budget.cells for branch in branches} == {(spec.budget.cells or 0) // len(branches)}
    for branch in branches:
        assert (branch.spec.budget.cells or 0) > spec.method.startup, "some cells are chosen from earlier results"


def test_the_small_search_of_sane_runs_and_stops_cells(store: Store) -> None:
    words = ["parameters.steps=6", "parameters.frames=4", "parameters.batch=8", "parameters.dictionary=16"]
    words += ["early_terminate.min_steps=2", "budget.cells=4", "seeds={count: 2, up_to: 4}", "parameters.samples=40"]
    words += ["parameters.width=4", "parameters.bank=20"]
    spec, task = read_spec(SANE, tuple(words), quick=True)
    assert not run_sweep(spec, task, store, inline_host).failed
    runs = mislabel.load(store.address, spec.name).runs
    assert runs["cell_id"].nunique() == 4
    assert "stopped" in set(runs["status"])


@pytest.mark.parametrize("name", BRANCHED)
def test_a_small_search_with_branches_runs(name: str, store: Store) -> None:
    words = ["parameters.steps=4", "parameters.frames=2", "seeds=2", "parameters.samples=40", "budget.cells=10"]
    words += ["parameters.width={values: [2], grid: true}", "parameters.noise_rate={values: [0.0], grid: true}"]
    words += ["parameters.init_scale={values: [0.3, 1.0], grid: true}"]
    spec, task = read_spec(name, tuple(words), quick=True)
    assert not run_sweep(spec, task, store, inline_host).failed
    runs = mislabel.load(store.address, spec.name).runs
    assert runs.groupby("init_scale")["learning_rate"].nunique().to_dict() == {0.3: 5, 1.0: 5}


@pytest.mark.parametrize("name", SEARCHES)
def test_the_records_of_a_search_are_complete_and_come_from_its_small_version(name: str) -> None:
    spec, _ = _read(name, quick=True)
    sweep = mislabel.load(str(RECORDS), spec.name)
    assert sweep.spec == spec
    assert sweep.modified_runs.empty
    cells = sweep.cells(spec.metric[0].name)
    assert len(cells) == spec.budget.cells
    assert cells["runs"].min() >= spec.seeds.count
    assert cells["runs"].max() == spec.seeds.up_to, "no race decided earlier"
    assert (cells["stopped"] > 0).any() == (spec.early_terminate is not None)
