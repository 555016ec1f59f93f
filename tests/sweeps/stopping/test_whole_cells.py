"""No cell has both stopped and finished runs, however its seeds are packed, added or resumed."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import mislabel
from mislabel.analysis.statistics.ranking import ranked
from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.bowls import cut_short, means_of, prepared, run, runs_of

pytestmark = pytest.mark.long

PARAMETERS: dict[str, Any] = {
    "x": {"values": [4, 2, 1, 5, 3, -1]}, "steps": 27, "frames": 10, "spacing": "linear", "rate": 0.1,
}  # fmt: skip
RULES: dict[str, dict[str, Any]] = {
    "asha": {"type": "asha", "min_steps": 3, "eta": 3},
    "hyperband": {"type": "hyperband", "min_steps": 3, "eta": 3},
    "median": {"type": "median", "min_steps": 6, "min_cells": 2},
    "patience": {"type": "patience", "min_steps": 6, "patience": 6, "min_gain": 0.001},
}
every_rule = pytest.mark.parametrize("kind", RULES)


def split_cells(files: SweepFiles) -> dict[str, Counter[str]]:
    """The cells with both finished and stopped runs: how many runs have each status."""
    found = {str(cell): Counter(rows["status"]) for cell, rows in runs_of(files).groupby("cell_id")}
    return {cell: statuses for cell, statuses in found.items() if {"done", "stopped"} <= set(statuses)}


def swept(kind: str, **changes: Any) -> dict[str, Any]:
    return {"parameters": PARAMETERS, "seeds": 4, "resources": {"pack": 3}, "early_terminate": RULES[kind], **changes}


@every_rule
def test_seeds_in_different_packs_stop_together(store: Store, kind: str) -> None:
    launch = run(store, **swept(kind))
    assert not split_cells(launch.files)
    assert {"done", "stopped"} == set(runs_of(launch.files)["status"])


@every_rule
def test_seeds_in_different_packs_stop_together_after_interruptions(
    store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    reports: list[int] = []

    def stop(launch: Launch) -> None:
        reports.append(1)
        if len(reports) % 7 == 0:
            launch.driver.stop(INTERRUPTED)

    launches = 0
    while not (launch := prepared(store, **swept(kind))).complete:
        launches += 1
        run(store, stop, **swept(kind))
    assert launches > 3
    assert not split_cells(launch.files)


@every_rule
def test_new_seeds_of_a_finished_cell_are_trained_to_the_end(store: Store, kind: str) -> None:
    first = runs_of(run(store, **swept(kind, seeds=1, resources={"pack": 6})).files)
    finished = set(first[first["status"] == "done"]["cell_id"])
    launch = run(store, **swept(kind, seeds=5, resources={"pack": 30}))
    assert not split_cells(launch.files)
    table = runs_of(launch.files)
    assert set(table[table["cell_id"].isin(finished)]["status"]) == {"done"}


@every_rule
@pytest.mark.parametrize("per", ["cell", "run"])
def test_the_seeds_of_a_race_are_trained_to_the_end(store: Store, kind: str, per: str) -> None:
    rule = {**RULES[kind], "per": per}
    parameters = {**PARAMETERS, "x": {"values": [3, 9]}, "level": {"values": [1, 2, 3, 4]}}
    launch = run(store, **swept(kind, parameters=parameters, seeds={"count": 2, "up_to": 8}, early_terminate=rule))
    table = runs_of(launch.files)
    assert set(table[table["seed"] >= 2]["status"]) <= {"done"}
    if per == "cell":
        assert not split_cells(launch.files)


def test_a_cell_that_a_search_proposes_again_has_no_stopped_seeds_once_it_is_finished(store: Store) -> None:
    """There are only six cells, so that the search proposes each of them several times."""
    launch = run(store, **swept("asha", method={"name": "tpe", "startup": 4}, budget={"cells": 18}, seeds=1))
    counts = runs_of(launch.files).groupby("cell_id").size()
    assert counts.max() > 1
    assert not split_cells(launch.files)


def test_stopped_seeds_of_finished_cells_are_trained_to_the_end_by_the_next_launch(store: Store) -> None:
    """Earlier versions stopped further seeds of finished cells. The cells then left the race and the ranking."""
    parameters = {**PARAMETERS, "x": 3, "level": {"values": [1, 2]}}
    values = swept("median", parameters=parameters, seeds={"count": 2, "up_to": 8})
    launch = run(store, **values)
    table = runs_of(launch.files)
    assert set(table["status"]) == {"done"}
    cut_short(launch.files, table[table["seed"] > 4]["run_id"].tolist(), 3)
    assert split_cells(launch.files)
    again = prepared(store, **values)
    assert not again.complete
    assert again.driver.means.best is not None, "the first seeds were trained to the end"
    assert not split_cells(run(store, **values).files)
    assert prepared(store, **values).complete


def test_the_search_and_the_tables_agree_on_the_best_cell(tmp_path: Path) -> None:
    """Noise of the first two seeds decides who races. Then the mean over all seeds decides who wins."""
    parameters = {**PARAMETERS, "x": {"min": -5, "max": 9}, "rate": {"min": 0.05, "max": 1.0}, "width": 1}
    raced = 0
    for seed in range(8):
        values = swept(
            "asha", parameters=parameters, method={"name": "tpe", "seed": seed, "startup": 6}, budget={"cells": 24},
            seeds={"count": 2, "up_to": 8},
        )  # fmt: skip
        store = Store(str(tmp_path / str(seed)))
        launch = run(store, **values)
        assert not split_cells(launch.files)
        table = runs_of(launch.files)
        raced += len(table) > 48
        means = table[table["status"] == "done"].groupby("cell_id")["loss"].mean()
        best = str(means.idxmin())
        for known in (launch.driver.means, means_of(launch.plan.spec, launch.files)):
            assert known.best is not None
            value, cell = known.best
            assert cell == best
            assert value == pytest.approx(means[best])
        sweep = mislabel.load(store.address, "bowls")
        assert ranked(sweep)["cell_id"].iloc[0] == best
        assert sweep.study().best_trial.user_attrs["cell_id"] == best
        assert sweep.study().best_value == pytest.approx(means[best])
    assert raced > 4
