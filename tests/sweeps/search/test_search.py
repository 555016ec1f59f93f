import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
from optuna.trial import TrialState

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.plan.sources import SearchSource
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.search.search import Proposal, Search
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import BOWL, bowl_spec, means_of, prepared, run, runs_of

Values = Mapping[str, Any]

TPE: dict[str, Any] = {
    "method": {"name": "tpe", "startup": 5},
    "budget": {"cells": 12},
    "parameters": {"x": {"min": -10, "max": 10}, "rate": {"min": 0.01, "max": 1, "scale": "log"}},
}


def search_in(files: SweepFiles, means: dict[str, Mean] | None = None, **changes: Any) -> Search:
    search = Search(Space(bowl_spec(**{**TPE, **changes}), BOWL), files)
    search.restore(lambda cell, seeds: (means or {}).get(cell))
    return search


def asked(search: Search, loss: Any = lambda values: (values["x"] - 3) ** 2) -> list[Proposal]:
    """Ask for one cell at a time until the search ends, and tell the search each cell's loss."""
    proposals = []
    while batch := search.ask(1):
        proposals += batch
        value = loss(batch[0].values)
        mean = Mean((value,) if isinstance(value, float | int) else tuple(value or (math.nan,)))
        search.tell(batch[0].cell, mean, batch[0].seeds)
    return proposals


def search_of(launch: Launch) -> Search:
    source = launch.driver._source
    assert isinstance(source, SearchSource)
    (search,) = source.search.searches
    return search


def learned(launch: Launch) -> Search:
    """The search with all results in its study, where they arrive with the next batch."""
    search = search_of(launch)
    search._learn_results()
    return search


def results(search: Search) -> dict[tuple[float, ...], Any]:
    """State and values of each trial, by its parameters."""
    trials = [search.study.trial(proposal.number) for proposal in search.proposals]
    return {tuple(trial.params.values()): (trial.state, trial.values) for trial in trials}


# Proposing


def test_the_budget_limits_the_number_of_cells(files: SweepFiles) -> None:
    proposals = asked(search_in(files))
    assert len(proposals) == len({proposal.cell for proposal in proposals}) == 12
    for proposal in proposals:
        assert proposal.cell == cell_id(BOWL, proposal.values)
        assert proposal.values.keys() == BOWL.parameters.keys()
        assert -10 <= float(proposal.values["x"]) <= 10
        assert 0.01 <= float(proposal.values["rate"]) <= 1


def test_the_same_seed_proposes_the_same_cells(store: Store) -> None:
    first, second = (asked(search_in(store.sweep(name))) for name in "ab")
    other = asked(search_in(store.sweep("c"), method={"name": "tpe", "startup": 5, "seed": 1}))
    assert [proposal.cell for proposal in first] == [proposal.cell for proposal in second]
    assert not {proposal.cell for proposal in first} & {proposal.cell for proposal in other}


@pytest.mark.long
def test_excluded_cells_are_never_proposed(files: SweepFiles) -> None:
    """Even though the best cell is among them."""
    exclude = ["x > 2 and x < 6", "rate > 0.5"]
    proposals = asked(search_in(files, exclude=exclude, budget={"cells": 40}))
    assert len(proposals) == 40
    assert not any(2 < float(p.values["x"]) < 6 or float(p.values["rate"]) > 0.5 for p in proposals)


def test_a_search_continues_if_almost_every_cell_is_excluded(files: SweepFiles) -> None:
    proposals = asked(search_in(files, exclude=["x > -9.99"], budget={"cells": 20}))
    assert len(proposals) == 20


def test_inactive_axes_have_their_default_and_are_not_in_the_trial(files: SweepFiles) -> None:
    parameters = {"x": {"min": -5, "max": 5}, "level": {"min": 5, "max": 9, "when": "x > 0"}}
    search = search_in(files, parameters=parameters, budget={"cells": 30})
    proposals = asked(search)
    for proposal in proposals:
        assert (
            proposal.values["level"] in range(5, 10)
            if float(proposal.values["x"]) > 0
            else proposal.values["level"] == 1
        )
        params = search.study.trial(proposal.number).params
        assert ("level" in params) == (float(proposal.values["x"]) > 0)
    assert len({float(p.values["x"]) > 0 for p in proposals}) == 2


@pytest.mark.long
def test_a_cell_that_is_proposed_again_gets_more_seeds(files: SweepFiles) -> None:
    """A cell gets at most four times its seeds. When all cells have them, the search ends."""
    parameters = {"x": {"values": [1, 2, 3, 4]}, "width": {"values": [1, 2, 3]}}
    proposals = asked(search_in(files, parameters=parameters, budget={"cells": 100}))
    by_cell = {p.cell: [q.seeds for q in proposals if q.cell == p.cell] for p in proposals}
    assert len(by_cell) == 12
    assert all(seeds == [2, 4, 6, 8] for seeds in by_cell.values())


def test_a_model_that_repeats_its_best_cell_still_explores(files: SweepFiles) -> None:
    parameters = {"x": {"values": [1, 2, 3, 4]}, "width": {"values": [1, 2, 3]}}
    proposals = asked(search_in(files, parameters=parameters, budget={"cells": 30}))
    times = Counter((p.values["x"], p.values["width"]) for p in proposals)
    assert sum(times.values()) == 30
    assert max(times.values()) == 4
    assert {x for (x, _), n in times.items() if n == 4} >= {3}
    assert len(times) >= 8


def test_with_a_seed_race_the_search_adds_no_seeds(files: SweepFiles) -> None:
    parameters = {"x": {"values": [1, 2, 3, 4]}, "width": {"values": [1, 2, 3]}}
    search = search_in(files, parameters=parameters, budget={"cells": 100}, seeds={"count": 2, "up_to": 8})
    proposals = asked(search)
    assert len(proposals) == len({p.cell for p in proposals}) == 12
    assert {p.seeds for p in proposals} == {2}


def test_values_have_the_types_that_the_task_declares(files: SweepFiles) -> None:
    parameters = {
        "x": {"min": 0, "max": 1}, "level": {"min": 1, "max": 500, "scale": "log"}, "width": {"values": [1, 2]},
        "surface": {"values": ["smooth", "rough"]}, "tilted": {"values": [True, False]},
    }  # fmt: skip
    (proposal,) = search_in(files, parameters=parameters).ask(1)
    assert {name: type(value) for name, value in proposal.values.items()} == {
        name: parameter.type for name, parameter in BOWL.parameters.items()
    }


# Learning


def test_the_search_learns_the_mean_over_seeds(store: Store) -> None:
    launch = run(store, **TPE, seeds=3)
    means = runs_of(launch.files).groupby("cell_id")["loss"].mean()
    search = learned(launch)
    assert {p.cell for p in search.proposals} == set(means.index)
    assert len(means) == 12
    for proposal in search.proposals:
        trial = search.study.trial(proposal.number)
        assert trial.state == TrialState.COMPLETE
        assert trial.values == pytest.approx([means[proposal.cell]])
        assert trial.params == {name: proposal.values[name] for name in ("x", "rate")}


def test_a_cell_that_diverged_does_not_break_the_search(store: Store) -> None:
    changes = {**TPE, "parameters": {"x": {"min": -10, "max": 10}, "trouble": {"values": [0, 2]}}}
    launch = run(store, **changes)
    runs = runs_of(launch.files)
    assert set(runs["status"]) == {"done", "diverged"}
    assert len(runs) == 24
    search = learned(launch)
    states = {(trial := search.study.trial(p.number)).params["trouble"]: trial.state for p in search.proposals}
    assert states == {0: TrialState.COMPLETE, 2: TrialState.PRUNED}


@pytest.mark.long
def test_a_cell_that_failed_does_not_break_the_search(store: Store) -> None:
    changes = {**TPE, "parameters": {"x": {"min": -10, "max": 10}, "trouble": {"values": [0, 1]}}}
    launch = run(store, **{**changes, "budget": {"cells": 12, "failures": 100}})
    assert set(runs_of(launch.files)["status"]) == {"done", "failed"}
    assert len(search_of(launch).proposals) == 12


def test_a_search_with_several_objectives_learns_all_of_them(store: Store) -> None:
    metric = [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "maximize"}]
    parameters = {"x": {"min": -10, "max": 10}, "trouble": {"values": [0, 2]}}
    launch = run(store, **{**TPE, "metric": metric, "parameters": parameters, "budget": {"cells": 20}})
    means = runs_of(launch.files).groupby("cell_id")[["loss", "height"]].mean()
    search = learned(launch)
    trials = {p.cell: search.study.trial(p.number) for p in search.proposals}
    measured = means[means["loss"].notna()]
    assert 0 < len(measured) < 20
    for cell in measured.index:
        assert trials[cell].values == pytest.approx([means["loss"][cell], means["height"][cell]])
    assert {trials[cell].state for cell in means.index.difference(measured.index)} == {TrialState.PRUNED}


# Resuming


@pytest.mark.parametrize("first", [3, 7])
def test_a_restart_rebuilds_the_results(store: Store, first: int) -> None:
    trouble = {"trouble": {"values": [0, 1, 2]}}
    changes = {**TPE, "parameters": {**TPE["parameters"], **trouble}, "resources": {"pack": 2}}
    budget = {"failures": 100}
    before = learned(run(store, **{**changes, "budget": {**budget, "cells": first}}))
    after = learned(prepared(store, **{**changes, "budget": {**budget, "cells": 12}}))
    assert after.unfinished == []
    assert results(after) == results(before)
    assert after.proposals == before.proposals


def test_unfinished_proposals_are_run_before_new_ones_are_asked_for(store: Store) -> None:
    launch = prepared(store, **{**TPE, "resources": {"pack": 2}})
    order = launch.driver.next()
    assert order is not None
    again = prepared(store, **{**TPE, "resources": {"pack": 2}})
    first = again.driver.next()
    assert first is not None
    assert first.run_ids == order.run_ids
    assert len(search_of(again).proposals) == 1
    second = again.driver.next()
    assert second is not None
    assert second.cells != order.cells


def test_an_unfinished_proposal_gets_its_result(files: SweepFiles) -> None:
    (proposal,) = search_in(files).ask(1)
    again = search_in(files)
    assert [p.values for p in again.unfinished] == [proposal.values]
    again.tell(proposal.cell, Mean((0.5,)), proposal.seeds)
    again.ask(1)
    trial = again.study.trial(again.proposals[0].number)
    assert (trial.state, trial.values) == (TrialState.COMPLETE, [0.5])
    assert trial.params == {name: proposal.values[name] for name in ("x", "rate")}


@pytest.mark.long
def test_an_interrupted_search_proposes_as_many_cells_as_an_uninterrupted_one(store: Store) -> None:
    stopped = 0

    def stop(launch: Launch) -> None:
        if launch.driver.progress.done > stopped + 4:
            launch.driver.stop(INTERRUPTED)

    while (launch := run(store, stop, **TPE)).plan.missing:
        stopped = launch.driver.progress.done
    runs = runs_of(launch.files)
    assert len(runs) == 24
    assert runs["cell_id"].nunique() == 12


@pytest.mark.long
@pytest.mark.parametrize("emptied", [True, False])
def test_an_emptied_or_missing_batch_is_reported_and_its_cells_are_recovered(
    store: Store, messages: list[str], emptied: bool
) -> None:
    first = run(
        store, lambda launch: launch.driver.stop(INTERRUPTED) if launch.driver.progress.done > 8 else None, **TPE
    )
    cells = set(runs_of(first.files)["cell_id"])
    batch = f"proposals/{first.files.names('proposals')[0]}"
    first.files.remove(batch)
    if emptied:
        first.files.write(batch, b"")
    again = run(store, **TPE)
    reported = [message.split(" ")[0] for message in messages]
    assert first.files.shown(batch if emptied else "proposals/00000.json") in reported
    assert cells <= {proposal.cell for proposal in search_of(again).proposals}
    assert runs_of(again.files)["cell_id"].nunique() == 12


def test_after_a_restart_random_cells_are_new(files: SweepFiles) -> None:
    changes: dict[str, Any] = {"method": {"name": "tpe", "startup": 300}, "budget": {"cells": 150}}
    first = search_in(files, **changes)
    means = {proposal.cell: Mean((1.0,)) for proposal in first.ask(150)}
    again = search_in(files, means, **{**changes, "budget": {"cells": 160}})
    assert len(again.ask(100)) == 10


@pytest.mark.long
def test_with_more_seeds_the_proposed_cells_run_again(store: Store) -> None:
    before = runs_of(run(store, **TPE, seeds=1).files)
    launch = run(store, **TPE, seeds=3)
    after = runs_of(launch.files)
    assert set(after["cell_id"]) == set(before["cell_id"])
    assert (after.groupby("cell_id").size() == 3).all()
    pd.testing.assert_frame_equal(after[after["seed"] == 0].reset_index(drop=True), before)
    means = after.groupby("cell_id")["loss"].mean()
    search = learned(launch)
    assert {p.cell: search.study.trial(p.number).value for p in search.proposals} == pytest.approx(means.to_dict())


def test_cells_outside_a_narrower_space_are_not_restored(files: SweepFiles) -> None:
    """A revision of the spec may not narrow an axis, but a new version of the task can."""
    proposals = asked(search_in(files))
    means = {p.cell: Mean((1.0,)) for p in proposals}
    narrow = search_in(files, means, parameters={**TPE["parameters"], "x": {"min": 0, "max": 10}})
    inside = {p.cell for p in proposals if float(p.values["x"]) >= 0}
    assert {p.cell for p in narrow.proposals} == inside


# Improving


def height(values: Values) -> float:
    return float((values["x"] - 3) ** 2 + math.log10(values["rate"] / 0.1) ** 2)


@pytest.mark.long
def test_a_search_finds_a_better_cell_than_random_proposals(store: Store) -> None:
    best: dict[str, list[float]] = {"model": [], "chance": []}
    for seed in range(4):
        for name, startup in (("model", 10), ("chance", 1000)):
            method = {"name": "tpe", "seed": seed, "startup": startup}
            search = search_in(store.sweep(f"{name}-{seed}"), method=method, budget={"cells": 80})
            best[name].append(min(height(proposal.values) for proposal in asked(search, height)))
    assert sum(best["model"]) < sum(best["chance"]) / 3


def test_a_sweep_improves_its_cells_as_results_come_in(store: Store) -> None:
    launch = run(store, **{**TPE, "budget": {"cells": 40}, "parameters": {"x": {"min": -10, "max": 10}}, "seeds": 1})
    cells = [p.cell for p in search_of(launch).proposals]
    losses = runs_of(launch.files).set_index("cell_id")["loss"]
    early, late = losses.loc[cells[:10]].median(), losses.loc[cells[-10:]].median()
    assert late < early / 4
    assert means_of(launch.plan.spec, launch.files).best == (losses.min(), losses.idxmin())
