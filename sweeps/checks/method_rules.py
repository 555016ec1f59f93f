"""Check that the method and `early_terminate` fit the rest of the spec: its budget, objectives, axes and steps.

This module does not import Optuna, so that a spec is checked quickly.
"""

from collections.abc import Iterator
from typing import Any

from mislabel.sweeps.checks.draft import Draft
from mislabel.sweeps.spec.document import Path
from mislabel.sweeps.spec.messages import Mistake
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.stopping.rules import decision_steps, shortest_run
from mislabel.tasks.training import measured_steps

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
        yield from population_rule(draft.spec)
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


def population_rule(spec: Spec) -> Iterator[Mistake]:
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
        remedy = "keep one, or remove this" if spec.metric else "add metric: {name: .., goal: minimize}"
        text = f"compares runs by exactly one objective, not {len(spec.metric)}; {remedy}"
        yield Mistake(("early_terminate",), text)
    if task is None or not draft.sound("early_terminate.min_steps", "parameters.steps"):
        return
    shortest = shortest_run(spec, task)
    path = ("early_terminate", "min_steps")
    if wanted.min_steps >= shortest:
        yield Mistake(path, f"{wanted.min_steps} is not below steps = {shortest}; no run would be stopped")
    elif draft.sound("early_terminate.eta", "parameters.frames", "parameters.spacing"):
        values: dict[str, Any] = {name: parameter.default for name, parameter in task.parameters.items()}
        fixed = {name: value for name, value in spec.fixed().items() if draft.has_right_values(name)}
        values |= {name: value for name, value in fixed.items() if name in values}
        measured = measured_steps(task.settings({**values, "steps": shortest}))
        if not any(step >= wanted.min_steps for step in decision_steps(wanted, measured)):
            text = f"no step but the last is measured from {wanted.min_steps} on; raise parameters.frames, or lower it"
            yield Mistake(path, text)
