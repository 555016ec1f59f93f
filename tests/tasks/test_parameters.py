"""Declared parameters: bounds, types, and messages about wrong values."""

from dataclasses import dataclass

import pytest

from mislabel.tasks.parameters import knob, parameters_of, shape, values_of
from mislabel.tasks.registry import find_task, task_names
from mislabel.tasks.training import Training


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    width: int = shape(10, at_least=2, at_most=100, help="neurons")
    kind: str = shape("round", choices=("round", "flat"), help="of bowl")
    biased: bool = shape(False, help="whether neurons have biases")
    rate: float = knob(0.1, above=0, help="learning rate")
    noise: float = knob(0.0, between=(0, 0.5), help="share of wrong labels")
    share: float = knob(0.5, above=0, below=1, help="share of points")


DECLARED = parameters_of(Params)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("width", 1, "1 is not at least 2"),
        ("width", 101, "101 is not at most 100"),
        ("width", 2.5, "2.5 is not a whole number"),
        ("width", True, "True is not a whole number"),
        ("width", "10", "'10' is not a whole number"),
        ("kind", "square", "'square' is not one of round, flat"),
        ("kind", 1, "1 is not a string"),
        ("biased", 1, "1 is not true or false"),
        ("rate", 0, "0 is not above 0"),
        ("rate", float("nan"), "nan is not finite"),
        ("rate", float("inf"), "inf is not finite"),
        ("rate", "fast", "'fast' is not a number"),
        ("rate", False, "False is not a number"),
        ("noise", 0.6, "0.6 is not at most 0.5"),
        ("noise", -0.1, "-0.1 is not at least 0"),
        ("share", 1, "1 is not below 1"),
    ],
)
def test_a_wrong_value_has_a_problem(name: str, value: object, problem: str) -> None:
    assert DECLARED[name].problem(value) == problem


@pytest.mark.parametrize(
    ("name", "value"),
    [("width", 2), ("width", 100), ("width", 50.0), ("kind", "flat"), ("biased", True), ("rate", 1), ("noise", 0.5)],
)
def test_a_valid_value_has_no_problem(name: str, value: object) -> None:
    assert DECLARED[name].problem(value) is None


def test_one_and_one_point_zero_are_the_same_setting() -> None:
    assert repr(DECLARED["rate"].typed(1)) == "1.0"
    assert repr(DECLARED["width"].typed(50.0)) == "50"


def test_rules_are_read_from_the_bounds() -> None:
    assert DECLARED["width"].rule == "≥ 2 and ≤ 100"
    assert DECLARED["rate"].rule == "> 0"
    assert DECLARED["share"].rule == "> 0 and < 1"
    assert DECLARED["kind"].rule == "one of round, flat"


def test_parameters_keep_their_order_and_kind() -> None:
    own = ["width", "kind", "biased", "rate", "noise", "share"]
    assert list(DECLARED)[-len(own) :] == own
    assert [DECLARED[name].kind for name in own] == ["shape"] * 3 + ["knob"] * 3
    assert list(values_of(Params())) == list(DECLARED)
    assert values_of(Params(rate=2.0))["rate"] == 2.0


def test_a_field_that_is_neither_shape_nor_knob_is_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Careless(Training):
        depth: int = 3

    with pytest.raises(TypeError, match=r"Careless\.depth: declare it with shape\(\.\.\.\) or knob\(\.\.\.\)"):
        parameters_of(Careless)


def test_a_knob_cannot_be_a_string() -> None:
    with pytest.raises(TypeError, match="make it a shape"):
        knob("sgd", help="optimizer")


def test_tasks_are_found_by_name() -> None:
    assert {"xor_clusters", "label_noise_sgd.linear"} <= set(task_names())
    assert find_task("xor_clusters").name == "xor_clusters"
    with pytest.raises(KeyError):
        find_task("xor_cluster")
