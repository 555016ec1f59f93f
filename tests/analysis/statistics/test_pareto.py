import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mislabel.analysis.statistics.ranking import on_front
from mislabel.sweeps.spec.model import Objective

LOSS, COST, SCORE = (
    Objective(name="loss", goal="minimize"),
    Objective(name="cost", goal="minimize"),
    Objective(name="score", goal="maximize"),
)
goals = st.lists(st.sampled_from([LOSS, SCORE]), min_size=1, max_size=3)
# Few values, so that ties are common.
levels = st.sampled_from([0.0, 1.0, 2.0, -math.inf, math.inf, math.nan])


@given(st.data(), goals)
def test_the_front_equals_a_comparison_of_all_pairs(data: st.DataObject, objectives: list[Objective]) -> None:
    row = st.lists(levels, min_size=len(objectives), max_size=len(objectives))
    rows = data.draw(st.lists(row, max_size=12))

    def dominates(one: list[float], other: list[float]) -> bool:
        pairs = [(a, b) if o.goal == "minimize" else (-a, -b) for a, b, o in zip(one, other, objectives, strict=True)]
        return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)

    expected = [not any(map(math.isnan, row)) and not any(dominates(other, row) for other in rows) for row in rows]
    assert on_front(np.array(rows), objectives).tolist() == expected


def test_each_objective_has_its_own_goal() -> None:
    values = np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 1.0], [1.0, 0.5]])
    assert on_front(values, [LOSS, COST]).tolist() == [False, False, False, True]
    assert on_front(values, [LOSS, SCORE]).tolist() == [True, True, False, False]
