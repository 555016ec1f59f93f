"""Check the parts of a spec against each other: the method and `early_terminate` with what they need, and the space.

This module does not import Optuna, so that a spec is checked quickly.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.draft import Draft
from mislabel.sweeps.checks.first_cells import MOST_BRANCHES, first_cell_rules
from mislabel.sweeps.spec.document import Path
from mislabel.sweeps.spec.messages import Mistake, hint_from
from mislabel.sweeps.spec.model import MOST_CELLS, Axis, Spec
from mislabel.sweeps.stopping.rules import decision_steps, shortest_run
from mislabel.tasks.parameters import Parameter, Value
from mislabel.tasks.task import Task
from mislabel.tasks.training import measured_steps

# A grid walks an integer range without points value by value, up to this length.
LONGEST_WALK = 10_000
# Scipy's Sobol sequences have at most this many dimensions.
MOST_DIMENSIONS = 21_201
_EXAMPLE = "{name: .., goal: minimize}"
_LEARNING = "tpe, gp, cmaes, nsga2 or nsga3"


def method_rules(draft: Draft) -> Iterator[Mistake]:
    if not draft.sound("method.name"):
        return
    yield from _budget(draft)
    if draft.sound("parameters"):
        yield from _axes(draft.spec)
    if draft.sound("metric"):
        yield from _objectives(draft.spec)
    if draft.sound("method.population", "budget.cells"):
        yield from _population(draft.spec)
    yield from _earlier(draft)


def _budget(draft: Draft) -> Iterator[Mistake]:
    spec = draft.spec
    method, cells, runs = spec.method.name, spec.budget.cells, spec.budget.runs
    if method == "grid" and cells is not None:
        yield Mistake(("budget", "cells"), "a grid runs all its cells; remove it, or use method random or tpe")
    if method != "grid" and cells is None and draft.sound("budget.cells"):
        yield Mistake(("budget", "cells"), f"is missing; give the number of cells that {method} proposes")
    if draft.sound("seeds.count") and spec.method.learns and runs is not None and runs < spec.seeds.count:
        text = f"{runs} is less than the {spec.seeds.count} seeds of one cell; {method} needs complete cells to learn"
        yield Mistake(("budget", "runs"), text)


def _axes(spec: Spec) -> Iterator[Mistake]:
    method, axes = spec.method.name, spec.axes()
    if method != "grid" and not axes:
        yield Mistake(("parameters",), f"no parameter varies; give {method} values or ranges to choose from")
    searched = [axis for axis in axes.values() if not axis.grid]
    # Optuna's CMA-ES samples only numbers, and ranks cells by one objective.
    if method == "cmaes" and searched and all(axis.values is not None for axis in searched):
        yield Mistake(("method",), f"{method} needs a range of numbers; give a min and a max, or use tpe or gp")


def _objectives(spec: Spec) -> Iterator[Mistake]:
    method, count = spec.method.name, len(spec.metric)
    if spec.method.learns and not count:
        yield Mistake(("metric",), f"is missing; {method} needs an objective, such as {_EXAMPLE}")
    if method == "cmaes" and count > 1:
        text = f"lists {count} objectives; {method} optimizes one: keep one, or use tpe, gp, nsga2 or nsga3"
        yield Mistake(("metric",), text)
    if spec.seeds.up_to is not None and count != 1:
        remedy = f"keep one of {count}, or remove this" if count else f"add metric: {_EXAMPLE}"
        yield Mistake(("seeds", "up_to"), f"needs exactly one objective to find the best cells; {remedy}")


def _population(spec: Spec) -> Iterator[Mistake]:
    """A search by generations needs at least two of them."""
    population, cells = spec.method.population, spec.budget.cells
    if spec.method.name in ("nsga2", "nsga3") and cells is not None and population >= cells:
        text = f"{population} of {cells} cells leave none for a second generation; give fewer, or raise budget.cells"
        yield Mistake(("method", "population"), text)


def _earlier(draft: Draft) -> Iterator[Mistake]:
    spec, method = draft.spec, draft.spec.method.name
    if spec.start_from and not spec.method.learns:
        yield Mistake(("start_from",), f"{method} does not learn from results; remove it, or use {_LEARNING}")
    if spec.try_first and method == "grid":
        yield Mistake(("try_first",), f"a grid runs all its cells; remove it, or use random, qmc, {_LEARNING}")
    for i, name in enumerate(spec.start_from if spec.method.learns else ()):
        path: Path = ("start_from", i)
        if draft.sound("name") and name == spec.name:
            yield Mistake(path, "is this sweep, which continues from its own results anyway; name others")
        elif name in spec.start_from[:i]:
            yield Mistake(path, f"{name!r} is listed twice; remove one")


def stopping_rules(draft: Draft) -> Iterator[Mistake]:
    """The stopping rule must be able to compare runs, and to stop some of them."""
    spec, task, wanted = draft.spec, draft.task, draft.spec.early_terminate
    if wanted is None or not draft.sound("early_terminate.type"):
        return
    if draft.sound("metric") and len(spec.metric) != 1:
        remedy = "keep one, or remove this" if spec.metric else f"add metric: {_EXAMPLE}"
        text = f"compares runs by exactly one objective, not {len(spec.metric)}; {remedy}"
        yield Mistake(("early_terminate",), text)
    if task is None or not draft.sound("early_terminate.min_steps", "parameters.steps"):
        return
    shortest = shortest_run(spec, task)
    path = ("early_terminate", "min_steps")
    if wanted.min_steps >= shortest:
        yield Mistake(path, f"{wanted.min_steps} is not below steps = {shortest}; no run would be stopped")
    elif draft.sound("early_terminate.eta", "parameters.frames", "parameters.spacing"):
        values = {name: parameter.default for name, parameter in task.parameters.items()}
        values |= {n: value for n, value in spec.fixed().items() if n in values and draft.has_right_values(n)}
        measured = measured_steps(task.settings({**values, "steps": shortest}))
        if not any(step >= wanted.min_steps for step in decision_steps(wanted, measured)):
            text = f"no step but the last is measured from {wanted.min_steps} on; raise parameters.frames, or lower it"
            yield Mistake(path, text)


def axis_rules(draft: Draft, task: Task[Any]) -> Iterator[Mistake]:
    """Mistakes in single axes whose values are right."""
    zipped = {name for group in draft.items("zip").values() for name in group}
    for name, axis in draft.spec.axes().items():
        if not draft.has_right_values(name):
            continue
        path, parameter = ("parameters", name), task.parameters[name]
        if axis.values is None:
            yield from (Mistake((*path, *key), text) for key, text in ranges.range_problems(axis, parameter))
        elif name not in zipped and draft.sound("zip"):  # of zipped axes, only the combinations must differ
            yield from _repeated(path, [parameter.typed(value) for value in axis.values])
        if axis.grid and axis.when is not None:
            yield Mistake(path, "grid: true makes a branch of each value, under any condition; remove when or grid")
        if draft.sound("method.name"):
            yield from _grid_axis(path, axis, parameter, draft.spec.method.name)


def _repeated(path: Path, values: list[Value]) -> Iterator[Mistake]:
    first = {value: i for i, value in reversed([*enumerate(values)])}
    repeats = [(i, value) for i, value in enumerate(values) if first[value] < i]
    yield from (Mistake((*path, "values", i), f"{value!r} is listed twice; remove one") for i, value in repeats)


def _grid_axis(path: Path, axis: Axis, parameter: Parameter, method: str) -> Iterator[Mistake]:
    if (method != "grid" and not axis.grid) or axis.values is not None or axis.points is not None:
        return
    what = "a grid" if method == "grid" else "grid: true"
    low, high = axis.ends
    if axis.step is not None:
        count = (high - low) / axis.step + 1
        if count > LONGEST_WALK + 0.5:
            yield Mistake(path, f"has {count:,.0f} values, more than {LONGEST_WALK:,} of {what}; give a larger step")
    elif not (parameter.type is int and axis.scale == "linear" and high - low < LONGEST_WALK):
        yield Mistake(path, f"{what} over a range needs points; give their number, or list values")


def zip_rules(draft: Draft, task: Task[Any]) -> Iterator[Mistake]:
    """Zipped parameters need lists of equal length whose combinations differ."""
    axes, wrong, known = draft.spec.axes(), draft.wrong_parameters(), task.parameters
    seen: set[str] = set()
    for i, group in draft.items("zip").items():
        found = []
        for name in group:
            if name in seen:
                found.append(f"{name!r} is listed twice; a parameter can be in one group")
            elif name not in known:
                found.append(f"{name!r} is not a parameter of {task.name}; {hint_from(name, known)}")
            elif name not in wrong and (name not in axes or axes[name].values is None):
                found.append(f"{name!r} has no list of values; write parameters.{name}: {{values: [..]}}")
            elif name not in wrong and axes[name].when is not None:
                found.append(f"{name!r} has a condition; remove its when, or remove it from the group")
            seen.add(name)
        if not found and not wrong & set(group):
            found += _unequal({name: axes[name].values or [] for name in group})
        yield from (Mistake(("zip", i), text) for text in found)


def _unequal(lists: Mapping[str, list[Value]]) -> Iterator[str]:
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        yield f"zipped parameters need lists of equal length; {counted}"
        return
    counts = Counter(zip(*lists.values(), strict=True))
    for values in (values for values, count in counts.items() if count > 1):
        shown = ", ".join(f"{name} {value}" for name, value in zip(lists, values, strict=True))
        yield f"{shown} is listed twice; remove one"


def space_rules(draft: Draft, task: Task[Any]) -> Iterator[Mistake]:
    """Mistakes that only the whole space shows; skipped where a part that they need is wrong."""
    if not draft.sound("method.name"):
        return
    space = draft.space(task)
    if draft.sound("parameters", "zip", "exclude"):
        yield from _size(space)
        if draft.sound("budget.cells"):
            yield from _branches(space)
    yield from first_cell_rules(draft, space)
    if draft.sound("parameters", "zip"):
        yield from _conflicts(space)


def _size(space: Space) -> Iterator[Mistake]:
    method, groups = space.spec.method.name, space.branch_dimensions
    if method == "qmc" and len(space.dimensions) > MOST_DIMENSIONS:
        text = f"a Sobol sequence has at most {MOST_DIMENSIONS:,} dimensions, not {len(space.dimensions):,}; use random"
        yield Mistake(("method",), text)
    if method == "grid" and space.grid_size > MOST_CELLS:
        text = f"make a grid of {space.grid_size:,} cells, more than {MOST_CELLS:,}; give fewer values, or use random"
        yield Mistake(("parameters",), text)
    count = math.prod(len(space.candidates(group[0])) for group in groups)
    if count > MOST_BRANCHES:
        names = ", ".join(space.spec.branch_axes())
        text = f"grid: true on {names} makes {count:,} branches, more than {MOST_BRANCHES:,}; give fewer values"
        yield Mistake(("parameters",), text)
    elif groups and method != "grid" and len(groups) == len(space.dimensions):
        text = f"grid: true on all axes leaves {method} nothing to propose; remove one, or use method grid"
        yield Mistake(("parameters",), text)


def _branches(space: Space) -> Iterator[Mistake]:
    """Each branch needs a share of the budget."""
    cells, names = space.spec.budget.cells, ", ".join(space.spec.branch_axes())
    sizes = [len(space.candidates(group[0])) for group in space.branch_dimensions]
    if not sizes or cells is None or math.prod(sizes) > MOST_BRANCHES:
        return
    branches = space.branches()
    if not branches:
        yield Mistake(("exclude",), f"leaves no combination of {names}; exclude less")
    elif len(branches) > cells:
        text = f"{cells} is less than the {len(branches)} branches of {names}; give each at least one cell"
        yield Mistake(("budget", "cells"), text)
    elif not list(_population(space.spec)):
        for path, text, _ in _population(branches[-1].spec):
            yield Mistake(path, f"{text} ({cells} are shared by {len(branches)} branches)")


def _conflicts(space: Space) -> Iterator[Mistake]:
    """The task's rules between parameters, tried on a first cell and on each single value of the axes.

    A message of the form `parameter: text` belongs to that parameter.
    """
    first = space.sample_cell()
    tried: list[tuple[Path, Mapping[str, Value]]] = [(("parameters",), first)]
    for group in space.dimensions:
        tried += [(("parameters", group[0]), {**first, **changed}) for changed in space.combinations(group)]
    said = set()
    for path, cell in tried:
        for text in space.task.conflicts(space.task.settings(cell)):
            if text not in said:
                said.add(text)
                name, _, rest = text.partition(": ")
                known = name in space.spec.parameters
                yield Mistake(("parameters", name), rest) if known else Mistake(path, text)
