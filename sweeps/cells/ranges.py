"""The values of an axis: listed values, points or steps of a range, or any value between its ends.

Computed numbers are rounded to twelve digits, so that 0.1 + 0.2 makes the same cell as 0.3, and a cell has the same id
whether a grid, a random draw or a search proposed it. The ends of a range stay as they were given.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mislabel.sweeps.spec.model import Axis
from mislabel.tasks.parameters import Parameter, Value

DIGITS = 12
# Relative tolerance for a whole number of steps, because of rounding.
_ROUNDING = 1e-9


def steps_of(axis: Axis) -> int:
    """The number of steps between the ends of a range with `step`."""
    low, high = axis.ends
    assert axis.step is not None
    return round((high - low) / axis.step)


def max_that_fits(axis: Axis) -> float | None:
    """The nearest max that is a whole number of steps from min; None if the given max is."""
    low, high = axis.ends
    assert axis.step is not None
    steps = (high - low) / axis.step
    if abs(steps - round(steps)) <= _ROUNDING * max(1, steps) and round(steps) > 0:
        return None
    return cleaned(low + max(1, round(steps)) * axis.step)


def candidates(axis: Axis, parameter: Parameter, on_grid: bool = True) -> list[Value]:
    """The listed values. For a range: its points, steps or whole numbers on a grid, and its ends otherwise."""
    if axis.values is not None:
        return list(axis.values)
    low, high = axis.ends
    if not on_grid:
        return [parameter.typed(low), parameter.typed(high)]
    if axis.step is not None:
        return [parameter.typed(value) for value in _stepped(axis, np.arange(steps_of(axis) + 1)).tolist()]
    if axis.points is None:
        return list(range(int(low), int(high) + 1))
    spread = np.geomspace if axis.scale == "log" else np.linspace
    at = spread(low, high, axis.points) if axis.points > 1 else np.array([low])
    if parameter.type is int:
        return [int(value) for value in np.unique(np.rint(at))]
    inner = [min(max(cleaned(value), low), high) for value in at[1:-1]]
    return list(dict.fromkeys([low, *inner, high][: axis.points]))


def values_at(axis: Axis, parameter: Parameter, quantiles: np.ndarray) -> np.ndarray:
    """Map quantiles between 0 and 1 to values of the axis; every listed value or step gets an equal share."""
    if axis.values is not None:
        return np.asarray(column_of(axis.values)[index_at(quantiles, len(axis.values))])
    low, high = axis.ends
    if axis.step is not None:
        found = _stepped(axis, index_at(quantiles, steps_of(axis) + 1))
        return found.astype(int) if parameter.type is int else found
    if parameter.type is int:
        low, high = low - 0.5, high + 0.5
    if axis.scale == "linear":
        drawn = low + quantiles * (high - low)
    else:
        drawn = np.exp(np.log(low) + quantiles * (np.log(high) - np.log(low)))
    if parameter.type is int:
        return np.clip(np.rint(drawn), *axis.ends).astype(int)
    return np.clip(drawn, *axis.ends)


def nearest_value(axis: Axis, parameter: Parameter, value: Value) -> Value:
    """The value rounded to the nearest step, if the range has steps."""
    if axis.values is not None or axis.step is None:
        return parameter.typed(value)
    index = min(max(round((float(value) - axis.ends[0]) / axis.step), 0), steps_of(axis))
    return parameter.typed(_stepped(axis, np.array([index])).item())


def problem_with(axis: Axis, parameter: Parameter, value: Value) -> str | None:
    """Why the axis does not contain this value, or None if it does. The value has the parameter's type."""
    if axis.values is not None:
        return None if value in axis.values else f"{value!r} is not one of its values {shown(axis.values)}"
    low, high = axis.ends
    if not low <= float(value) <= high:
        return f"{value!r} is not between {low:g} and {high:g}"
    if axis.step is not None:
        near = nearest_value(axis, parameter, value)
        if not math.isclose(float(near), float(value), rel_tol=_ROUNDING, abs_tol=_ROUNDING * axis.step):
            return f"{value!r} is not on a step; the nearest is {near!r}"
    return None


def range_problems(axis: Axis, parameter: Parameter) -> Iterator[tuple[tuple[str, ...], str]]:
    """Mistakes in a range whose ends are right by themselves: the key inside the axis, and the text."""
    low, high = axis.ends
    largest = max(abs(low), abs(high))
    if low >= high:
        yield (), f"min {low:g} is not below max {high:g}; write a single value without a range"
    if axis.scale == "log" and low <= 0:
        yield ("min",), f"{low:g} is not above 0; a log scale needs positive values"
    if axis.step is None:
        return
    if axis.scale == "log":
        yield ("step",), "a log scale has no equal steps; give points instead, or list values"
    elif parameter.type is int and not axis.step.is_integer():
        yield ("step",), f"{axis.step!r} is not a whole number; {parameter.name} is one"
    elif low < high and axis.step < 10.0 ** (1 - DIGITS) * largest:
        yield ("step",), f"{axis.step:g} is too small for values near {largest:g}, which have {DIGITS} digits"
    elif low < high and (fitting := max_that_fits(axis)) is not None:
        text = f"{high:g} is not a whole number of steps of {axis.step:g} from {low:g}"
        yield ("max",), f"{text}; the nearest is {fitting:.{DIGITS}g}"


def index_at(quantiles: np.ndarray, count: int) -> np.ndarray:
    """Map quantiles between 0 and 1 to the indices of `count` items."""
    return np.asarray(np.minimum((quantiles * count).astype(int), count - 1))


def column_of(values: Sequence[Any]) -> np.ndarray:
    """The values as a numpy column. Strings stay Python strings: numpy's have a fixed length."""
    return np.array(values, dtype=object if isinstance(values[0], str) else None)


def cleaned(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _stepped(axis: Axis, index: np.ndarray) -> np.ndarray:
    low, high = axis.ends
    assert axis.step is not None
    distinct, where = np.unique(index, return_inverse=True)
    inner = [min(max(cleaned(low + int(i) * axis.step), low), high) for i in distinct]
    values = np.where(distinct == 0, low, np.where(distinct == steps_of(axis), high, inner))
    return np.asarray(values[where])


def shown(values: list[Value]) -> str:
    """The first values, for a message."""
    return ", ".join(map(str, values[:8])) + (", …" if len(values) > 8 else "")
