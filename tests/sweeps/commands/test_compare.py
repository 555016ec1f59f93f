from collections.abc import Callable

import pytest

from mislabel import load
from tests.sweeps.commands.conftest import Mislabel, Said

PARAMETERS = {"x": {"values": [0, 1, 2]}, "surface": {"values": ["smooth", "rough"]}}


@pytest.fixture
def bowls(ran: Callable[..., Said]) -> None:
    assert ran(parameters=PARAMETERS, seeds=3).code == 0


@pytest.mark.usefixtures("bowls")
def test_two_values_are_compared_for_each_setting_of_the_others(mislabel: Mislabel) -> None:
    rows = mislabel("compare", "bowls", "x=0", "x=2", "--json").json
    assert [row["surface"] for row in rows] == ["rough", "smooth"]
    assert {(row["n"], row["paired"], row["better"]) for row in rows} == {(3, True, "b")}
    assert all(row["low"] < row["difference"] < row["high"] < 0 for row in rows)
    said = mislabel("compare", "bowls", "x=0,surface=smooth", "x=2,surface=rough")
    assert said.out.split()[:2] == ["pairs", "a"]
    assert "a: x=0,surface=smooth" in said.err


@pytest.mark.usefixtures("bowls")
def test_two_cells_are_compared_by_their_ids(mislabel: Mislabel) -> None:
    cells = load("results", "bowls").cells("loss", where={"surface": "rough"}).set_index("x")
    row = mislabel("compare", "bowls", cells["cell_id"][0], cells["cell_id"][1][:12], "--json").json[0]
    assert (row["a"], row["b"]) == pytest.approx((cells["mean"][0], cells["mean"][1]))


@pytest.mark.usefixtures("bowls")
def test_two_sweeps_are_compared_where_they_have_the_same_cells(mislabel: Mislabel, ran: Callable[..., Said]) -> None:
    ran(name="deeper", parameters={"x": {"values": [1, 2, 3]}, "surface": "rough", "level": 5}, seeds=3)
    rows = mislabel("compare", "bowls", "deeper", "-m", "height", "--json").json
    assert [(row["x"], row["surface"]) for row in rows] == [(1, "rough"), (2, "rough")]
    assert [row["difference"] for row in rows] == pytest.approx([4.0, 4.0])
    assert "better" not in rows[0]


@pytest.mark.usefixtures("bowls")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bowls", "x=0", "x=7"), "no cells in common"),
        (("bowls", "x=0", "zz"), "'zz' is not a cell id"),
        (("bowls", "bowl"), "did you mean bowls?"),
        (("bowls", "x=0", "x=1", "-m", "los"), "did you mean loss?"),
    ],
)
def test_a_mistake_is_named(mislabel: Mislabel, arguments: tuple[str, ...], message: str) -> None:
    said = mislabel("compare", *arguments)
    assert said.code == 2
    assert said.out == ""
    assert message in said.err
