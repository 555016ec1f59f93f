from typing import Any

import pytest

from mislabel.sweeps.checks import rules
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import Problem, SpecError
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.spec.model import Spec, spec_from_stored
from tests.bowls import bowl_spec, bowl_values

X = {"min": 0, "max": 1}
WIDTHS = {"values": [1, 2, 4]}
LEVELS = {"values": [10, 20, 30]}


def mistakes(**changes: Any) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        checked_spec(Document("a.yaml", bowl_values(**changes)))
    return caught.value.problems


def searched(**changes: Any) -> dict[str, Any]:
    return {"method": "random", "budget": {"cells": 12}, "parameters": {"x": X}, **changes}


def zipped(*groups: list[str], **parameters: Any) -> dict[str, Any]:
    return {"parameters": {"width": WIDTHS, "level": LEVELS, **parameters}, "zip": list(groups)}


@pytest.mark.parametrize(
    ("changes", "where", "shown"),
    [
        # Zipped lists
        (zipped(["width"]), 'zip[0]', []),
        (zipped(["width", "lvel"]), 'zip[0]', ["'lvel'", 'level']),
        (zipped(["width", "rate"]), 'zip[0]', []),
        (zipped(["width", "rate"], rate=0.5), 'zip[0]', []),
        (zipped(["width", "x"], x={**X, "points": 3}), 'zip[0]', []),
        (zipped(["width", "level"], level={**LEVELS, "values": [1, 2, 3], "when": "x > 0"}),
         'zip[0]', []),
        (zipped(["width", "level"], level={"values": [1, 2]}),
         'zip[0]', []),
        (zipped(["width", "level"], width={"values": [1, 2, 2]}, level={"values": [1, 9, 9]}),
         'zip[0]', []),
        (zipped(["width", "level"], ["width", "x"], x=WIDTHS), 'zip[1]', []),
        ({"zip": ["x", "rate"]}, 'zip', []),
        ({"zip": "x"}, 'zip', []),
        ({"zip": [["x", 3]]}, 'zip[0][1]', ['3']),
        # Branches
        (searched(parameters={"x": X, "rate": {"min": 0.1, "max": 1, "grid": True}}),
         'parameters.rate', []),
        (searched(parameters={"x": X, "width": {**WIDTHS, "grid": True, "when": "x > 0"}}),
         'parameters.width', []),
        (searched(parameters={"x": {**X, "points": 3, "grid": True}}),
         'parameters', []),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 20, "grid": True}}),
         'budget.cells', ['12']),
        (searched(parameters={"x": X, "width": {**WIDTHS, "grid": True}}, exclude=["width > 0"]),
         'exclude', []),
        (searched(parameters={"x": X, "level": {"min": 1, "max": 900, "grid": True},
                              "rate": {"min": 0.1, "max": 1, "points": 50, "grid": True}}),
         'parameters', []),
        (searched(method={"name": "nsga2", "population": 4}, parameters={"x": X, "width": {**WIDTHS, "grid": True}}),
         'method.population', []),
        ({"parameters": {"x": {**X, "step": 1e-6}}},
         'parameters.x', []),
        # Sweeps to start from
        (searched(start_from=["other"]), 'start_from', []),
        (searched(method="tpe", start_from=["../other"]), 'start_from[0]', ["'../other'"]),
        (searched(method="tpe", start_from=["bowls"]), 'start_from[0]', []),
        (searched(method="tpe", start_from=["other", "other"]), 'start_from[1]', []),
        (searched(method="tpe", start_from=[3]), "start_from[0]", ["3"]),
        # Seeds and budgets
        (searched(method="tpe", seeds=5, budget={"cells": 9, "runs": 4}),
         'budget.runs', ['4']),
        ({"seeds": {"count": 5, "up_to": 5}}, 'seeds.up_to', ['5']),
        ({"seeds": {"count": 5, "up_to": 9}, "metric": None}, 'seeds.up_to', []),
        (searched(method="tpe", metric=None), 'metric', []),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_once_with_its_location_and_value(
    changes: dict[str, Any], where: str, shown: list[str]
) -> None:
    (problem,) = mistakes(**changes)
    assert problem.path == where
    assert all(part in problem.text for part in shown)


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
def test_a_right_spec_is_accepted_and_reads_back_from_the_store(changes: dict[str, Any]) -> None:
    spec: Spec = bowl_spec(**changes)
    assert spec_from_stored(spec.to_yaml()) == spec


def test_cells_to_try_first_are_stored_as_their_axes_have_them() -> None:
    """On the steps of a range, in the type of the task, and without values that all cells share."""
    spec = bowl_spec(**searched(parameters={"x": {**X, "step": 0.1}}, try_first=[{"x": 0.1 + 0.2, "rate": 0.5}]))
    assert spec.try_first == ({"x": 0.3},)


def test_every_wrong_group_is_reported() -> None:
    found = mistakes(**zipped(["width", "level", "rate"], ["x"], x=WIDTHS))
    assert sorted(problem.path for problem in found) == ["zip[0]", "zip[1]"]


def test_more_axes_than_a_sobol_sequence_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "MOST_DIMENSIONS", 1)
    (problem,) = mistakes(**searched(method="qmc", parameters={"x": X, "rate": {"min": 0.1, "max": 1}}))
    assert problem.path == "method"
