"""What goes together in a spec and what does not: each breach with its place, the reason and the remedy.

`reader` checks each section by itself first; `method_rules` says what each method supports.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.method_rules import refusals
from mislabel.sweeps.errors import nearest
from mislabel.sweeps.spec.document import Path
from mislabel.sweeps.spec.messages import Mistake
from mislabel.sweeps.spec.model import NAME, Axis, Spec
from mislabel.sweeps.stopping import rules
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task

# An integer range without points is walked through value by value on a grid, up to this length.
LONGEST_WALK = 10_000
# A grid is walked through whenever it is planned; this many cells take a few minutes.
LARGEST_GRID = 100_000_000
# Each branch is a search of its own.
MOST_BRANCHES = 10_000
# Of scipy's Sobol sequences.
MOST_DIMENSIONS = 21_201


def mistakes_between(spec: Spec, task: Task[Any]) -> list[Mistake]:
    """What is wrong between keys that are right by themselves. The first kind of mistakes that there are is told."""
    rules = (_alone, _zips, _searched, _tried_first, _task_agrees)
    return next((found for rule in rules if (found := list(rule(spec, task)))), [])


def _alone(spec: Spec, task: Task[Any]) -> Iterator[Mistake]:
    """What needs no space of cells to be seen."""
    method = spec.method.name
    if method == "grid" and spec.budget.cells is not None:
        yield ("budget", "cells"), "a grid runs all its cells; remove it, or use method random or tpe"
    if method != "grid" and spec.budget.cells is None:
        yield ("budget", "cells"), f"is missing; {method} needs to know how many cells to propose"
    if method != "grid" and not spec.axes():
        yield ("parameters",), f"none varies, so {method} has nothing to propose"
    runs, seeds = spec.budget.runs, spec.seeds.count
    if spec.method.learns and runs is not None and runs < seeds:
        yield ("budget", "runs"), f"{runs} is less than the {seeds} seeds of one cell, so {method} would learn nothing"
    for name, axis in spec.axes().items():
        yield from _grid_axis(spec, task, name, axis)
    yield from _sweeps_named(spec)
    yield from refusals(spec)
    yield from rules.problems(spec, task)
    if spec.keep == "weights" and not task.has_weights:
        yield ("keep",), f"{task.name} gives no weights; remove keep"


def _grid_axis(spec: Spec, task: Task[Any], name: str, axis: Axis) -> Iterator[Mistake]:
    path: Path = ("parameters", name)
    if spec.method.name != "grid" and not axis.grid:
        return
    what = "a grid" if spec.method.name == "grid" else "grid: true"
    if axis.grid and axis.when is not None:
        text = "each of its values is a branch, so it varies everywhere; remove when or grid"
        yield path, text
    if axis.values is not None or axis.points is not None:
        return
    low, high = ranges.ends_of(axis)
    if axis.step is not None:
        count = ranges.steps_of(axis) + 1
        if count > LONGEST_WALK:
            yield path, f"{what} over it has {count:,} values, more than {LONGEST_WALK:,}; give a larger step"
    elif not (task.parameters[name].type is int and axis.scale == "linear" and high - low < LONGEST_WALK):
        yield path, f"{what} over a range needs points; write how many, or list values"


def _sweeps_named(spec: Spec) -> Iterator[Mistake]:
    for i, name in enumerate(spec.start_from):
        path: Path = ("start_from", i)
        if not NAME.fullmatch(name):
            yield path, f"{name!r} is not the name of a sweep"
        elif name == spec.name:
            yield path, "is this sweep itself, which goes on from its own results anyway; name others"
        elif name in spec.start_from[:i]:
            yield path, f"{name!r} stands twice"


def _zips(spec: Spec, task: Task[Any]) -> Iterator[Mistake]:
    axes = spec.axes()
    taken: set[str] = set()
    for i, group in enumerate(spec.zip):
        path: Path = ("zip", i)
        if len(group) < 2:
            yield path, "a group of one; name at least two parameters whose values go together"
        fits = True
        for name in group:
            problem = _zip_problem(name, axes, task)
            if name in taken:
                problem = f"{name!r} stands twice; a parameter goes with one group"
            if problem:
                fits = False
                yield path, problem
            taken.add(name)
        if not fits:
            continue
        lengths = {name: len(axes[name].values or ()) for name in group}
        if len(set(lengths.values())) > 1:
            counted = ", ".join(f"{name} has {count}" for name, count in lengths.items())
            yield path, f"go together first with first, so they need equally many values; {counted}"
            continue
        counts = Counter(zip(*(axes[name].values or () for name in group), strict=True))
        for values in (values for values, count in counts.items() if count > 1):
            yield path, ", ".join(f"{name} {v}" for name, v in zip(group, values, strict=True)) + " stands twice"


def _zip_problem(name: str, axes: Mapping[str, Axis], task: Task[Any]) -> str | None:
    if name not in task.parameters:
        return f"{name!r} is not a parameter of {task.name}{nearest(name, task.parameters)}"
    if name not in axes or axes[name].values is None:
        return (
            f"{name!r} has no list of values; write parameters.{name}: {{values: [..]}}, or leave it out of the group"
        )
    if axes[name].when is not None:
        return f"{name!r} has a condition, and what goes together varies together; remove its when, or take it out"
    return None


def _searched(spec: Spec, task: Task[Any]) -> Iterator[Mistake]:
    """The remainder of the axes that a method searches, once for each branch."""
    space = Space(spec, task)
    method, cells = spec.method.name, spec.budget.cells or 0
    if method == "qmc" and len(space.dimensions) > MOST_DIMENSIONS:
        yield ("method",), f"{len(space.dimensions):,} axes, more than the {MOST_DIMENSIONS:,} of a Sobol sequence"
    grid = space.branch_dimensions
    if not grid:
        return
    count = math.prod(len(space.candidates(group[0])) for group in grid)
    names = ", ".join(name for group in grid for name in group)
    if method == "grid":
        if count > MOST_BRANCHES:
            yield ("parameters",), f"{names} with grid: true make {count:,} branches, more than {MOST_BRANCHES:,}"
    elif len(grid) == len(space.dimensions):
        text = f"all that varies is grid: true, so {method} has nothing left to propose; remove one, or use method grid"
        yield ("parameters",), text
    elif count > MOST_BRANCHES:
        text = f"{names} with grid: true make {count:,} branches, more than {MOST_BRANCHES:,}; give fewer values"
        yield ("parameters",), text
    elif not (found := space.branches()):
        yield ("exclude",), f"leaves no combination of {names}; exclude less"
    elif len(found) > cells:
        text = f"{cells} is fewer than the {len(found)} branches that {names} make; each needs one cell at least"
        yield ("budget", "cells"), text
    else:
        shared = f" ({cells} are shared by {len(found)} branches)"
        yield from ((path, text + shared) for path, text in refusals(found[-1].spec))


def _tried_first(spec: Spec, task: Task[Any]) -> Iterator[Mistake]:
    space = Space(spec, task)
    for i, given in enumerate(spec.try_first):
        path: Path = ("try_first", i)
        wrong = list(_first_cell(space, path, given))
        if given in spec.try_first[:i]:
            wrong.append((path, "stands twice"))
        if not wrong and not len(space.first(i)):
            wrong.append((path, "exclude leaves out such cells; give other values"))
        yield from wrong
    if spec.method.name == "grid":
        return
    for branch in (each.spec for each in space.branches()):
        if len(branch.try_first) > (branch.budget.cells or 0):
            where = " for each branch" if spec.branch_axes() else ""
            text = f"lists {len(branch.try_first)} cells, and budget.cells leaves {branch.budget.cells}{where}"
            yield ("try_first",), f"{text}; list fewer, or raise it"
            return


def _first_cell(space: Space, path: Path, given: Mapping[str, Value]) -> Iterator[Mistake]:
    spec, parameters = space.spec, space.task.parameters
    if not given:
        yield path, "is empty; name a parameter and its value at least"
    right = True
    for name, value in given.items():
        problem = None
        if name not in space.axes:
            if value != space.base[name]:
                problem = f"{value!r} is not {space.base[name]!r}, which all cells have; leave it out, or vary {name}"
        elif space.axes[name].grid and spec.method.name != "grid" and value not in space.candidates(name):
            problem = f"{value!r} is not one of its values {ranges.shown(space.candidates(name))}"
        else:
            problem = ranges.problem_with(space.axes[name], parameters[name], value)
        if problem:
            right = False
            yield (*path, name), problem
    for group in space.zips if right else ():
        held = {name: given[name] for name in group if name in given}
        if held and not space.combinations_with(group, held):
            shown = ", ".join(f"{name} {value}" for name, value in held.items())
            yield path, f"{shown} do not go together in zip"
    if not right or not space.axes.keys() <= given.keys():
        return
    cell = {**space.base, **given}
    for name in space.when:
        if not space.when[name].holds(cell) and cell[name] != space.base[name]:
            text = f"where not ({space.axes[name].when}), it holds its default {space.base[name]}; leave it out"
            yield (*path, name), text


def _task_agrees(spec: Spec, task: Task[Any]) -> Iterator[Mistake]:
    """Rules between parameters, tried on a first cell and on each single value of the axes."""
    space = Space(spec, task)
    if spec.method.name == "grid" and space.grid_size > LARGEST_GRID:
        size = f"{space.grid_size:,} cells, more than {LARGEST_GRID:,}"
        yield ("parameters",), f"make a grid of {size}; give fewer values, or draw some with method random"
        return
    first = space.sample_cell()
    tried: list[tuple[Path, Mapping[str, Value]]] = [(("parameters",), first)]
    tried += [(("parameters", name), {**first, **changed}) for name, changed in space.single_changes()]
    told = set()
    for path, cell in tried:
        for text in task.conflicts(task.settings(cell)):
            if text not in told:
                told.add(text)
                yield path, text
