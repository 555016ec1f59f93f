from typing import Any

import pytest

from mislabel.sweeps.checks.draft import Draft
from mislabel.sweeps.checks.rules import method_rules
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import dotted
from tests.bowls import bowl_spec

RANGE = {"min": 0.0, "max": 1.0}
LIST = {"values": [1.0, 2.0]}
LONG = {"steps": 100, "frames": 20}
LOSS = {"name": "loss", "goal": "minimize"}
HEIGHT = {"name": "height", "goal": "maximize"}


def wrong(method: str = "tpe", **changes: Any) -> list[str]:
    """The locations of the mistakes."""
    values: dict[str, Any] = {
        "name": "s", "task": "bowl", "method": {"name": method, "population": 4}, "metric": [LOSS],
        "parameters": {"x": RANGE}, "budget": {} if method == "grid" else {"cells": 20},
    }  # fmt: skip
    draft = Draft({**values, **changes})
    assert not draft.mistakes
    return [dotted(mistake.path) for mistake in method_rules(draft)]


@pytest.mark.parametrize("method", ["grid", "random", "qmc", "tpe", "gp", "cmaes", "nsga2", "nsga3"])
def test_every_method_accepts_one_objective_over_ranges(method: str) -> None:
    assert wrong(method) == []


@pytest.mark.parametrize("method", ["tpe", "gp", "nsga2", "nsga3"])
def test_learning_methods_accept_lists_and_several_objectives(method: str) -> None:
    assert wrong(method, parameters={"x": LIST}, metric=[LOSS, HEIGHT]) == []


def test_cmaes_needs_a_range_and_one_objective() -> None:
    assert wrong("cmaes", parameters={"x": LIST}) == ["method"]
    assert wrong("cmaes", parameters={"x": LIST, "rate": RANGE}) == []
    assert wrong("cmaes", parameters={"x": LIST, "rate": {**RANGE, "points": 2, "grid": True}}) == ["method"]
    assert wrong("cmaes", metric=[LOSS, HEIGHT]) == ["metric"]


@pytest.mark.parametrize("method", ["tpe", "gp", "cmaes", "nsga2", "nsga3"])
def test_learning_methods_need_a_metric(method: str) -> None:
    assert wrong(method, metric=[]) == ["metric"]


def test_a_population_leaves_cells_for_a_second_generation() -> None:
    assert wrong("nsga2", budget={"cells": 5}) == []
    assert wrong("nsga2", budget={"cells": 4}) == ["method.population"]


def test_more_seeds_for_the_best_need_one_objective() -> None:
    seeds = {"count": 2, "up_to": 4}
    assert wrong(seeds=seeds) == []
    assert wrong(seeds=seeds, metric=[LOSS, HEIGHT]) == ["seeds.up_to"]
    assert wrong("random", seeds=seeds, metric=[]) == ["seeds.up_to"]


@pytest.mark.parametrize("method", ["grid", "random", "qmc"])
def test_only_learning_methods_start_from_earlier_results(method: str) -> None:
    assert wrong(method, start_from=["other"]) == ["start_from"]
    assert wrong("gp", start_from=["other"]) == []


def test_a_grid_has_no_cells_to_try_first() -> None:
    assert wrong("grid", try_first=[{"x": 0.5}]) == ["try_first"]
    assert all(wrong(method, try_first=[{"x": 0.5}]) == [] for method in ("random", "qmc", "tpe"))


@pytest.mark.parametrize(
    ("rule", "changes", "where"),
    [
        ({"type": "asha"}, {"metric": None}, "early_terminate"),
        ({"type": "asha"}, {"metric": [LOSS, HEIGHT]}, "early_terminate"),
        ({"type": "patience"}, {}, "early_terminate.patience"),
        ({"type": "asha", "patience": 5}, {}, "early_terminate.patience"),
        ({"type": "asha", "min_gain": 0.5}, {}, "early_terminate.min_gain"),
        ({"type": "asha", "min_cells": 9}, {}, "early_terminate.min_cells"),
        ({"type": "median", "eta": 4}, {}, "early_terminate.eta"),
        ({"type": "asha", "min_steps": 100}, {}, "early_terminate.min_steps"),
        (
            {"type": "asha", "min_steps": 50},
            {"parameters": {"steps": {"values": [40, 100]}}},
            "early_terminate.min_steps",
        ),
        (
            {"type": "median", "min_steps": 60},
            {"parameters": {"steps": 100, "frames": 3, "spacing": "linear"}},
            "early_terminate.min_steps",
        ),
    ],
)
def test_a_rule_that_stops_no_run_is_refused(rule: dict[str, Any], changes: dict[str, Any], where: str) -> None:
    with pytest.raises(SpecError) as caught:
        bowl_spec(**{"parameters": LONG, **changes, "early_terminate": rule})
    assert [problem.path for problem in caught.value.problems] == [where]


@pytest.mark.parametrize(
    "rule", [{"type": "asha"}, {"type": "median", "min_cells": 9}, {"type": "patience", "patience": 5}]
)
def test_a_rule_that_stops_runs_is_accepted(rule: dict[str, Any]) -> None:
    assert bowl_spec(parameters=LONG, early_terminate=rule).early_terminate is not None
