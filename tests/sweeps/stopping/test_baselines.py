"""Cells of `baselines` run first, and no rule stops them."""

from typing import Any

import pytest

from mislabel.sweeps.run.launch import Launch
from mislabel.sweeps.store.outcome import INTERRUPTED
from mislabel.sweeps.store.store import Store
from tests.bowls import prepared, run, runs_of

WORST = 10.0
PARAMETERS: dict[str, Any] = {"x": {"min": -5, "max": 10}, "steps": 27, "frames": 10, "spacing": "linear", "rate": 0.3}
ASHA = {"type": "asha", "min_steps": 3, "eta": 3}
SWEEP: dict[str, Any] = {
    "parameters": PARAMETERS, "seeds": 2, "resources": {"pack": 4}, "early_terminate": ASHA, "budget": {"cells": 12},
    "baselines": [{"x": WORST}], "method": {"name": "tpe", "startup": 12},
}  # fmt: skip


def ends_of(launch: Launch, x: float = WORST) -> list[str]:
    table = runs_of(launch.files)
    return sorted(table[table["x"] == x]["status"])


@pytest.mark.long
@pytest.mark.parametrize("method", ["tpe", "random", "nsga2"])
@pytest.mark.parametrize("per", ["cell", "run"])
def test_a_baseline_is_trained_to_the_end_though_it_is_the_worst_cell(store: Store, method: str, per: str) -> None:
    options = {"name": method} if method != "nsga2" else {"name": method, "population": 5}
    launch = run(store, **{**SWEEP, "method": options, "early_terminate": {**ASHA, "per": per}})
    assert ends_of(launch) == ["done"] * 2
    table = runs_of(launch.files)
    assert "stopped" in set(table["status"])
    assert table["cell_id"].nunique() == 12


def test_without_the_mark_the_cell_is_stopped(store: Store) -> None:
    launch = run(store, **{**SWEEP, "baselines": [], "try_first": [{"x": 3.0}, {"x": WORST}]})
    assert ends_of(launch) == ["stopped"] * 2


@pytest.mark.long
def test_a_baseline_is_not_stopped_in_later_launches(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mislabel.sweeps.run.worker.STRETCH_SECONDS", 0.0)
    reports: list[int] = []

    def stop(launch: Launch) -> None:
        reports.append(1)
        if len(reports) % 5 == 0:
            launch.driver.stop(INTERRUPTED)

    launches = 0
    while not (launch := prepared(store, **SWEEP)).complete:
        launches += 1
        run(store, stop, **SWEEP)
    assert launches > 2
    assert ends_of(launch) == ["done"] * 2


def test_a_stopped_cell_that_becomes_a_baseline_is_trained_to_the_end(store: Store) -> None:
    grid = {**SWEEP, "method": "grid", "budget": {}, "parameters": {**PARAMETERS, "x": {"values": [3, 2, 4, WORST]}}}
    assert ends_of(run(store, **{**grid, "baselines": []})) == ["stopped"] * 2
    launch = run(store, **grid)
    assert launch.plan.missing == 2
    assert ends_of(launch) == ["done"] * 2


@pytest.mark.long
def test_a_search_that_has_begun_can_get_a_baseline(store: Store) -> None:
    run(store, **{**SWEEP, "baselines": [], "try_first": [{"x": 3.0}]})
    launch = run(store, **{**SWEEP, "budget": {"cells": 13}})
    assert ends_of(launch) == ["done"] * 2


def test_each_branch_has_the_baseline(store: Store) -> None:
    parameters = {**PARAMETERS, "width": {"values": [2, 3], "grid": True}}
    launch = run(store, **{**SWEEP, "parameters": parameters, "budget": {"cells": 8}})
    table = runs_of(launch.files)
    assert table[table["x"] == WORST].groupby("width")["status"].agg(list).tolist() == [["done"] * 2] * 2
