"""Conditions on parameters, such as `noise_rate > 0.3 and width == 512`: parsed, never run as Python.

Python's parser builds the tree; only the nodes listed here are allowed. Values may be numpy columns, so that a
condition is evaluated for a million cells at once. Arithmetic is floating point: 1/0 is inf.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

LONGEST = 1000
_ALLOWED = "names, numbers, 'strings', true, false, == != < <= > >=, in [..], and or not, + - * / % **"

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply,
    ast.Div: np.divide, ast.Mod: np.mod, ast.Pow: np.power,
}  # fmt: skip

_SIGNS: dict[type[ast.unaryop], Any] = {ast.Not: np.logical_not, ast.USub: np.negative, ast.UAdd: np.positive}


def _is_among(value: Any, items: list[Any]) -> Any:
    return np.logical_or.reduce(np.broadcast_arrays(False, *(value == item for item in items)))


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: _is_among, ast.NotIn: lambda value, items: ~_is_among(value, items),
}  # fmt: skip


class ExpressionError(ValueError):
    """The text is not a valid condition; the message names the wrong part."""


@dataclass(frozen=True)
class Expression:
    text: str
    names: frozenset[str]
    _tree: ast.expr

    def holds(self, values: Mapping[str, Any]) -> Any:
        """True or false, or a column of them if values are columns. ExpressionError if types do not fit."""
        with np.errstate(all="ignore"):
            try:
                result = np.asarray(_evaluate(self._tree, values))
            except (TypeError, np.exceptions.DTypePromotionError):
                raise ExpressionError(f"{self.text!r} mixes strings and numbers; compare like with like") from None
        if result.dtype.kind not in "bif":
            raise ExpressionError(f"{self.text!r} is not a condition; compare it with a value, such as == 'relu'")
        return result.astype(bool) if result.ndim else bool(result)


def parse_expression(text: object) -> Expression:
    if not isinstance(text, str):
        raise ExpressionError(f"{text!r} is not a condition; write one such as 'noise_rate > 0.3'")
    if len(text) > LONGEST:
        raise ExpressionError(f"has {len(text)} characters; a condition has at most {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        what = error.msg if isinstance(error, SyntaxError) else "nested too deeply"
        raise ExpressionError(f"{text!r} is not a condition: {what}; write {_ALLOWED}") from None
    try:
        names = frozenset(_names(tree, text))
    except RecursionError:
        raise ExpressionError(f"{text[:60]!r}… is nested too deeply; write a simpler condition") from None
    return Expression(text.strip(), names, tree)


def _names(node: ast.expr, text: str) -> set[str]:
    """The parameters that the tree reads. ExpressionError for nodes that are not allowed."""
    if name := _dotted(node):
        return {name} - {"true", "false"}
    children: list[ast.expr]
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return set()
        case ast.BoolOp(values=children):
            pass
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _SIGNS:
            children = [operand]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            children = [left, right]
        case ast.Compare(left=left, ops=ops, comparators=right_sides) if all(type(op) in _COMPARISONS for op in ops):
            children = [left]
            for comparison, side in zip(ops, right_sides, strict=True):
                if not isinstance(comparison, ast.In | ast.NotIn):
                    children.append(side)
                elif isinstance(side, ast.List | ast.Tuple):
                    children += side.elts
                else:
                    raise ExpressionError(f"{text!r}: 'in' needs a list, such as width in [64, 128]")
        case ast.List() | ast.Tuple():
            raise ExpressionError(f"{text!r}: a list is only allowed after 'in', such as width in [64, 128]")
        case _:
            part = ast.get_source_segment(text.strip(), node) or type(node).__name__
            raise ExpressionError(f"{text!r}: {part!r} is not allowed in conditions; write {_ALLOWED}")
    return set().union(*(_names(child, text) for child in children))


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else None
    return None


def _evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    name = _dotted(node)
    if name in ("true", "false"):
        return name == "true"
    if name is not None:
        return _number(values[name])
    match node:
        case ast.Constant(value=value):
            return _number(value)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_evaluate(item, values) for item in items]
        case ast.UnaryOp(op=sign, operand=operand):
            return _SIGNS[type(sign)](_evaluate(operand, values))
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_evaluate(left, values), _evaluate(right, values))
        case ast.BoolOp(op=op, values=parts):
            combine = np.logical_and if isinstance(op, ast.And) else np.logical_or
            return combine.reduce(np.broadcast_arrays(*[_evaluate(part, values) for part in parts]))
        case ast.Compare(left=left, ops=ops, comparators=right_sides):
            sides = [_evaluate(side, values) for side in (left, *right_sides)]
            held = [_COMPARISONS[type(op)](sides[i], sides[i + 1]) for i, op in enumerate(ops)]
            return np.logical_and.reduce(np.broadcast_arrays(*held))
    raise AssertionError(f"{type(node).__name__} passed the parser")


def _number(value: Any) -> Any:
    """Convert whole numbers, and columns of them, to floats, so that no power or product grows without bound."""
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return float(str(value))  # via text: a number that is too large becomes inf
    column = np.asarray(value)
    return column.astype(float) if column.dtype.kind in "iuf" else column
