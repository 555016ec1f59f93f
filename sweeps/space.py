"""The cells of a spec: all of a grid, or any number of random draws, made in chunks of columns.

A grid of a million cells is walked through without ever holding a million objects: each chunk is a few numpy columns,
conditions are decided on whole columns, and ids are made from pieces that cells share.
"""

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sweeps.errors import MislabelError
from sweeps.expression import Expression, parse_expression
from sweeps.identity import cell_ids
from sweeps.spec import Axis, Spec
from tasks.parameters import Parameter, Value
from tasks.task import Task

CHUNK = 1 << 15


@dataclass(frozen=True)
class Cells:
    """Some cells: an id each, what they all share, and a column for each parameter in which they may differ."""

    ids: list[str]
    common: Mapping[str, Value]
    columns: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(self.ids)

    def values(self, i: int) -> dict[str, Value]:
        """All parameters of one cell."""
        return {**self.common, **{name: column[i] for name, column in self.columns.items()}}


class Space:
    """Axes, conditions and exclusions of a spec, with every value in the type that the task declares."""

    def __init__(self, spec: Spec, task: Task[Any]) -> None:
        self.spec = spec
        self.task = task
        declared = task.parameters
        axes = spec.axes()
        # Shapes outermost: cells of equal shape then follow each other, and packs fill up one shape at a time.
        order = sorted(axes, key=lambda name: declared[name].kind != "shape")
        self.axes: dict[str, Axis] = {name: axes[name] for name in order}
        self.base: dict[str, Value] = {name: parameter.default for name, parameter in declared.items()} | spec.fixed()
        self.order = _by_dependence(axes)
        """Axes such that what a condition reads comes before it."""
        self.when: dict[str, Expression] = {n: parse_expression(axes[n].when) for n in self.order if axes[n].when}
        self.exclude = [parse_expression(text) for text in spec.exclude]

    def sample_cell(self) -> dict[str, Value]:
        """Some cell of the space, conditions aside: to try things on."""
        return {**self.base, **{name: self.candidates(name)[0] for name in self.axes}}

    def single_values(self) -> Iterator[tuple[str, Value]]:
        """Each value that an axis lists, or the ends of its range."""
        for name in self.axes:
            yield from ((name, value) for value in self.candidates(name))

    def candidates(self, name: str) -> list[Value]:
        """The values that the axis lists, the points of its range on a grid, or else its two ends."""
        axis, parameter = self.axes[name], self.task.parameters[name]
        if axis.values is not None:
            return list(axis.values)
        assert axis.min is not None
        assert axis.max is not None
        if self.spec.method.name != "grid":
            return [parameter.typed(axis.min), parameter.typed(axis.max)]
        if axis.points is None:
            return [parameter.typed(value) for value in range(int(axis.min), int(axis.max) + 1)]
        return _points(axis, axis.points, parameter)

    @property
    def grid_size(self) -> int:
        """Cells of the full grid, before conditions and exclusions."""
        return math.prod(len(self.candidates(name)) for name in self.axes)

    def cells(self) -> Iterator[Cells]:
        """All cells of a grid, or `budget.cells` distinct random ones, chunk by chunk, none twice."""
        if self.spec.method.name == "grid":
            yield from self._grid()
        else:
            yield from self.drawn(self.spec.budget.cells or 0)

    def _grid(self) -> Iterator[Cells]:
        candidates = {name: self.candidates(name) for name in self.axes}
        sizes = [len(values) for values in candidates.values()]
        strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        count = math.prod(sizes)
        for begin in range(0, count, CHUNK):
            at = np.arange(begin, min(begin + CHUNK, count))
            index = {n: at // stride % size for n, stride, size in zip(candidates, strides, sizes, strict=True)}
            columns = {name: _column(candidates[name])[index[name]] for name in candidates}
            keep = np.ones(len(at), bool)
            for name, active in self._settle_conditions(columns, len(at)):
                # An inactive axis holds its default: of the cells that differ in it alone, the first stands for all.
                keep &= active | (index[name] == 0)
            yield self._chunk(columns, keep & ~self._excluded(columns, len(at)))

    def drawn(self, wanted: int) -> Iterator[Cells]:
        """That many distinct random cells, or all of a space that has fewer.

        Draws are made by axis and index, so that wanting more adds cells and changes none.
        """
        streams = {n: np.random.default_rng([self.spec.method.seed, zlib.crc32(n.encode())]) for n in self.axes}
        seen: set[str] = set()
        idle = 0
        while len(seen) < wanted:
            count = min(CHUNK, max(256, wanted))
            columns = {name: self._values_at(name, stream.random(count)) for name, stream in streams.items()}
            for _ in self._settle_conditions(columns, count):
                pass
            chunk = self._chunk(columns, ~self._excluded(columns, count))
            fresh = []
            for i, cell in enumerate(chunk.ids):
                if cell not in seen and len(seen) < wanted:
                    seen.add(cell)
                    fresh.append(i)
            idle = 0 if fresh else idle + 1
            if idle == 50:
                return  # the space is discrete and small, and all of it has been drawn
            if fresh:
                yield Cells(
                    [chunk.ids[i] for i in fresh],
                    chunk.common,
                    {name: [column[i] for i in fresh] for name, column in chunk.columns.items()},
                )

    def _values_at(self, name: str, u: np.ndarray) -> np.ndarray:
        """The axis at these places between its ends, which are 0 and 1."""
        axis, parameter = self.axes[name], self.task.parameters[name]
        if axis.values is not None:
            chosen: np.ndarray = _column(axis.values)[(u * len(axis.values)).astype(int)]
            return chosen
        assert axis.min is not None
        assert axis.max is not None
        low, high = axis.min, axis.max
        if parameter.type is int:
            low, high = low - 0.5, high + 0.5
        drawn = (
            low + u * (high - low) if axis.scale == "linear" else np.exp(np.log(low) + u * (np.log(high) - np.log(low)))
        )
        if parameter.type is int:
            return np.clip(np.rint(drawn), axis.min, axis.max).astype(int)
        return np.clip(drawn, axis.min, axis.max)

    def excludes(self, cell: Mapping[str, Value]) -> bool:
        return any(expression.holds(cell) for expression in self.exclude)

    def _settle_conditions(self, columns: dict[str, np.ndarray], count: int) -> Iterator[tuple[str, np.ndarray]]:
        """Put defaults where conditions do not hold; yields each conditional axis with where it is active."""
        for name, expression in self.when.items():
            active = self._column_of(expression, columns, count)
            default = np.full(
                count, self.base[name], dtype=columns[name].dtype if columns[name].dtype != object else object
            )
            columns[name] = np.where(active, columns[name], default)
            yield name, active

    def _excluded(self, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
        out = np.zeros(count, bool)
        for expression in self.exclude:
            out |= self._column_of(expression, columns, count)
        return out

    def _column_of(self, expression: Expression, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
        return np.broadcast_to(expression.holds({**self.base, **columns}), (count,))

    def _chunk(self, columns: Mapping[str, np.ndarray], keep: np.ndarray) -> Cells:
        declared = self.task.parameters
        kept = {name: [declared[name].typed(v) for v in column[keep].tolist()] for name, column in columns.items()}
        common = {name: value for name, value in self.base.items() if name not in kept}
        return Cells(cell_ids(self.task.name, self.task.version, common, kept, int(keep.sum())), common, kept)


def _points(axis: Axis, points: int, parameter: Parameter) -> list[Value]:
    assert axis.min is not None
    assert axis.max is not None
    spread = np.geomspace if axis.scale == "log" else np.linspace
    at = spread(axis.min, axis.max, points) if points > 1 else np.array([axis.min])
    if parameter.type is int:
        return [int(value) for value in np.unique(np.rint(at))]
    # Twelve digits keep 0.1 + 0.2 from becoming another cell than 0.3; the ends stay as they were given.
    inner = [min(max(float(f"{value:.12g}"), axis.min), axis.max) for value in at[1:-1]]
    return list(dict.fromkeys([axis.min, *inner, axis.max][:points]))


def _column(values: list[Any]) -> np.ndarray:
    """Words stay Python strings: numpy's would be cut to the length of the first."""
    return np.array(values, dtype=object if isinstance(values[0], str) else None)


def _by_dependence(axes: Mapping[str, Axis]) -> list[str]:
    """Names such that a condition comes after the conditions of the parameters that it reads."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise MislabelError(f"the conditions of {name} go in a circle")
        if name in order or name not in axes:
            return
        when = axes[name].when
        for read in sorted(parse_expression(when).names) if when else ():
            visit(read, (*above, name))
        order.append(name)

    for name in axes:
        visit(name, ())
    return order
