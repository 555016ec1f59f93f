from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mislabel.sweeps.ids import cell_id, cell_ids, pack_id, run_id
from tests.bowls import BOWL

names = st.text(min_size=1, max_size=6)
TASK = replace(BOWL, name="t")
SECOND = replace(TASK, version=2)
OTHER = replace(BOWL, name="u")

values = st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | st.text(max_size=6)


def test_ids_never_change_by_accident() -> None:
    """Stores hold these ids: if this fails, every sweep that exists would be run again."""
    cell = cell_id(BOWL, {"x": 0.1, "width": 64, "surface": "smooth", "tilted": True})
    assert cell == "51bdce8bc2b3d0a8b6b5"
    assert run_id(cell, 3) == "51bdce8bc2b3d0a8b6b5-3"
    assert pack_id([run_id(cell, 3), run_id(cell, 4)]) == "187ddb534382bb85e14d"


@given(st.dictionaries(names, values, max_size=5))
def test_the_order_of_parameters_does_not_matter(cell: dict[str, Any]) -> None:
    turned = dict(reversed(cell.items()))
    assert cell_id(TASK, cell) == cell_id(TASK, turned)


@given(st.dictionaries(names, values, max_size=3), st.data())
def test_many_ids_at_once_are_those_of_each_cell(common: dict[str, Any], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 5))
    column = st.lists(values, min_size=count, max_size=count)
    columns = data.draw(st.dictionaries(names.filter(lambda name: name not in common), column, max_size=3))
    cells = [{**common, **{name: column[i] for name, column in columns.items()}} for i in range(count)]
    assert cell_ids(SECOND, common, columns, count) == [cell_id(SECOND, cell) for cell in cells]


@given(st.lists(values, min_size=2, max_size=6))
def test_equal_numbers_of_different_types_do_not_share_a_text(column: list[Any]) -> None:
    """True, 1 and 1.0 are equal and hash alike, but are not the same setting."""
    assert cell_ids(TASK, {}, {"p": column}, len(column)) == [cell_id(TASK, {"p": value}) for value in column]
    assert len({cell_id(TASK, {"p": value}) for value in (True, 1, 1.0, "1")}) == 4


def test_one_and_one_point_zero_of_a_float_are_the_same_setting() -> None:
    typed = BOWL.parameters["x"].typed
    assert cell_id(BOWL, {"x": typed(1)}) == cell_id(BOWL, {"x": typed(1.0)})
    typed = BOWL.parameters["level"].typed
    assert cell_id(BOWL, {"level": typed(1)}) == cell_id(BOWL, {"level": typed(1.0)})


def test_minus_zero_is_zero() -> None:
    assert cell_id(TASK, {"x": -0.0}) == cell_id(TASK, {"x": 0.0})
    assert len(set(cell_ids(TASK, {}, {"x": [-0.0, 0.0, -0.0]}, 3))) == 1


@pytest.mark.parametrize(
    "other",
    [
        cell_id(OTHER, {"a": 1, "b": 2}),
        cell_id(SECOND, {"a": 1, "b": 2}),
        cell_id(TASK, {"a": 2, "b": 1}),
        cell_id(TASK, {"a": 1}),
        cell_id(TASK, {"a": 1, "b": 2, "c": 0}),
        cell_id(TASK, {"a": 1, "b": "2"}),
        cell_id(TASK, {'a":1,"b': 2}),
    ],
)
def test_what_determines_a_result_determines_the_id(other: str) -> None:
    assert other != cell_id(TASK, {"a": 1, "b": 2})


@given(st.lists(st.text(alphabet="abc-0123", min_size=1), unique=True, max_size=6), st.randoms())
def test_a_pack_is_known_by_its_runs_whatever_their_order(runs: list[str], random: Any) -> None:
    mixed = list(runs)
    random.shuffle(mixed)
    assert pack_id(runs) == pack_id(mixed)
    assert pack_id([*runs, "another"]) != pack_id(runs)


def test_an_id_can_be_part_of_a_file_name() -> None:
    assert run_id(cell_id(replace(BOWL, name="a/b"), {"../x": "ä/"}), 12).replace("-", "").isalnum()
