"""Where rules judge, how they rank, and what a spec's `early_terminate` is refused for."""

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.model import EarlyTerminate
from mislabel.sweeps.stopping.rules import Ranking, judged_steps
from tests.bowls import bowl_spec

LONG = {"steps": 100, "frames": 20}
costs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=30)


def test_rungs_are_the_first_measured_steps_at_or_after_powers_of_eta_without_the_last() -> None:
    asha = EarlyTerminate(type="asha", min_steps=10, eta=2)
    assert judged_steps(asha, [0, 5, 10, 15, 25, 45, 100, 160]) == {10, 25, 45, 100}
    assert judged_steps(asha, [0, 50, 100]) == {50}
    assert judged_steps(asha, [0, 100]) == frozenset()


@pytest.mark.parametrize("kind", [{"type": "median"}, {"type": "patience", "patience": 3}])
def test_rules_that_read_whole_curves_are_told_every_frame_but_the_last(kind: dict[str, Any]) -> None:
    assert judged_steps(EarlyTerminate(**kind, min_steps=10), [0, 5, 20, 40]) == {0, 5, 20}


@given(costs)
def test_a_ranking_is_a_sorted_list_of_the_last_costs(puts: list[tuple[int, int]]) -> None:
    ranking, last = Ranking(), {}
    for number, cost in puts:
        ranking.put(str(number), float(cost))
        last[str(number)] = float(cost)
    order = sorted(last, key=lambda name: (last[name], name))
    assert [ranking.place(name) for name in order] == list(range(len(last)))
    for name in order if len(order) > 1 else []:
        assert ranking.median_without(name) == statistics.median(cost for n, cost in last.items() if n != name)


def test_what_has_no_cost_ranks_last() -> None:
    ranking = Ranking()
    for name, cost in (("a", float("nan")), ("b", 1e9), ("c", float("inf"))):
        ranking.put(name, cost)
    assert [ranking.place(name) for name in "bac"] == [0, 1, 2]


@pytest.mark.parametrize(
    ("rule", "changes", "text"),
    [
        ({"type": "asha"}, {"metric": None}, "early_terminate: compares runs by their objective; add metric"),
        (
            {"type": "asha"},
            {"metric": [{"name": "loss", "goal": "minimize"}, {"name": "height", "goal": "minimize"}]},
            "early_terminate: compares runs by one objective, and metric lists 2",
        ),
        ({"type": "patience"}, {}, "early_terminate.patience: is missing; say after how many steps"),
        ({"type": "asha", "patience": 5}, {}, "early_terminate.patience: belongs to type patience, not to asha"),
        ({"type": "asha", "min_gain": 0.5}, {}, "early_terminate.min_gain: belongs to type patience"),
        ({"type": "asha", "min_cells": 9}, {}, "early_terminate.min_cells: belongs to type median"),
        ({"type": "median", "eta": 4}, {}, "early_terminate.eta: belongs to type asha or hyperband, not to median"),
        ({"type": "asha", "min_steps": 100}, {}, "early_terminate.min_steps: 100 is not below steps = 100"),
        (
            {"type": "asha", "min_steps": 50},
            {"parameters": {"steps": {"values": [40, 100]}}},
            "early_terminate.min_steps: 50 is not below steps = 40",
        ),
        (
            {"type": "median", "min_steps": 60},
            {"parameters": {"steps": 100, "frames": 3, "spacing": "linear"}},
            "early_terminate.min_steps: no step from 60 on is measured but the last; raise parameters.frames",
        ),
    ],
)
def test_what_can_not_stop_runs_is_refused(rule: dict[str, Any], changes: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError) as refused:
        bowl_spec(**{"parameters": LONG, **changes, "early_terminate": rule})
    assert text in str(refused.value)


def test_what_can_is_not() -> None:
    for rule in ({"type": "asha"}, {"type": "median", "min_cells": 9}, {"type": "patience", "patience": 5}):
        assert bowl_spec(parameters=LONG, early_terminate=rule).early_terminate is not None
