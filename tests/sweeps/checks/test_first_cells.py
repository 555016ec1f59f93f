from typing import Any

import pytest

from mislabel.sweeps.cells.space import Space
from tests.bowls import BOWL, bowl_spec
from tests.sweeps.checks.test_rules import LEVELS, WIDTHS, X, mistakes, searched


@pytest.mark.parametrize(
    ("changes", "where", "shown"),
    [
        # Cells to try first
        ({"try_first": [{"x": 1}]}, 'try_first', []),
        (searched(try_first={"x": 1}), 'try_first', []),
        (searched(try_first=[3]), "try_first[0]", ["3"]),
        (searched(try_first=[{}]), 'try_first[0]', []),
        (searched(try_first=[{"y": 1}]), 'try_first[0].y', []),
        (searched(try_first=[{"x": 0.5}, {"x": "a"}]), 'try_first[1].x', ["'a'"]),
        (searched(try_first=[{"x": [1]}]), 'try_first[0].x', []),
        (searched(try_first=[{"x": None}]), 'try_first[0].x', []),
        (searched(try_first=[{"x": 2}]), 'try_first[0].x', ['2']),
        (searched(try_first=[{"x": 0.5}, {"x": 0.5}]), 'try_first[1]', []),
        (searched(try_first=[{"x": 0.5, "level": 3}]),
         'try_first[0].level', ['3']),
        (searched(parameters={"x": X, "width": WIDTHS}, try_first=[{"width": 3}]),
         'try_first[0].width', ['3']),
        (searched(parameters={"x": {**X, "step": 0.25}}, try_first=[{"x": 0.3}]),
         'try_first[0].x', ['0.3']),
        (searched(try_first=[{"x": 0.5}], exclude=["x > 0.4 and x < 0.6"]),
         'try_first[0]', []),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 9, "when": "x > 0.5"}},
                  try_first=[{"x": 0.1, "level": 4}]),
         'try_first[0].level', []),
        (searched(parameters={"x": X, "width": WIDTHS, "level": LEVELS}, zip=[["width", "level"]],
                  try_first=[{"width": 4, "level": 10}]),
         'try_first[0]', []),
        (searched(parameters={"x": X, "rate": {"min": 0.2, "max": 1, "points": 5, "grid": True}},
                  try_first=[{"rate": 0.5}]),
         'try_first[0].rate', ['0.5']),
        (searched(try_first=[{"x": 0.1}, {"x": 0.2}], budget={"cells": 1}),
         'try_first', []),
        (searched(parameters={"x": X, "width": {**WIDTHS, "grid": True}}, try_first=[{"x": 0.1}, {"x": 0.2}],
                  budget={"cells": 5}),
         'try_first', []),
        # Baselines
        (searched(baselines={"x": 1}), 'baselines', []),
        (searched(baselines=[{}]), 'baselines[0]', []),
        (searched(baselines=[{"y": 1}]), 'baselines[0].y', []),
        (searched(baselines=[{"x": 2}]), 'baselines[0].x', ['2']),
        (searched(baselines=[{"x": 0.5}, {"x": 0.5}]), 'baselines[1]', []),
        (searched(baselines=[{"x": 0.5}], exclude=["x > 0.4 and x < 0.6"]), 'baselines[0]', []),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 9}}, baselines=[{"x": 0.5}]),
         'baselines[0]', ['level']),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 9, "when": "x > 0.5"}}, baselines=[{"x": 0.6}]),
         'baselines[0]', ['level']),
        ({"baselines": [{"x": 0.5}]}, 'baselines[0].x', ['0.5']),
        (searched(try_first=[{"x": 0.1}], baselines=[{"x": 0.2}, {"x": 0.3}], budget={"cells": 2}), 'try_first', ['3']),
        (searched(baselines=[{"x": 0.2}, {"x": 0.3}], budget={"cells": 1}), 'baselines', ['2']),
    ],
)  # fmt: skip
def test_a_mistake_in_a_listed_cell_is_reported_once_with_its_location_and_value(
    changes: dict[str, Any], where: str, shown: list[str]
) -> None:
    (problem,) = mistakes(**changes)
    assert problem.path == where
    assert all(part in problem.text for part in shown)


@pytest.mark.parametrize(
    "changes",
    [
        {"baselines": [{"x": 1}]},
        searched(try_first=[{"x": 0.1}], baselines=[{"x": 0.1}], budget={"cells": 1}),
        searched(parameters={"x": X, "level": {"min": 1, "max": 9, "when": "x > 0.5"}}, baselines=[{"x": 0.1}]),
        searched(parameters={"x": X, "width": {**WIDTHS, "grid": True}}, baselines=[{"x": 0.1}]),
    ],
)
def test_baselines_are_cells_of_the_sweep(changes: dict[str, Any]) -> None:
    spec = bowl_spec(**changes)
    space = Space(spec, BOWL)
    baselines = [cell for cells in space.baselines() for cell in cells.ids]
    assert baselines
    assert set(baselines) <= {cell for cells in space.cells() for cell in cells.ids}
