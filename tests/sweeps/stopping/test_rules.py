"""The steps at which rules decide, and how they rank candidates."""

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.spec.model import EarlyTerminate
from mislabel.sweeps.stopping.rules import Ranking, decision_steps

costs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=30)


def test_rungs_are_the_first_measured_steps_at_or_after_the_powers_of_eta_except_the_last_step() -> None:
    asha = EarlyTerminate(type="asha", min_steps=10, eta=2)
    assert decision_steps(asha, [0, 5, 10, 15, 25, 45, 100, 160]) == {10, 25, 45, 100}
    assert decision_steps(asha, [0, 50, 100]) == {50}
    assert decision_steps(asha, [0, 100]) == frozenset()


@pytest.mark.parametrize("kind", [{"type": "median"}, {"type": "patience", "patience": 3}])
def test_rules_that_read_whole_curves_record_every_frame_except_the_last(kind: dict[str, Any]) -> None:
    assert decision_steps(EarlyTerminate(**kind, min_steps=10), [0, 5, 20, 40]) == {0, 5, 20}


@given(costs)
def test_a_ranking_is_a_sorted_list_of_the_last_costs(puts: list[tuple[int, int]]) -> None:
    ranking, last = Ranking(), {}
    for number, cost in puts:
        ranking.put(str(number), float(cost))
        last[str(number)] = float(cost)
    order = sorted(last, key=lambda name: (last[name], name))
    assert [ranking.rank(name) for name in order] == list(range(len(last)))
    for name in order if len(order) > 1 else []:
        assert ranking.median_without(name) == statistics.median(cost for n, cost in last.items() if n != name)


def test_candidates_without_a_cost_rank_last() -> None:
    ranking = Ranking()
    for name, cost in (("a", float("nan")), ("b", 1e9), ("c", float("inf"))):
        ranking.put(name, cost)
    assert [ranking.rank(name) for name in "bac"] == [0, 1, 2]
