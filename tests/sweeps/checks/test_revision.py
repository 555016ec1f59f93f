from typing import Any

import pytest

from mislabel.sweeps.checks.revision import incompatible_changes
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.model import Axis, Spec
from mislabel.sweeps.store.store import Store
from tests.bowls import BOWL, bowl_spec, prepared

GRID: dict[str, Any] = {
    "parameters": {"x": {"values": [0, 1]}, "level": {"min": 1, "max": 3}, "rate": 0.25},
    "exclude": ["x == 1 and level == 3"],
    "seeds": {"count": 3, "first": 2},
}
RANDOM: dict[str, Any] = {
    "method": {"name": "random", "seed": 1},
    "parameters": {"x": {"min": 0, "max": 1}},
    "exclude": ["x > 0.9"],
    "budget": {"cells": 10},
}
TPE: dict[str, Any] = {**RANDOM, "method": {"name": "tpe", "seed": 1}, "exclude": []}

QMC: dict[str, Any] = {**RANDOM, "method": {"name": "qmc", "seed": 1}}
ZIP: dict[str, Any] = {
    "parameters": {"x": {"values": [0, 1]}, "level": {"values": [5, 6]}, "width": {"values": [1, 2]}},
    "zip": [["x", "level"]],
}
STEPS: dict[str, Any] = {**TPE, "parameters": {"x": {"min": 0, "max": 1, "step": 0.2}}}
LISTED: dict[str, Any] = {**TPE, "parameters": {"x": {"values": [0, 1]}}}
BRANCHES: dict[str, Any] = {
    **TPE, "parameters": {"x": {"min": 0, "max": 1}, "level": {"values": [1, 2], "grid": True}},
}  # fmt: skip
DRAWN_BRANCHES: dict[str, Any] = {**BRANCHES, "method": "random", "try_first": [{"x": 0.5}]}
RACE: dict[str, Any] = {**GRID, "seeds": {"count": 3, "first": 2, "up_to": 9}}
ASHA = {"type": "asha"}


def wrong(old: dict[str, Any], **changes: Any) -> list[str]:
    """The locations of the changes that are not allowed."""
    found = incompatible_changes(bowl_spec(**old), bowl_spec(**{**old, **changes}), BOWL)
    return [problem.path for problem in found]


def parameters(old: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**old["parameters"], **changes}


@pytest.mark.parametrize("old", [GRID, RANDOM, TPE, QMC, ZIP, STEPS, LISTED, BRANCHES, DRAWN_BRANCHES, RACE])
def test_the_same_spec_is_compatible(old: dict[str, Any]) -> None:
    assert wrong(old) == []


@pytest.mark.parametrize(
    ("old", "changes"),
    [
        (GRID, {"seeds": {"count": 9, "first": 0}}),
        (GRID, {"exclude": []}),
        (GRID, {"parameters": parameters(GRID, x={"values": [2, 1, 0]})}),
        (GRID, {"parameters": parameters(GRID, x={"min": 0, "max": 1, "points": 5})}),
        (GRID, {"parameters": parameters(GRID, level={"min": 0, "max": 5})}),
        (GRID, {"parameters": parameters(GRID, level={"values": [1, 2, 3, 9]})}),
        (GRID, {"parameters": parameters(GRID, rate={"values": [0.25, 0.5]})}),
        (GRID, {"parameters": parameters(GRID, width={"values": [2, 4]})}),
        (GRID, {"parameters": parameters(GRID, width=2)}),
        (GRID, {"resources": {"pack": 9}, "budget": {"wall": "1h", "failures": 0}, "track": {"per": "run"}}),
        (GRID, {"metric": {"name": "height", "goal": "maximize"}}),
        (RANDOM, {"budget": {"cells": 20}}),
        (RANDOM, {"seeds": 5}),
        (TPE, {"budget": {"cells": 20}}),
        (TPE, {"parameters": {"x": {"min": -1, "max": 2}}}),
        (TPE, {"method": {"name": "tpe", "seed": 1, "startup": 5, "population": 9}}),
        (TPE, {"try_first": [{"x": 0.5}]}),
        (TPE, {"baselines": [{"x": 0.5}]}),
        ({**TPE, "baselines": [{"x": 0.5}]}, {"baselines": []}),
        (RANDOM, {"baselines": [{"x": 0.5}], "budget": {"cells": 11}}),
        (TPE, {"start_from": ["other"]}),
        (TPE, {"budget": {"cells": 10, "runs": 5, "wall": "1h"}}),
        ({**TPE, "start_from": ["other"], "try_first": [{"x": 0.5}]}, {"start_from": [], "try_first": []}),
        (QMC, {"budget": {"cells": 20}}),
        (RANDOM, {"try_first": [{"x": 0.5}], "budget": {"cells": 11}}),
        ({**RANDOM, "try_first": [{"x": 0.5}]}, {"try_first": [{"x": 0.5}, {"x": 0.6}], "budget": {"cells": 11}}),
        (ZIP, {"zip": []}),
        (ZIP, {"parameters": parameters(ZIP, x={"values": [2, 1, 0]}, level={"values": [9, 6, 5]})}),
        ({"parameters": {"x": 1}}, {**ZIP, "parameters": {"x": {"values": [1, 2]}, "level": {"values": [1, 2]}}}),
        (STEPS, {"parameters": {"x": {"min": 0, "max": 1}}}),
        (STEPS, {"parameters": {"x": {"min": 0, "max": 1, "step": 0.1}}}),
        (STEPS, {"parameters": {"x": {"min": -1, "max": 2, "step": 0.2}}}),
        (LISTED, {"parameters": {"x": {"min": 0, "max": 1}}}),
        (LISTED, {"parameters": {"x": {"min": -1, "max": 2, "step": 0.5}}}),
        (LISTED, {"parameters": {"x": {"values": [2, 1, 0]}}}),
        (TPE, {"parameters": {"x": {"min": 0, "max": 1}, "rate": {"min": 0.1, "max": 1}}}),  # 0.5 by default
        (BRANCHES, {"parameters": parameters(BRANCHES, level={"values": [1, 2, 3], "grid": True}),
                    "budget": {"cells": 15}}),
        (DRAWN_BRANCHES, {"budget": {"cells": 11}}),
        (DRAWN_BRANCHES, {"try_first": [{"x": 0.5}, {"x": 0.6}], "budget": {"cells": 12}}),
        (DRAWN_BRANCHES, {"try_first": [{"x": 0.5}, {"x": 0.6, "level": 1}], "budget": {"cells": 11}}),
        (RACE, {"seeds": {"count": 4, "first": 2, "up_to": 20}}),
        (RACE, {"seeds": {"count": 9, "first": 2}}),
        (GRID, {"seeds": {"count": 3, "first": 2, "up_to": 9}}),
        (GRID, {"early_terminate": ASHA}),
        ({**GRID, "early_terminate": ASHA}, {"early_terminate": {"type": "median"}}),
        ({**GRID, "early_terminate": ASHA}, {"early_terminate": None}),
    ],
)  # fmt: skip
def test_changes_that_only_add_runs_are_compatible(old: dict[str, Any], changes: dict[str, Any]) -> None:
    assert wrong(old, **changes) == []


@pytest.mark.parametrize(
    ("old", "changes", "where"),
    [
        (GRID, {"seeds": {"count": 2, "first": 2}}, "seeds"),
        (GRID, {"seeds": {"count": 9, "first": 3}}, "seeds"),
        (GRID, {"exclude": ["x == 1 and level == 3", "x == 0"]}, "exclude"),
        (GRID, {"parameters": parameters(GRID, x={"values": [0]})},
         "parameters.x"),
        (GRID, {"parameters": parameters(GRID, x=0)}, "parameters.x"),
        (GRID, {"parameters": parameters(GRID, level={"min": 2, "max": 3})},
         "parameters.level"),
        (GRID, {"parameters": parameters(GRID, rate=0.5)}, "parameters.rate"),
        (GRID, {"parameters": parameters(GRID, width=4)}, "parameters.width"),
        (GRID, {"parameters": parameters(GRID, x={"values": [0, 1], "when": "level == 1"})},
         "parameters.x",
        ),
        (RANDOM, {"budget": {"cells": 5}}, "budget.cells"),
        *((old, {"budget": {"cells": 9}}, "budget.cells") for old in (RANDOM, TPE, QMC, BRANCHES)),
        (BRANCHES, {"parameters": parameters(BRANCHES, level={"values": [1, 2, 3], "grid": True}),
                    "budget": {"cells": 13}}, "budget.cells"),
        (RANDOM, {"method": {"name": "random", "seed": 2}},
         "method"),
        (RANDOM, {"method": "tpe"}, "method"),
        (RANDOM, {"parameters": {"x": {"min": -1, "max": 1}}},
         "parameters.x"),
        (RANDOM, {"exclude": []}, "exclude"),
        (TPE, {"parameters": {"x": {"min": 0.5, "max": 2}}},
         "parameters.x"),
        (TPE, {"metric": {"name": "loss", "goal": "maximize"}}, "metric"),
        (TPE, {"parameters": {"x": {"values": [0, 1]}}},
         "parameters.x"),
        ({**GRID, "early_terminate": ASHA}, {"metric": {"name": "height", "goal": "minimize"}},
         "metric"),
        (QMC, {"parameters": {"x": {"min": 0, "max": 1, "step": 0.5}}},
         "parameters.x"),
        (QMC, {"exclude": []}, "exclude"),
        (TPE, {"parameters": {"x": {"min": 0, "max": 1, "step": 0.5}}},
         "parameters.x"),
        (LISTED, {"parameters": {"x": {"min": 0.5, "max": 2}}}, "parameters.x"),
        (LISTED, {"parameters": {"x": {"min": 0, "max": 2, "step": 0.4}}}, "parameters.x"),
        (LISTED, {"parameters": {"x": {"values": [1, 2]}}}, "parameters.x"),
        (TPE, {"parameters": {"x": {"min": 0, "max": 1}, "rate": {"min": 0.1, "max": 0.4}}}, "parameters.rate"),
        ({"parameters": {"x": {"values": [0, 0.3]}}}, {"parameters": {"x": {"min": 0, "max": 1, "points": 5}}},
         "parameters.x"),
        (STEPS, {"parameters": {"x": {"min": 0, "max": 1.2, "step": 0.3}}},
         "parameters.x"),
        (ZIP, {"parameters": parameters(ZIP, x={"values": [1, 0]})},
         "zip"),
        ({**ZIP, "zip": []}, {"zip": [["x", "level"]]}, "zip"),
        (ZIP, {"zip": [["x", "width"]]}, "zip"),
        ({**RANDOM, **ZIP}, {"zip": []}, "zip"),
        (BRANCHES, {"parameters": parameters(BRANCHES, level={"values": [1, 2]})},
         "parameters.level"),
        (BRANCHES, {"parameters": parameters(BRANCHES, level={"values": [1, 2, 3], "grid": True})},
         "budget.cells"),
        (RACE, {"seeds": {"count": 3, "first": 2, "up_to": 8}},
         "seeds.up_to"),
        (RACE, {"seeds": {"count": 3, "first": 2}},
         "seeds.up_to"),
        (RANDOM, {"baselines": [{"x": 0.5}]},
         "baselines"),
        ({**RANDOM, "baselines": [{"x": 0.5}]}, {"baselines": [{"x": 0.6}], "budget": {"cells": 20}},
         "baselines"),
        (RANDOM, {"try_first": [{"x": 0.5}]},
         "try_first"),
        ({**RANDOM, "try_first": [{"x": 0.5}]}, {"try_first": [{"x": 0.6}], "budget": {"cells": 20}},
         "try_first"),
        (DRAWN_BRANCHES, {"try_first": [{"x": 0.5}, {"x": 0.6}], "budget": {"cells": 11}},
         "try_first"),
    ],
)  # fmt: skip
def test_a_change_that_removes_runs_or_changes_their_meaning_is_refused(
    old: dict[str, Any], changes: dict[str, Any], where: str
) -> None:
    assert wrong(old, **changes) == [where]


def test_another_task_is_another_sweep() -> None:
    assert wrong(GRID, task="bowl.single") == ["task"]


def test_all_changes_are_reported_at_once() -> None:
    assert len(wrong(GRID, seeds=1, exclude=["x == 0"], parameters={"x": {"values": [5]}})) == 5
    assert wrong(RANDOM, seeds=1, budget={"cells": 9}) == ["seeds", "budget.cells"]


def test_a_parameter_that_the_task_no_longer_has_is_reported() -> None:
    """An update of the task's package may remove a parameter."""
    old = Spec(name="bowls", task="bowl", parameters={"depth": Axis(values=[1, 2]), "x": Axis(values=[0.0])})
    (problem,) = incompatible_changes(old, bowl_spec(parameters={"x": {"values": [0]}}), BOWL)
    assert problem.path == "parameters.depth"


def test_many_values_are_compared_quickly() -> None:
    old, new = (
        Spec(name="bowls", task="bowl", parameters={"x": Axis(values=[i / 10_000 for i in range(count)])})
        for count in (30_000, 30_001)
    )
    assert incompatible_changes(old, new, BOWL) == []


def test_a_launch_refuses_an_incompatible_spec_and_does_not_change_the_store(store: Store) -> None:
    before = prepared(store).files.read_text("spec.yaml")
    with pytest.raises(SpecError) as caught:
        prepared(store, seeds=1, parameters={"x": {"values": [0, 1]}})
    assert f"{store.address}/bowls" in caught.value.source
    assert [problem.path for problem in caught.value.problems] == ["parameters.x", "seeds"]
    assert store.sweep("bowls").read_text("spec.yaml") == before
