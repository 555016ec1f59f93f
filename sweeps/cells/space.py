"""The cells of a spec: all cells of a grid, or any number of random cells, in chunks of columns.

A grid of a million cells never needs a million objects at once: each chunk is a few numpy columns, conditions are
evaluated on whole columns, and ids are built from pieces that cells share.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.ids import cell_ids
from mislabel.sweeps.spec.condition import Expression, parse_expression
from mislabel.sweeps.spec.model import Axis, Spec
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task

CHUNK = 1 << 15
# After this many chunks without a new cell, all cells of a small space have been found.
IDLE = 50
NONE: Mapping[str, Value] = MappingProxyType({})
Quantiles = Callable[[int], list[np.ndarray]]
"""Gives the next quantiles between 0 and 1 for each dimension of a space."""


@dataclass(frozen=True)
class Cells:
    """Some cells: their ids, the values that all share, and a column for each parameter that varies."""

    ids: list[str]
    common: Mapping[str, Value]
    columns: Mapping[str, list[Any]]

    def __len__(self) -> int:
        return len(self.ids)

    def values(self, i: int) -> dict[str, Value]:
        """All parameters of one cell."""
        return {**self.common, **{name: column[i] for name, column in self.columns.items()}}

    def rows(self, wanted: Sequence[int]) -> "Cells":
        columns = {name: [column[i] for i in wanted] for name, column in self.columns.items()}
        return Cells([self.ids[i] for i in wanted], self.common, columns)


class Space:
    """The axes, conditions and exclusions of a spec, with every value in the type that the task declares."""

    def __init__(self, spec: Spec, task: Task[Any], branch: Mapping[str, Value] = NONE) -> None:
        self.spec = spec
        self.task = task
        self.branch = branch
        """The values that make this space a branch of a larger one; empty for the whole space of a spec."""
        declared = task.parameters
        axes = spec.axes()
        group_of = {name: group for group in spec.zip for name in group}
        dimensions = dict.fromkeys(group_of.get(name, (name,)) for name in axes)
        # Shapes vary slowest: cells of equal shape follow each other, and packs fill up one shape at a time.
        self.dimensions: list[tuple[str, ...]] = sorted(
            dimensions, key=lambda group: all(declared[name].kind != "shape" for name in group)
        )
        """The independent dimensions: groups of zipped axes, and single axes."""
        self.axes: dict[str, Axis] = {name: axes[name] for group in self.dimensions for name in group}
        self.base: dict[str, Value] = {name: parameter.default for name, parameter in declared.items()} | spec.fixed()
        self.order = _by_dependence(axes)
        """The axes in an order in which a condition comes after the parameters that it reads."""
        self.when: dict[str, Expression] = {n: parse_expression(axes[n].when) for n in self.order if axes[n].when}
        self.exclude = [parse_expression(text) for text in spec.exclude]

    def sample_cell(self) -> dict[str, Value]:
        """One cell of the space, ignoring conditions and exclusions."""
        return {**self.base, **{name: self.candidates(name)[0] for name in self.axes}}

    def candidates(self, name: str) -> list[Value]:
        """The listed values of an axis, the points of its range on a grid, or else the ends of the range."""
        axis, parameter = self.axes[name], self.task.parameters[name]
        return ranges.candidates(axis, parameter, on_grid=self.spec.method.name == "grid" or axis.grid)

    def combinations(self, group: tuple[str, ...], given: Mapping[str, Value] = NONE) -> list[dict[str, Value]]:
        """The candidates of a dimension: a value for each of its axes. With `given`, only those with these values."""
        rows = zip(*(self.candidates(name) for name in group), strict=True)
        found = (dict(zip(group, row, strict=True)) for row in rows)
        return [row for row in found if given.items() <= row.items()]

    @property
    def grid_size(self) -> int:
        """The number of cells of the full grid, before conditions and exclusions."""
        return math.prod(len(self.candidates(group[0])) for group in self.dimensions)

    @property
    def branch_dimensions(self) -> list[tuple[str, ...]]:
        """The dimensions whose combinations of values are the branches."""
        names = self.spec.branch_axes()
        return [group for group in self.dimensions if group[0] in names]

    def branches(self) -> list["Space"]:
        """A space for each combination of values of the branch axes, with these fixed; this space if there are none.

        Branches share `budget.cells`. If it does not divide evenly, the first branches get one cell more, so that a
        larger budget removes no cell. Combinations that `exclude` rules out entirely have no branch.
        """
        groups = self.branch_dimensions
        if not groups:
            return [self]
        combinations = itertools.product(*(self.combinations(group) for group in groups))
        settings = [{name: value for row in rows for name, value in row.items()} for rows in combinations]
        searched = self.axes.keys() - set(self.spec.branch_axes())
        decided = [expression for expression in self.exclude if expression.names.isdisjoint(searched)]
        kept = [fixed for fixed in settings if not any(e.holds({**self.base, **fixed}) for e in decided)]
        return [Space(self._branch_spec(fixed, i, len(kept)), self.task, fixed) for i, fixed in enumerate(kept)]

    def _branch_spec(self, fixed: Mapping[str, Value], i: int, count: int) -> Spec:
        """The spec of the i-th branch, with the cells of `try_first` and `baselines` that belong to it."""
        spec, budget = self.spec, self.spec.budget
        if budget.cells is not None:
            share, more = divmod(budget.cells, count)
            budget = budget.model_copy(update={"cells": share + (i < more)})

        def agreeing(cells: Sequence[Mapping[str, Value]]) -> list[dict[str, Value]]:
            own = [given for given in cells if all(fixed.get(name, v) == v for name, v in given.items())]
            return [{name: v for name, v in given.items() if name not in fixed} for given in own]

        changes = {
            "parameters": {**spec.parameters, **fixed},
            "zip": tuple(group for group in spec.zip if group[0] not in fixed),
            "try_first": tuple(given for given in agreeing(spec.try_first) if given),
            "baselines": tuple(agreeing(spec.baselines)),
            "budget": budget,
        }
        return spec.model_copy(update=changes)

    def cells(self) -> Iterator[Cells]:
        """All cells of a grid, or `budget.cells` random cells, chunk by chunk and without repetition."""
        if self.spec.method.name == "grid":
            yield from self._grid()
            return
        for branch in self.branches():
            for cells in branch.drawn(branch.spec.budget.cells or 0):
                yield self._with_all_axes(cells)

    def _with_all_axes(self, cells: Cells) -> Cells:
        """Add columns for the values that the branch fixes, so that the cells of all branches have the same columns."""
        columns = {n: cells.columns[n] if n in cells.columns else [cells.common[n]] * len(cells) for n in self.axes}
        return Cells(cells.ids, {n: value for n, value in cells.common.items() if n not in columns}, columns)

    def _grid(self) -> Iterator[Cells]:
        sizes = [len(self.candidates(group[0])) for group in self.dimensions]
        strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        count = math.prod(sizes)
        candidates = {name: ranges.column_of(self.candidates(name)) for name in self.axes}
        for begin in range(0, count, CHUNK):
            at = np.arange(begin, min(begin + CHUNK, count))
            index = {
                name: at // stride % size
                for group, stride, size in zip(self.dimensions, strides, sizes, strict=True)
                for name in group
            }
            columns = {name: candidates[name][index[name]] for name in candidates}
            keep = np.ones(len(at), bool)
            for name, active in self._settle_conditions(columns, len(at)):
                # An inactive axis has its default. Of the cells that differ only in this axis, keep the first.
                keep &= active | (index[name] == 0)
            yield self._chunk(columns, keep & ~self._excluded(columns, len(at)))

    def drawn(self, wanted: int) -> Iterator[Cells]:
        """This many distinct cells, random or evenly spread depending on the method; all cells if there are fewer.

        Each dimension has its own stream of random numbers, so that a larger number adds cells and changes none.
        """
        quantiles = self._sobol() if self.spec.method.name == "qmc" else self._random()
        firsts = (self.first(i) for i in range(len(self.spec.try_first)))
        count = min(CHUNK, 1 << max(256, wanted).bit_length())
        draws = (self._at(quantiles(count)) for _ in itertools.count())
        seen: set[str] = set()
        idle = 0
        for chunk in itertools.chain(self.baselines(), firsts, draws):
            fresh = []
            for i, cell in enumerate(chunk.ids):
                if cell not in seen and len(seen) < wanted:
                    seen.add(cell)
                    fresh.append(i)
            if fresh:
                yield chunk.rows(fresh)
            idle = 0 if fresh else idle + 1
            if len(seen) == wanted or idle == IDLE:
                return

    def first(self, i: int) -> Cells:
        """The i-th cell of `try_first`, with random values for the parameters that it leaves open; none if excluded."""
        given = self.spec.try_first[i]
        cells = self._at(self._random(zlib.crc32(b"try_first"), i)(256), given)
        return cells.rows([0]) if len(cells) else cells

    def baselines(self) -> Iterator[Cells]:
        """The cells of `baselines`, one by one, in every branch that they belong to; without excluded ones."""
        for branch in self.branches() if self.spec.baselines else ():
            for given in branch.spec.baselines:
                cells = branch._at([np.zeros(1)] * len(branch.dimensions), given)
                if len(cells):
                    yield self._with_all_axes(cells)

    def _at(self, quantiles: list[np.ndarray], given: Mapping[str, Value] = NONE) -> Cells:
        """The cells at these quantiles of the dimensions, without excluded ones."""
        columns: dict[str, np.ndarray] = {}
        count = len(quantiles[0]) if quantiles else 1
        for group, at in zip(self.dimensions, quantiles, strict=True):
            columns |= self._values_at(group, at, {n: v for n, v in given.items() if n in group})
        for _ in self._settle_conditions(columns, count):
            pass
        return self._chunk(columns, ~self._excluded(columns, count))

    def _random(self, *more: int) -> Quantiles:
        seed = self.spec.method.seed
        names = [",".join(group) for group in self.dimensions]
        streams = [np.random.default_rng([seed, zlib.crc32(name.encode()), *more]) for name in names]
        return lambda count: [stream.random(count) for stream in streams]

    def _sobol(self) -> Quantiles:
        from scipy.stats import qmc  # takes a second to import

        seed = [self.spec.method.seed, zlib.crc32(b"sobol")]
        # 53 bits: the precision of a float. Scipy warns unless the number of points is a power of two.
        engine = qmc.Sobol(max(1, len(self.dimensions)), scramble=True, bits=53, rng=np.random.default_rng(seed))
        return lambda count: list(engine.random(count).T)[: len(self.dimensions)]

    def _values_at(self, group: tuple[str, ...], at: np.ndarray, given: Mapping[str, Value]) -> dict[str, np.ndarray]:
        """The values of a dimension at these quantiles of the combinations with the given values."""
        if len(group) == 1 and not given:
            (name,) = group
            return {name: ranges.values_at(self.axes[name], self.task.parameters[name], at)}
        rows = [given] if len(group) == len(given) == 1 else self.combinations(group, given)
        index = ranges.index_at(at, len(rows))
        return {name: ranges.column_of([row[name] for row in rows])[index] for name in group}

    def excludes(self, cell: Mapping[str, Value]) -> bool:
        return any(expression.holds(cell) for expression in self.exclude)

    def _settle_conditions(self, columns: dict[str, np.ndarray], count: int) -> Iterator[tuple[str, np.ndarray]]:
        """Set inactive values to their defaults; yields each conditional axis with the cells in which it is active."""
        for name, expression in self.when.items():
            active = self._column_of(expression, columns, count)
            default = np.full(count, self.base[name], columns[name].dtype)
            columns[name] = np.where(active, columns[name], default)
            yield name, active

    def _excluded(self, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
        excluded = [self._column_of(expression, columns, count) for expression in self.exclude]
        return np.asarray(np.logical_or.reduce([np.zeros(count, bool), *excluded]))

    def _column_of(self, expression: Expression, columns: Mapping[str, np.ndarray], count: int) -> np.ndarray:
        return np.broadcast_to(expression.holds({**self.base, **columns}), (count,))

    def _chunk(self, columns: Mapping[str, np.ndarray], keep: np.ndarray) -> Cells:
        declared = self.task.parameters
        kept = {name: [declared[name].typed(v) for v in column[keep].tolist()] for name, column in columns.items()}
        common = {name: value for name, value in self.base.items() if name not in kept}
        return Cells(cell_ids(self.task, common, kept, int(keep.sum())), common, kept)


def _by_dependence(axes: Mapping[str, Axis]) -> list[str]:
    """The names in an order in which a condition comes after the conditions of the parameters that it reads."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise MislabelError(f"the condition of {name} depends on {name} itself")
        if name in order or name not in axes:
            return
        when = axes[name].when
        for read in sorted(parse_expression(when).names) if when else ():
            visit(read, (*above, name))
        order.append(name)

    for name in axes:
        visit(name, ())
    return order


def branch_of(values: Mapping[str, Value], axes: Sequence[str]) -> str:
    """The name of the branch of a cell with these values; `axes` are the spec's `branch_axes`."""
    return ", ".join(f"{name} = {values[name]!r}" for name in axes)
