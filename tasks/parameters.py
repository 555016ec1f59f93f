"""Declare a task's parameters once: type, default, bounds, help, and whether their values may differ within a pack.

A *shape* determines the sizes of tensors or the schedule, so all runs of a pack must have the same value. A *knob* is a
number that may differ between lanes. Bounds are declared with the default, so that specs, command line, schema and task
all report the same rule.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import ge, gt, le, lt
from typing import Any, Literal, TypeVar, cast, get_type_hints

Value = bool | int | float | str
T = TypeVar("T", bool, int, float, str)

# Columns of the store that every task has. No parameter or metric may have one of these names.
RESERVED = (
    frozenset({"run_id", "cell_id", "seed", "sweep", "task", "task_version", "status", "step", "metric", "values"})
    | {"attempt", "error", "host", "device", "pack_id", "pack_lanes", "started_at", "finished_at", "train_seconds"}
    | {"commit"}
    | {*("mean", "std", "n", "low", "high", "runs", "diverged", "stopped", "front")}
)

_KEY = "mislabel.parameter"
_BOUNDS = (("at_least", "≥", ge), ("above", ">", gt), ("at_most", "≤", le), ("below", "<", lt))
_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a string"}


@dataclass(frozen=True)
class Parameter:
    name: str
    kind: Literal["shape", "knob"]
    type: type
    default: Value
    help: str
    at_least: float | None = None
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    choices: tuple[Value, ...] | None = None
    earlier: Value | None = None
    """The value that runs had before the task had this parameter; None if the parameter is not an addition."""

    def problem(self, value: object) -> str | None:
        """A sentence about what is wrong with `value`, which starts with the value; None if it is valid."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        fits = isinstance(value, self.type) if self.type in (bool, str) else number
        if not fits or (self.type is int and not float(cast(float, value)).is_integer()):
            return f"{value!r} is not {_TYPE_NAMES[self.type]}"
        if number and not math.isfinite(cast(float, value)):
            return f"{value!r} is not finite"
        if self.choices is not None and value not in self.choices:
            return f"{value!r} is not one of {', '.join(map(str, self.choices))}"
        for name, _, holds in _BOUNDS:
            bound = getattr(self, name)
            if number and bound is not None and not holds(cast(float, value), bound):
                return f"{value!r} is not {name.replace('_', ' ')} {bound:g}"
        return None

    def typed(self, value: Value) -> Value:
        """`value` converted to the declared type, so that 1 and 1.0 are the same setting of a float."""
        return cast(Value, self.type(value))

    @property
    def rule(self) -> str:
        """The bounds as text, for help pages."""
        if self.choices is not None:
            return "one of " + ", ".join(map(str, self.choices))
        bounds = [(sign, getattr(self, name)) for name, sign, _ in _BOUNDS]
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


def shape(
    default: T,
    *,
    help: str,
    at_least: float | None = None,
    at_most: float | None = None,
    choices: Sequence[Value] | None = None,
    earlier: T | None = None,
) -> T:
    """A parameter that all runs of a pack share.

    If you add the parameter to a task with stored runs, give `earlier`: the value that describes these runs. They keep
    their ids and count as runs with that value.
    """
    return _field("shape", default, choices, help=help, at_least=at_least, at_most=at_most, earlier=earlier)


def knob(
    default: T,
    *,
    help: str,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    between: tuple[float, float] | None = None,
    earlier: T | None = None,
) -> T:
    """A number that may differ between lanes; `between` includes both ends. For `earlier` see `shape`."""
    if isinstance(default, str):
        raise TypeError(f"a knob must be a number, not the string {default!r}; make it a shape")
    low, high = between if between is not None else (at_least, at_most)
    return _field("knob", default, help=help, at_least=low, at_most=high, above=above, below=below, earlier=earlier)


def _field(kind: str, default: T, choices: Sequence[Value] | None = None, **declared: Any) -> T:
    declared |= {"kind": kind, "choices": None if choices is None else tuple(choices)}
    return dataclasses.field(default=default, metadata={_KEY: declared})


def parameters_of(params: type) -> dict[str, Parameter]:
    """The parameters of a task's `Params` class, in order of declaration."""
    return _declared(params)


@cache
def _declared(params: Any) -> dict[str, Parameter]:
    hints = get_type_hints(params)
    declared = {}
    for field in dataclasses.fields(params):
        if _KEY not in field.metadata:
            raise TypeError(f"{params.__qualname__}.{field.name}: declare it with shape(...) or knob(...)")
        parameter = Parameter(
            name=field.name, type=hints[field.name], default=cast(Value, field.default), **field.metadata[_KEY]
        )
        if parameter.earlier is not None:
            if problem := parameter.problem(parameter.earlier):
                raise ValueError(f"{params.__qualname__}.{field.name}: earlier: {problem}")
            parameter = dataclasses.replace(parameter, earlier=parameter.typed(parameter.earlier))
        declared[field.name] = parameter
    return declared


def values_of(params: object) -> Mapping[str, Value]:
    """A Params instance as a plain mapping, in order of declaration."""
    return {field.name: getattr(params, field.name) for field in dataclasses.fields(cast(Any, params))}
