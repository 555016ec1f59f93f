from typing import Any

import pytest

from mislabel.sweeps.checks import rules
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.spec.model import Spec, spec_from_stored
from tests.bowls import bowl_spec, bowl_values

X = {"min": 0, "max": 1}
WIDTHS = {"values": [1, 2, 4]}
LEVELS = {"values": [10, 20, 30]}


def mistakes(**changes: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        checked_spec(Document("a.yaml", bowl_values(**changes)))
    return [str(problem) for problem in caught.value.problems]


def searched(**changes: Any) -> dict[str, Any]:
    return {"method": "random", "budget": {"cells": 12}, "parameters": {"x": X}, **changes}


def zipped(*groups: list[str], **parameters: Any) -> dict[str, Any]:
    return {"parameters": {"width": WIDTHS, "level": LEVELS, **parameters}, "zip": list(groups)}


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        # Lists that go together
        (zipped(["width"]), "zip[0]: a group of one; name at least two parameters whose values go together"),
        (zipped(["width", "lvel"]), "zip[0]: 'lvel' is not a parameter of bowl; did you mean level?"),
        (zipped(["width", "rate"]), "zip[0]: 'rate' has no list of values; write parameters.rate: {values: [..]}"),
        (zipped(["width", "rate"], rate=0.5), "zip[0]: 'rate' has no list of values"),
        (zipped(["width", "x"], x={**X, "points": 3}), "zip[0]: 'x' has no list of values"),
        (zipped(["width", "level"], level={**LEVELS, "values": [1, 2, 3], "when": "x > 0"}),
         "zip[0]: 'level' has a condition, and what goes together varies together"),
        (zipped(["width", "level"], level={"values": [1, 2]}),
         "zip[0]: go together first with first, so they need equally many values; width has 3, level has 2"),
        (zipped(["width", "level"], width={"values": [1, 2, 2]}, level={"values": [1, 9, 9]}),
         "zip[0]: width 2, level 9 stands twice"),
        (zipped(["width", "level"], ["width", "x"], x=WIDTHS), "zip[1]: 'width' stands twice; a parameter goes with"),
        ({"zip": ["x", "rate"]}, "zip: write a list of groups, such as [[dim, width]]"),
        ({"zip": "x"}, "zip: write a list of groups, such as [[dim, width]]"),
        ({"zip": [["x", 3]]}, "zip[0]: 3 is not the name of a parameter"),
        # Branches
        (searched(parameters={"x": X, "rate": {"min": 0.1, "max": 1, "grid": True}}),
         "parameters.rate: grid: true over a range needs points; write how many, or list values"),
        (searched(parameters={"x": X, "width": {**WIDTHS, "grid": True, "when": "x > 0"}}),
         "parameters.width: each of its values is a branch"),
        (searched(parameters={"x": {**X, "points": 3, "grid": True}}),
         "parameters: all that varies is grid: true, so random has nothing left to propose"),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 20, "grid": True}}),
         "budget.cells: 12 is fewer than the 20 branches that level make; each needs one cell at least"),
        (searched(parameters={"x": X, "width": {**WIDTHS, "grid": True}}, exclude=["width > 0"]),
         "exclude: leaves no combination of width; exclude less"),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 900, "grid": True},
                              "rate": {"min": 0.1, "max": 1, "points": 50, "grid": True}}),
         "parameters: level, rate with grid: true make 45,000 branches, more than 10,000; give fewer values"),
        (searched(method={"name": "nsga2", "population": 4}, parameters={"x": X, "width": {**WIDTHS, "grid": True}}),
         "method.population: 4 of budget.cells = 4 leave none for a second generation; give fewer (12 are shared by 3"),
        ({"parameters": {"x": {**X, "step": 1e-6}}},
         "parameters.x: a grid over it has 1,000,001 values, more than 10,000; give a larger step"),
        # Cells to try first
        ({"try_first": [{"x": 1}]}, "try_first: a grid runs all its cells anyway; remove it"),
        (searched(try_first={"x": 1}), "try_first: write a list of cells, such as [{width: 64, rate: 0.1}]"),
        (searched(try_first=[3]), "try_first: write a list of cells"),
        (searched(try_first=[{}]), "try_first[0]: is empty; name a parameter and its value at least"),
        (searched(try_first=[{"y": 1}]), "try_first[0].y: not a parameter of bowl"),
        (searched(try_first=[{"x": 0.5}, {"x": "a"}]), "try_first[1].x: 'a' is not a number"),
        (searched(try_first=[{"x": [1]}]), "try_first[0].x: is a list; write one value"),
        (searched(try_first=[{"x": None}]), "try_first[0].x: has no value"),
        (searched(try_first=[{"x": 2}]), "try_first[0].x: 2.0 is not between 0 and 1"),
        (searched(try_first=[{"x": 0.5}, {"x": 0.5}]), "try_first[1]: stands twice"),
        (searched(try_first=[{"x": 0.5, "level": 3}]),
         "try_first[0].level: 3 is not 1, which all cells have; leave it out, or vary level"),
        (searched(parameters={"x": X, "width": WIDTHS}, try_first=[{"width": 3}]),
         "try_first[0].width: 3 is not one of its values 1, 2, 4"),
        (searched(parameters={"x": {**X, "step": 0.25}}, try_first=[{"x": 0.3}]),
         "try_first[0].x: 0.3 is not on a step; 0.25 is"),
        (searched(try_first=[{"x": 0.5}], exclude=["x > 0.4 and x < 0.6"]),
         "try_first[0]: exclude leaves out such cells; give other values"),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 9, "when": "x > 0.5"}},
                  try_first=[{"x": 0.1, "level": 4}]),
         "try_first[0].level: where not (x > 0.5), it holds its default 1; leave it out"),
        (searched(parameters={"x": X, "width": WIDTHS, "level": LEVELS}, zip=[["width", "level"]],
                  try_first=[{"width": 4, "level": 10}]),
         "try_first[0]: width 4, level 10 do not go together in zip"),
        (searched(parameters={"x": X, "rate": {"min": 0.2, "max": 1, "points": 5, "grid": True}},
                  try_first=[{"rate": 0.5}]),
         "try_first[0].rate: 0.5 is not one of its values 0.2, 0.4, 0.6, 0.8, 1.0"),
        (searched(try_first=[{"x": 0.1}, {"x": 0.2}], budget={"cells": 1}),
         "try_first: lists 2 cells, and budget.cells leaves 1; list fewer, or raise it"),
        (searched(parameters={"x": X, "width": {**WIDTHS, "grid": True}}, try_first=[{"x": 0.1}, {"x": 0.2}],
                  budget={"cells": 5}),
         "try_first: lists 2 cells, and budget.cells leaves 1 for each branch; list fewer, or raise it"),
        # Sweeps to start from
        (searched(start_from=["other"]), "start_from: random learns nothing from results; remove it, or use tpe"),
        (searched(method="tpe", start_from=["../other"]), "start_from[0]: '../other' is not the name of a sweep"),
        (searched(method="tpe", start_from=["bowls"]), "start_from[0]: is this sweep itself"),
        (searched(method="tpe", start_from=["other", "other"]), "start_from[1]: 'other' stands twice"),
        (searched(method="tpe", start_from=[3]), "start_from: write a list of names of sweeps in the store"),
        # Seeds and budgets
        (searched(method="tpe", seeds=5, budget={"cells": 9, "runs": 4}),
         "budget.runs: 4 is less than the 5 seeds of one cell, so tpe would learn nothing"),
        ({"seeds": {"count": 5, "up_to": 5}}, "seeds.up_to: 5 is not above count, 5, which each cell has anyway"),
        ({"seeds": {"count": 5, "up_to": 9}, "metric": None}, "seeds.up_to: gives more seeds to the best by one"),
        (searched(method="tpe", metric=None), "metric: is missing; tpe needs to know what to improve, such as"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_told_with_its_place_and_remedy(changes: dict[str, Any], mistake: str) -> None:
    (told,) = mistakes(**changes)
    assert told.startswith(mistake)


@pytest.mark.parametrize(
    "changes",
    [
        zipped(["width", "level"]),
        zipped(["width", "level"], width={"values": [1, 2, 2]}, level={"values": [1, 1, 9]}),
        {"parameters": {"x": {"values": [1, 2], "grid": True}}},
        {"parameters": {"x": {**X, "step": 0.25}}},
        searched(parameters={"x": X, "width": {**WIDTHS, "grid": True}, "level": LEVELS}, zip=[["width", "level"]]),
        searched(parameters={"x": X, "level": {"min": 1, "max": 12, "grid": True}}),
        searched(parameters={"x": X, "rate": {"min": 0.2, "max": 1, "step": 0.2, "grid": True}}),
        searched(method="tpe", start_from="other"),
        searched(try_first=[{"x": 0.5, "level": 1}]),
        searched(seeds={"count": 2, "up_to": 8}, budget={"cells": 12, "runs": 1, "wall": "1h"}),
    ],
)
def test_what_goes_together_is_accepted_and_reads_back_from_the_store(changes: dict[str, Any]) -> None:
    spec: Spec = bowl_spec(**changes)
    assert spec_from_stored(spec.to_yaml()) == spec


def test_cells_to_try_first_are_kept_as_their_axes_have_them() -> None:
    """On the steps of a range, in the type of the task, and without what all cells share."""
    spec = bowl_spec(**searched(parameters={"x": {**X, "step": 0.1}}, try_first=[{"x": 0.1 + 0.2, "rate": 0.5}]))
    assert spec.try_first == ({"x": 0.3},)


def test_all_groups_that_do_not_go_together_are_told() -> None:
    told = mistakes(**zipped(["width", "level", "rate"], ["x"], x=WIDTHS))
    assert len(told) == 2


def test_more_axes_than_a_sobol_sequence_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_DIMENSIONS", 1)
    (told,) = mistakes(**searched(method="qmc", parameters={"x": X, "rate": {"min": 0.1, "max": 1}}))
    assert told == "method: 2 axes, more than the 1 of a Sobol sequence"
