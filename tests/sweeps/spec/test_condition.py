import math
import operator
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mislabel.sweeps.spec.condition import LONGEST, Expression, ExpressionError, parse_expression

NUMBERS = ["width", "rate", "model.depth"]
VALUES: dict[str, Any] = {"width": 64, "rate": 0.25, "model.depth": 3, "kind": "relu", "flag": True}

numbers = st.sampled_from(NUMBERS) | st.integers(0, 9).map(str) | st.sampled_from(["0.5", "1e-3", "2.5"])
sums = st.recursive(
    numbers,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%"]), inner)
        | st.builds("-{}".format, inner)
        | st.builds("{} ** 2".format, numbers)
    ),
    max_leaves=4,
)
comparisons = (
    st.builds("{} {} {}".format, sums, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), sums)
    | st.builds("{} <= {} < {}".format, sums, sums, sums)
    | st.builds("{} {} [{}, {}]".format, sums, st.sampled_from(["in", "not in"]), sums, sums)
    | st.builds("kind {} '{}'".format, st.sampled_from(["==", "!="]), st.sampled_from(["relu", "tanh"]))
    | st.builds("kind {} ['relu', 'gelu']".format, st.sampled_from(["in", "not in"]))
    | st.sampled_from(["flag", "true", "false", "flag == true"])
)
conditions = st.recursive(
    comparisons,
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner) | st.builds("not {}".format, inner)
    ),
    max_leaves=4,
)
cells = st.fixed_dictionaries(
    {
        "width": st.integers(0, 8),
        "rate": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        "model.depth": st.integers(-2, 3),
        "kind": st.sampled_from(["relu", "tanh"]),
        "flag": st.booleans(),
    }
)


class Model:
    def __init__(self, depth: float) -> None:
        self.depth = depth


def evaluated_by_python(text: str, cell: dict[str, Any]) -> bool:
    names = {"true": True, "false": False, "model": Model(float(cell["model.depth"]))}
    names |= {name: float(v) if type(v) is int else v for name, v in cell.items() if "." not in name}
    return bool(eval(text, {"__builtins__": {}}, names))


@given(conditions, cells)
def test_a_condition_has_the_value_that_python_gives(text: str, cell: dict[str, Any]) -> None:
    try:
        expected = evaluated_by_python(text, cell)
    except (ZeroDivisionError, OverflowError):
        assume(False)
    assert parse_expression(text).holds(cell) is expected


@given(conditions, st.lists(cells, min_size=1, max_size=6))
def test_columns_give_the_same_result_as_their_rows(text: str, rows: list[dict[str, Any]]) -> None:
    expression = parse_expression(text)
    columns = {name: np.array([row[name] for row in rows], dtype=object if name == "kind" else None) for name in VALUES}
    held = np.broadcast_to(expression.holds(columns), (len(rows),))
    assert held.tolist() == [expression.holds(row) for row in rows]


@given(conditions, st.lists(cells, min_size=1, max_size=4), st.sampled_from(sorted(VALUES)))
def test_columns_and_single_values_can_be_mixed(text: str, rows: list[dict[str, Any]], single: str) -> None:
    rows = [{**row, single: rows[0][single]} for row in rows]
    columns: dict[str, Any] = {
        name: np.array([row[name] for row in rows], dtype=object if name == "kind" else None) for name in VALUES
    }
    columns[single] = rows[0][single]
    expression = parse_expression(text)
    held = np.broadcast_to(expression.holds(columns), (len(rows),))
    assert held.tolist() == [expression.holds(row) for row in rows]


@given(conditions)
def test_an_expression_knows_the_names_that_it_reads(text: str) -> None:
    names = parse_expression(text).names
    assert names <= VALUES.keys()
    assert names == {name for name in VALUES if name in text}


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('x')",
        "print()",
        "(lambda: 1)()",
        "lambda: 1",
        "[width for width in [1]]",
        "{1: 2}",
        "{1, 2}",
        "width[0]",
        "f'{width}'",
        "width if rate else 2",
        "(width := 3)",
        "width.__class__()",
        "'a'.join(['b'])",
        "().__class__",
        "None",
        "...",
        "b'bytes'",
        "1j",
        "~width",
        "width // 2",
        "width @ rate",
        "width << 2",
        "width | 1",
        "width is 3",
        "*width",
        "await width",
    ],
)
def test_syntax_that_is_not_allowed_is_refused_by_name(text: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        parse_expression(text)
    assert text in str(refused.value).replace("\\", "") or repr(text) in str(refused.value)


def test_a_refusal_names_the_part_that_is_not_allowed() -> None:
    with pytest.raises(ExpressionError, match=r"'open\(1\)'"):
        parse_expression("rate > 0.5 and open(1)")


@pytest.mark.parametrize(
    "text", ["", "   ", "rate >", "rate > > 2", "a = 1", "import os", "a; b", "a\nb", "(", "\0", "$x"]
)
def test_a_syntax_error_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(text)


@pytest.mark.parametrize("value", [1, 1.5, True, None, ["a > 1"], {"a": 1}])
def test_a_value_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(value)


def test_a_long_text_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ExpressionError, match=str(LONGEST)):
        parse_expression("a" * (LONGEST + 1))


@pytest.mark.parametrize("text", ["(" * 400 + "1" + ")" * 400, "-" * 900 + "1", "not " * 240 + "1", "1" + "+1" * 499])
def test_deep_nesting_is_evaluated_or_refused_without_a_crash(text: str) -> None:
    try:
        expression = parse_expression(text)
    except ExpressionError:
        return
    assert expression.holds({}) in (True, False)


@pytest.mark.parametrize(
    "text", ["9" * 30 + " ** " + "9" * 30 + " > 1", "10 ** 10 ** 10 ** 10 > 1", "9" * 400 + " > 1"]
)
def test_large_numbers_cost_nothing(text: str) -> None:
    assert parse_expression(text).holds({}) is True


@pytest.mark.parametrize("text", ["width in 3", "width in rate", "width not in 'abc'", "3 in width"])
def test_in_needs_a_list(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(text)


@pytest.mark.parametrize(
    "text", ["[1, 2]", "[width] == 3", "width < (1, 2)", "-[1] == 2", "[1] and 2", "width in [[1]]"]
)
def test_a_list_is_only_allowed_after_in(text: str) -> None:
    with pytest.raises(ExpressionError):
        parse_expression(text)


def test_an_empty_list_holds_nothing() -> None:
    assert parse_expression("width in []").holds(VALUES) is False
    assert parse_expression("width not in []").holds(VALUES) is True


def test_division_by_zero_follows_floating_point() -> None:
    assert parse_expression("1 / 0 > 1e300").holds({}) is True
    assert parse_expression("-1 / 0 < -1e300").holds({}) is True
    assert parse_expression("0 / 0 == 0 / 0").holds({}) is False
    assert parse_expression("1 % 0 == 1 % 0").holds({}) is False
    assert parse_expression("width / rate > 5").holds({"width": np.ones(2), "rate": np.array([0, 1])}).tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize("text", ["kind > 3", "kind + 1 == 2", "width * kind == 1", "-kind == 1", "kind < width"])
@pytest.mark.parametrize("kind", ["relu", np.array(["relu", "tanh"], dtype=object)], ids=["value", "column"])
def test_mixed_types_are_refused(text: str, kind: Any) -> None:
    with pytest.raises(ExpressionError, match="kind"):
        parse_expression(text).holds({"kind": kind, "width": 3})


@pytest.mark.parametrize("text", ["kind == 3", "3 == kind", "kind in [1, 2]"])
@pytest.mark.parametrize("kind", ["relu", np.array(["relu", "tanh"], dtype=object)], ids=["value", "column"])
def test_a_string_equals_no_number(text: str, kind: Any) -> None:
    with warnings.catch_warnings(action="error"):
        assert not np.any(parse_expression(text).holds({"kind": kind}))


def test_strings_are_compared_whole() -> None:
    column = np.array(["a", "longer"], dtype=object)
    assert parse_expression("kind == 'longer'").holds({"kind": column}).tolist() == [False, True]
    assert parse_expression("kind < 'b'").holds({"kind": column}).tolist() == [True, False]


def test_a_string_alone_is_no_condition() -> None:
    with pytest.raises(ExpressionError):
        parse_expression("kind").holds(VALUES)
    with pytest.raises(ExpressionError):
        parse_expression("'relu'").holds({})


@pytest.mark.parametrize(
    ("text", "reference"),
    [("a == b", operator.eq), ("a != b", operator.ne), ("a < b", operator.lt), ("a >= b", operator.ge)],
)
@given(a=st.floats() | st.integers(-(2**53), 2**53), b=st.floats() | st.integers(-(2**53), 2**53))
def test_numbers_compare_as_python_compares_them(text: str, reference: Any, a: float, b: float) -> None:
    assert parse_expression(text).holds({"a": a, "b": b}) is reference(a, b)


def test_comparisons_with_nan_are_false() -> None:
    expression: Expression = parse_expression("rate < 1 or rate >= 1")
    assert expression.holds({"rate": math.nan}) is False
