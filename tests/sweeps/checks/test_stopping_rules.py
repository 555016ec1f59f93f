from typing import Any

import pytest

from mislabel.sweeps.errors import SpecError
from tests.bowls import bowl_spec

LONG = {"steps": 100, "frames": 20}
LOSS, HEIGHT = ({"name": name, "goal": "minimize"} for name in ("loss", "height"))


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
