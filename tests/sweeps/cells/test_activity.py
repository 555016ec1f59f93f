import numpy as np

from mislabel.sweeps.cells.activity import Activity
from mislabel.sweeps.cells.space import Space
from tests.bowls import BOWL, bowl_spec

PARAMETERS = {
    "x": {"values": [0.0, 1.0, 2.0]},
    "level": {"values": [1, 5], "when": "x > 0"},
    "width": {"values": [2, 3], "when": "level == 5"},
}


def test_a_parameter_is_active_where_its_condition_holds() -> None:
    activity = Activity(bowl_spec(parameters=PARAMETERS))
    assert activity.reads == ["level", "x"]
    cell = {"x": 0.0, "level": 5, "width": 2}
    assert [activity.is_active(name, cell) for name in cell] == [True, False, True]
    assert activity.shown(cell) == {"x": 0.0, "level": None, "width": 2}
    assert activity.shown(cell, ["level"]) == {"level": None}


def test_columns_have_the_same_activity_as_single_cells() -> None:
    spec = bowl_spec(parameters=PARAMETERS)
    activity = Activity(spec)
    for cells in Space(spec, BOWL).cells():
        columns = {name: np.array(cells.columns[name]) for name in activity.reads}
        for name in PARAMETERS:
            single = [activity.is_active(name, cells.values(i)) for i in range(len(cells))]
            assert activity.column(name, columns, len(cells)).tolist() == single
            assert not all(single) or name == "x"


def test_without_conditions_everything_is_active() -> None:
    activity = Activity(bowl_spec(parameters={"x": {"values": [0.0, 1.0]}}))
    assert activity.reads == []
    assert activity.column("x", {}, 3).tolist() == [True] * 3
