from typing import Any

import pytest

from mislabel.sweeps.checks.method_rules import refusals
from mislabel.sweeps.spec.model import Spec

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


def test_racing_compares_by_one_objective() -> None:
    racing = {"count": 2, "up_to": 4}
    assert refused(seeds=racing) == []
    (several,) = refused(seeds=racing, metric=[LOSS, HEIGHT])
    assert several.endswith("one objective; metric lists 2: keep one, or remove this")
    (none,) = refused("random", seeds=racing, metric=[])
    assert none.endswith("one objective; give the metric, such as {name: .., goal: minimize}")


@pytest.mark.parametrize("up_to", [4, 5])
def test_more_seeds_are_more(up_to: int) -> None:
    assert refused(seeds={"count": 5, "up_to": up_to}) == [
        f"seeds.up_to: {up_to} is not above count, 5, which each cell has anyway"
    ]


@pytest.mark.parametrize("method", ["grid", "random", "qmc"])
def test_only_what_learns_starts_from_earlier_results(method: str) -> None:
    (told,) = refused(method, start_from=["other"])
    assert told.startswith(f"start_from: {method} learns nothing from results; ")
    assert refused("gp", start_from=["other"]) == []


def test_a_grid_tries_no_cell_first() -> None:
    (told,) = refused("grid", try_first=[{"x": 0.5}])
    assert told.startswith("try_first: a grid runs all its cells anyway; ")
    assert all(refused(method, try_first=[{"x": 0.5}]) == [] for method in ("random", "qmc", "tpe"))
