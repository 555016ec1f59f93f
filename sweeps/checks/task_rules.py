"""Check the names and values of a spec against its task.

These rules read the document itself rather than the Spec, so that a mistake in one item hides none in the next.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.checks.draft import Draft
from mislabel.sweeps.spec.condition import ExpressionError, parse_expression
from mislabel.sweeps.spec.document import Path, read_value, text_from_value
from mislabel.sweeps.spec.messages import Mistake, hint_from, unknown_name, whole
from mislabel.sweeps.store.store import RESERVED
from mislabel.tasks.parameters import Parameter, Value
from mislabel.tasks.registry import find_task, task_names
from mislabel.tasks.task import Task

_LARGEST_INT = 2**63 - 1


def task_rules(draft: Draft) -> Iterator[Mistake]:
    """Find the task of the draft, and mistakes in all that names its parameters and metrics."""
    spec, names = draft.spec, task_names()
    if draft.sound("name") and spec.name in RESERVED:
        yield Mistake(("name",), f"{spec.name!r} is a file of the store; choose another name")
    if draft.sound("task") and spec.task not in names:
        yield Mistake(("task",), f"{spec.task!r} is not an installed task; {hint_from(spec.task, names)}")
    elif draft.sound("task"):
        draft.task = task = find_task(spec.task)
        yield from _parameters(task, draft.values.get("parameters"))
        yield from _conditions(task, draft.values)
        yield from _metrics(task, draft.values.get("metric"))
        yield from _first_cells(task, draft.values.get("try_first"))
        if spec.keep == "weights" and not task.has_weights:
            yield Mistake(("keep",), f"{task.name} has no weights to keep; remove keep")


def _parameters(task: Task[Any], given: Any) -> Iterator[Mistake]:
    for name, value in given.items() if isinstance(given, dict) else ():
        path: Path = ("parameters", name)
        parameter = task.parameters.get(name)
        if parameter is None:
            yield _unknown_parameter(path, value, task)
        elif isinstance(value, dict):
            yield from _axis(path, value, parameter)
        elif isinstance(value, Value) and (text := _problem(parameter, value)):
            yield Mistake(path, text)


def _axis(path: Path, axis: Mapping[str, Any], parameter: Parameter) -> Iterator[Mistake]:
    if parameter.type in (bool, str) and axis.keys() & {"min", "max"}:
        kind = "true or false" if parameter.type is bool else "a string"
        yield Mistake(path, f"{parameter.name} is {kind}, which has no range; write {{values: [..]}}")
        return
    listed = axis.get("values")
    values: dict[Path, Any] = {("min",): axis.get("min"), ("max",): axis.get("max")}
    values |= {("values", i): value for i, value in enumerate(listed if isinstance(listed, list) else ())}
    for key, value in values.items():
        if isinstance(value, Value) and (text := _problem(parameter, whole(value))):
            yield Mistake((*path, *key), text)


def _problem(parameter: Parameter, value: Value) -> str | None:
    problem = parameter.problem(value)
    if problem and isinstance(value, str) and "," in value:
        values = [read_value(part, "") for part in value.split(",")]
        if not any(parameter.problem(each) for each in values):
            return f"{problem}; to try several values, write {{values: {text_from_value(values, flow=True)}}}"
    if parameter.type is int and not problem and abs(float(value)) > _LARGEST_INT:
        return f"{value!r} does not fit into 64 bits"
    return problem


def _unknown_parameter(path: Path, value: object, task: Task[Any]) -> Mistake:
    if path[-1] in ("seed", "seeds"):
        count = value if isinstance(value, int) else 5
        return Mistake(path, f"seeds are not parameters; write seeds: {count} at the top level of the spec")
    return unknown_name(path, list(task.parameters), f"a parameter of {task.name}")


def _conditions(task: Task[Any], values: Mapping[str, Any]) -> Iterator[Mistake]:
    parameters, exclude = values.get("parameters"), values.get("exclude")
    texts: dict[Path, Any] = {}
    if isinstance(parameters, dict):
        axes = {name: axis for name, axis in parameters.items() if isinstance(axis, dict)}
        texts = {("parameters", name, "when"): axis.get("when") for name, axis in axes.items()}
    if isinstance(exclude, list):
        texts |= {("exclude", i): text for i, text in enumerate(exclude)}
    else:
        texts["exclude",] = exclude
    reads: dict[str, frozenset[str]] = {}
    for path, text in texts.items():
        try:
            expression = parse_expression(text)
            unknown = sorted(expression.names - task.parameters.keys())
            yield from (_unknown_in_condition(path, name, str(text), task) for name in unknown)
            if not unknown:
                expression.holds({name: task.parameters[name].default for name in expression.names})
                reads |= {str(path[1]): expression.names} if path[0] == "parameters" else {}
        except ExpressionError as error:
            if text is not None:
                yield Mistake(path, str(error))
    for name in reads:
        if name in _reached(name, reads):
            yield Mistake(("parameters", name, "when"), f"depends on {name} itself; remove one of the conditions")


def _unknown_in_condition(path: Path, name: str, text: str, task: Task[Any]) -> Mistake:
    """An unknown name beside a parameter that takes strings is probably a string without quotes."""
    compared = [p for p in task.parameters.values() if p.type is str and re.search(rf"\b{p.name}\b", text)]
    if any(p.choices is None or name in p.choices for p in compared):
        quoted = re.sub(rf"\b{re.escape(name)}\b", repr(name), text)
        return Mistake(path, f'{name!r} is not a parameter of {task.name}; strings need quotes: "{quoted}"')
    return Mistake(path, f"{name!r} is not a parameter of {task.name}; {hint_from(name, task.parameters)}")


def _reached(name: str, reads: Mapping[str, frozenset[str]]) -> set[str]:
    """All parameters that the condition of `name` depends on, through any number of conditions."""
    reached: set[str] = set()
    ahead = set(reads[name])
    while ahead:
        at = ahead.pop()
        reached.add(at)
        ahead |= reads.get(at, frozenset()) - reached
    return reached


def _metrics(task: Task[Any], given: Any) -> Iterator[Mistake]:
    several = isinstance(given, list)
    names: list[str] = []
    for i, objective in enumerate(given if several else [given]):
        name = objective.get("name") if isinstance(objective, dict) else None
        path: Path = ("metric", i, "name") if several else ("metric", "name")
        if isinstance(name, str) and name not in task.scalars:
            yield Mistake(path, f"{name!r} is not measured by {task.name}; {hint_from(name, sorted(task.scalars))}")
        elif isinstance(name, str) and name in names:
            yield Mistake(path, f"{name!r} is listed twice; remove one")
        names.append(str(name))


def _first_cells(task: Task[Any], given: Any) -> Iterator[Mistake]:
    for i, cell in enumerate(given if isinstance(given, list) else ()):
        for name, value in cell.items() if isinstance(cell, dict) else ():
            path: Path = ("try_first", i, name)
            parameter = task.parameters.get(name)
            if parameter is None:
                yield _unknown_parameter(path, value, task)
            elif isinstance(value, Value) and (text := _problem(parameter, value)):
                yield Mistake(path, text)


def typed_parameters(draft: Draft) -> dict[str, Any]:
    """The parameters of a draft without mistakes, with every value in the type that the task declares."""
    assert draft.task is not None
    declared, typed = draft.task.parameters, dict(draft.spec.fixed())
    found: dict[str, Any] = {name: declared[name].typed(value) for name, value in typed.items()}
    for name, axis in draft.spec.axes().items():
        values = None if axis.values is None else [declared[name].typed(value) for value in axis.values]
        found[name] = axis.model_copy(update={"values": values})
    return {name: found[name] for name in draft.spec.parameters}


def typed_first_cells(draft: Draft) -> tuple[dict[str, Value], ...]:
    """The cells to try first: on the steps of their ranges, and without values that all cells share."""
    assert draft.task is not None
    axes, declared = draft.spec.axes(), draft.task.parameters
    return tuple(
        {name: ranges.nearest_value(axes[name], declared[name], value) for name, value in cell.items() if name in axes}
        for cell in draft.spec.try_first
    )
