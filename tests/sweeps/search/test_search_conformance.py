"""Tests that every learning method must pass, on small searches of the `bowl` task."""

import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from optuna.trial import TrialState

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.search.search import Proposal, Search
from mislabel.sweeps.spec.condition import parse_expression
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import BOWL, bowl_spec
from tests.examples import examples

METHODS = ["tpe", "gp", "cmaes", "nsga2", "nsga3"]
SEVERAL = [method for method in METHODS if method != "cmaes"]
# All kinds of axes at once.
MIXED: dict[str, Any] = {
    "x": {"min": -10, "max": 10},
    "rate": {"min": 0.01, "max": 1, "scale": "log"},
    "level": {"min": 0, "max": 20, "step": 5, "when": "x > 0"},
    "width": {"values": [1, 2, 4]},
    "surface": {"values": ["smooth", "rough", "smooth"]},
}
ZIP = [["width", "surface"]]
EXCLUDE = ["x > 8", "rate < 0.02 and level == 5"]
TWO = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
Values = Mapping[str, Any]
Result = Callable[[Values], Mean]


def search_of(
    files: SweepFiles, method: str, known: Mapping[Any, Mean] | None = None, seed: int = 0, startup: int = 5,
    population: int = 4, **changes: Any,
) -> Search:  # fmt: skip
    """A search that resumes from the files; `known` has the means of the store, by cell and seeds."""
    defaults: dict[str, Any] = {
        "parameters": MIXED, "zip": ZIP, "exclude": EXCLUDE,
        "method": {"name": method, "seed": seed, "startup": startup, "population": population},
        "budget": {"cells": cells_of(method)}, "seeds": 2,
    }  # fmt: skip
    search = Search(Space(bowl_spec(**{**defaults, **changes}), BOWL), files)
    search.restore(lambda cell, seeds: (known or {}).get((cell, seeds)))
    return search


def cells_of(method: str) -> int:
    """A proposal of gp takes as long as a hundred of the others."""
    return 9 if method == "gp" else 24


def loss(values: Values) -> float:
    return float((values["x"] - 3) ** 2 + math.log10(values["rate"]) ** 2 + values["level"] / 50 + values["width"])


def mean_of(values: Values) -> Mean:
    return Mean((loss(values),))


def two_means_of(values: Values) -> Mean:
    return Mean((loss(values), -abs(values["x"] + 5)))


def troubled(values: Values) -> Mean:
    """Some cells diverge, some are stopped."""
    if values["width"] == 2:
        return Mean((math.nan,))
    return Mean((loss(values),), stopped_at=4 if values["x"] < -4 else None)


def asked(search: Search, result: Result, batches: int = 100, late: int = 2) -> tuple[list[Proposal], dict[Any, Mean]]:
    """Ask in batches of three. Results arrive out of order, some of them a batch later."""
    proposals: list[Proposal] = []
    waiting: list[Proposal] = []
    told: dict[Any, Mean] = {}
    for _ in range(batches):
        batch = search.ask(3)
        if not batch:
            break
        proposals += batch
        waiting += batch[::-1]
        while len(waiting) > late:
            proposal = waiting.pop(0)
            told[proposal.cell, proposal.seeds] = result(proposal.values)
            search.tell(proposal.cell, result(proposal.values), proposal.seeds)
    return proposals, told


def shown(proposals: list[Proposal]) -> list[Any]:
    return [(p.values, p.seeds) for p in proposals]


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_and_results_give_the_same_proposals(store: Store, method: str) -> None:
    first, again = (asked(search_of(store.sweep(name), method), mean_of)[0] for name in "ab")
    other = asked(search_of(store.sweep("c"), method, seed=1), mean_of)[0]
    assert shown(first) == shown(again)
    for proposal in first:
        check_cell(proposal.values, MIXED, ZIP, EXCLUDE)
    assert len(first) == cells_of(method)
    assert not {p.cell for p in first} & {p.cell for p in other}


@pytest.mark.long
def test_another_process_proposes_the_same(store: Store) -> None:
    """Python orders sets of strings differently there."""
    script = (
        "from tests.sweeps.search.test_search_conformance import *\n"
        f"files = Store({str(store.address)!r}).sweep('other')\n"
        "print([p.cell for p in asked(search_of(files, 'tpe'), troubled)[0]])\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    here = [p.cell for p in asked(search_of(store.sweep("here"), "tpe"), troubled)[0]]
    assert done.stdout.strip() == str(here)


@pytest.mark.long
@pytest.mark.parametrize("result", [mean_of, troubled])
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_search_proposes_the_same_as_an_uninterrupted_one(store: Store, method: str, result: Result) -> None:
    uninterrupted, _ = asked(search_of(store.sweep("a"), method), result, late=0)
    files = store.sweep("b")
    proposals: list[Proposal] = []
    known: dict[Any, Mean] = {}
    while True:  # killed after every second batch
        batch, told = asked(search_of(files, method, known), result, batches=2, late=0)
        known |= told
        proposals += batch
        if not batch:
            break
    assert shown(proposals) == shown(uninterrupted)


@pytest.mark.parametrize("method", METHODS)
def test_unfinished_proposals_run_first_after_a_restart(store: Store, method: str) -> None:
    """The search is killed while two cells are running; their results arrive after the restart."""
    uninterrupted, _ = asked(search_of(store.sweep("a"), method), mean_of)
    files = store.sweep("b")
    before, known = asked(search_of(files, method), mean_of, batches=2)
    search = search_of(files, method, known)
    waiting = [p for p in before[-3:][::-1] if (p.cell, p.seeds) not in known]
    assert len(waiting) == 2
    assert search.unfinished == sorted(waiting, key=lambda p: p.number)
    proposals = list(before)
    while batch := search.ask(3):
        proposals += batch
        waiting += batch[::-1]
        while len(waiting) > 2:
            proposal = waiting.pop(0)
            search.tell(proposal.cell, mean_of(proposal.values), proposal.seeds)
    assert shown(proposals) == shown(uninterrupted)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_trials_have_the_means(files: SweepFiles, method: str) -> None:
    search = search_of(files, method)
    proposals, told = asked(search, troubled, late=0)
    search._learn_results()
    for proposal in proposals:
        trial, mean = search.study.trial(proposal.number), told[proposal.cell, proposal.seeds]
        if mean.comparable:
            assert (trial.state, trial.values) == (TrialState.COMPLETE, list(mean.values))
        else:
            assert trial.state == TrialState.PRUNED
            assert trial.last_step == mean.stopped_at


@pytest.mark.long
@pytest.mark.parametrize("method", SEVERAL)
def test_several_objectives_are_learned_and_survive_a_restart(store: Store, method: str) -> None:
    changes: dict[str, Any] = {"metric": TWO}
    if method == "gp":  # takes seconds for a proposal of this many axes
        changes |= {"parameters": {"x": MIXED["x"]}, "zip": [], "exclude": []}
    uninterrupted, _ = asked(search_of(store.sweep("a"), method, **changes), two_means_of, late=0)
    before, known = asked(search_of(store.sweep("b"), method, **changes), two_means_of, batches=2, late=0)
    search = search_of(store.sweep("b"), method, known, **changes)
    after, _ = asked(search, two_means_of, late=0)
    assert shown(before + after) == shown(uninterrupted)
    search._learn_results()
    for proposal in search.proposals:
        assert search.study.trial(proposal.number).values == list(two_means_of(proposal.values).values)


@pytest.mark.parametrize("method", METHODS)
def test_a_search_continues_if_every_cell_fails(files: SweepFiles, method: str) -> None:
    proposals, _ = asked(search_of(files, method), lambda values: Mean((math.nan,)))
    assert len(proposals) == cells_of(method)


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_later_cells_are_better_than_random_ones(store: Store, method: str) -> None:
    parameters = {"x": {"min": -10, "max": 10}, "rate": {"min": 0.01, "max": 1, "scale": "log"}}
    late = []
    for seed in range(1 if method == "gp" else 3):
        search = search_of(
            store.sweep(f"{seed}"), method, seed=seed, startup=6, population=8, parameters=parameters, zip=[],
            exclude=[], budget={"cells": 14 if method == "gp" else 60},
        )  # fmt: skip
        proposals, _ = asked(search, mean_of)
        late += [loss(p.values) for p in proposals[len(proposals) // 2 :]]
    drawn = [loss(cells.values(i)) for cells in search.space.drawn(500) for i in range(len(cells))]
    assert statistics.median(late) < statistics.median(drawn) / 2


# Any space


ranges = st.sampled_from(
    [
        {"x": {"min": -3, "max": 3}},
        {"x": {"min": 0, "max": 1, "step": 0.1}},
        {"x": {"values": [0.0, 0.5, 1.0]}},
        {"rate": {"min": 0.1, "max": 1, "scale": "log"}},
        {"rate": {"min": 0.1, "max": 0.7, "step": 0.2}},
    ]
)
others = st.lists(
    st.sampled_from(
        [
            {"level": {"min": 1, "max": 500, "scale": "log"}},
            {"level": {"min": 0, "max": 12, "step": 4, "when": "x > 0.5"}},
            {"level": {"values": [1, 10]}},
            {"width": {"values": [1, 2, 3]}, "surface": {"values": ["rough", "smooth", "rough"]}},
            {"width": {"min": 1, "max": 8}},
            {"tilted": {"values": [True, False]}},
        ]
    ),
    max_size=3,
)
exclusions = st.lists(st.sampled_from(["x > 0.8", "level == 10", "width == 2 and x < 0.2", "tilted"]), max_size=2)


@pytest.mark.long
@examples(12, suppress_health_check=[HealthCheck.too_slow])
@given(ranges, others, exclusions, st.sampled_from([m for m in METHODS if m != "gp"]), st.integers(0, 9))
def test_proposals_are_always_in_the_space(
    first: dict[str, Any], rest: list[dict[str, Any]], exclude: list[str], method: str, seed: int
) -> None:
    parameters = {"x": {"min": -1, "max": 1}, **first, **{n: axis for part in rest for n, axis in part.items()}}
    groups = [["width", "surface"]] if "surface" in parameters and "values" in parameters["width"] else []
    if "surface" in parameters and not groups:
        parameters["surface"] = {"values": ["rough", "smooth"]}
    changes: dict[str, Any] = {
        "parameters": parameters, "zip": groups, "exclude": exclude, "budget": {"cells": 8},
        "startup": 3, "population": 3, "seed": seed,
    }  # fmt: skip
    if method == "cmaes" and all("values" in axis for axis in parameters.values()):
        return  # refused
    with tempfile.TemporaryDirectory() as folder:
        files = Store(folder).sweep("bowls")
        before, known = asked(search_of(files, method, **changes), mean_of, batches=2)
        after, _ = asked(search_of(files, method, known, **changes), mean_of)
    for proposal in before + after:
        check_cell(proposal.values, parameters, groups, exclude)


def check_cell(values: Values, parameters: Values, groups: list[list[str]], exclude: list[str]) -> None:
    for name, value in values.items():
        declared, axis = BOWL.parameters[name], parameters.get(name)
        assert type(value) is declared.type
        if axis is None or ("when" in axis and not parse_expression(axis["when"]).holds(values)):
            assert value == declared.default
        elif "values" in axis:
            assert value in axis["values"]
        else:
            assert axis["min"] <= value <= axis["max"]
            if "step" in axis:
                steps = (value - axis["min"]) / axis["step"]
                assert steps == pytest.approx(round(steps), abs=1e-9)
                assert value == float(f"{value:.12g}")
    for group in groups:
        together = list(zip(*(parameters[name]["values"] for name in group), strict=True))
        assert tuple(values[name] for name in group) in together
    assert not any(parse_expression(text).holds(values) for text in exclude)
