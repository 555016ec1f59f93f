from typing import Any

import pytest

from sweeps.methods import refusals
from sweeps.spec import Spec

RANGE = {"min": 0.0, "max": 1.0}
LIST = {"values": [1.0, 2.0]}
LOSS = {"name": "loss", "goal": "minimize"}
HEIGHT = {"name": "height", "goal": "maximize"}


def refused(method: str = "tpe", **changes: Any) -> list[str]:
    values: dict[str, Any] = {
        "name": "s", "task": "bowl", "method": {"name": method, "population": 4}, "metric": [LOSS],
        "parameters": {"x": RANGE}, "budget": {"cells": 20},
    }  # fmt: skip
    spec = Spec.model_validate({**values, **changes}, strict=False)
    return [f"{'.'.join(map(str, path))}: {text}" for path, text in refusals(spec)]


@pytest.mark.parametrize("method", ["grid", "random", "qmc", "tpe", "gp", "cmaes", "nsga2", "nsga3"])
def test_one_objective_over_ranges_suits_every_method(method: str) -> None:
    assert refused(method) == []


@pytest.mark.parametrize("method", ["tpe", "gp", "nsga2", "nsga3"])
def test_lists_and_several_objectives_suit_all_learning_methods_but_one(method: str) -> None:
    assert refused(method, parameters={"x": LIST}, metric=[LOSS, HEIGHT]) == []


def test_cmaes_needs_a_range_and_one_objective() -> None:
    text = "moves through ranges of numbers, and there is none; give a min and a max, or use tpe or gp"
    assert refused("cmaes", parameters={"x": LIST}) == [f"method: cmaes {text}"]
    assert refused("cmaes", parameters={"x": LIST, "rate": RANGE}) == []
    assert refused("cmaes", parameters={"x": LIST, "rate": {**RANGE, "points": 2, "grid": True}}) != []
    (told,) = refused("cmaes", metric=[LOSS, HEIGHT])
    assert told == "metric: lists 2 objectives; cmaes improves one: keep one, or use tpe, gp, nsga2 or nsga3"


@pytest.mark.parametrize("method", ["tpe", "gp", "cmaes", "nsga2", "nsga3"])
def test_what_learns_needs_a_metric(method: str) -> None:
    (told,) = refused(method, metric=[])
    assert told.startswith(f"metric: is missing; {method} needs to know what to improve")


def test_a_population_leaves_room_for_a_second_generation() -> None:
    assert refused("nsga2", budget={"cells": 5}) == []
    assert refused("nsga2", budget={"cells": 4}) == [
        "method.population: 4 of budget.cells = 4 leave none for a second generation; give fewer"
    ]


@pytest.mark.parametrize(("key", "value"), [("early_terminate", {"type": "asha"}), ("seeds", {"count": 2, "up_to": 4})])
def test_stopping_and_racing_compare_by_one_objective(key: str, value: Any) -> None:
    assert refused(**{key: value}) == []
    (several,) = refused(**{key: value}, metric=[LOSS, HEIGHT])
    assert several.endswith("one objective; metric lists 2: keep one, or remove this")
    (none,) = refused("random", **{key: value}, metric=[])
    assert none.endswith("one objective; give the metric, such as {name: .., goal: minimize}")


def test_more_seeds_are_not_fewer() -> None:
    assert refused(seeds={"count": 5, "up_to": 4}) == [
        "seeds.up_to: 4 is less than count, 5; each cell has at least those"
    ]


@pytest.mark.parametrize("method", ["grid", "random", "qmc"])
def test_only_what_learns_starts_from_earlier_results_and_given_cells(method: str) -> None:
    told = refused(method, start_from=["other"], try_first=[{"x": 0.5}])
    assert [line.split(";")[0] for line in told] == [
        f"start_from: {method} learns nothing from results",
        f"try_first: {method} {'runs all its cells anyway' if method == 'grid' else 'draws all its cells'}",
    ]
    assert refused("gp", start_from=["other"], try_first=[{"x": 0.5}]) == []
