"""A spec while it is being checked against its task: its valid parts, and the mistakes found so far.

All rules run, whatever mistakes there are. A rule that needs a part which is itself wrong is skipped for that part, so
that one mistake gives one message. The rules for names and values read the document itself rather than the Spec, so
that a mistake in one item hides none in the next.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import ValidationError

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.condition import ExpressionError, parse_expression
from mislabel.sweeps.spec.document import Path, read_value, text_from_value
from mislabel.sweeps.spec.messages import Mistake, hint_from, mistakes_in, unknown_name, whole
from mislabel.sweeps.spec.model import Axis, Spec
from mislabel.sweeps.store.store import RESERVED
from mislabel.tasks.parameters import Parameter, Value
from mislabel.tasks.registry import find_task, task_names
from mislabel.tasks.task import Task

_LARGEST_INT = 2**63 - 1
# Each frame is a row of the store, per run, and the steps of all frames are in memory.
_MOST_FRAMES = 1_000_000


class Draft:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.mistakes: list[Mistake] = []
        self.task: Task[Any] | None = None
        try:
            self.spec = Spec.model_validate(values)
        except ValidationError as error:
            self.mistakes = mistakes_in(error, values)
            self.spec = _valid_part(values, self.mistakes)

    def add(self, mistakes: Iterable[Mistake]) -> None:
        """Add what a rule found, except where an earlier rule already found something."""
        known = {mistake.path for mistake in self.mistakes}
        self.mistakes += [mistake for mistake in list(mistakes) if mistake.path not in known]

    def sound(self, *names: str) -> bool:
        """Whether these parts, such as `budget.cells`, are free of mistakes, inside them and around them."""
        wanted = [tuple(name.split(".")) for name in names]
        pairs = [zip(path, each, strict=False) for path in self._wrong() for each in wanted]
        return not any(all(given == name for given, name in pair) for pair in pairs)

    def has_right_values(self, parameter: str) -> bool:
        """Whether the parameter's values are right; its condition may be wrong."""
        return not any(path[:2] == ("parameters", parameter) and path[2:] != ("when",) for path in self._wrong())

    def wrong_parameters(self) -> set[str]:
        """Parameters with a mistake, and those whose condition reads one of them."""
        wrong = {str(path[1]) for path in self._wrong() if path[0] == "parameters" and len(path) > 1}
        reads = {name: parse_expression(axis.when).names for name, axis in self.spec.axes().items() if axis.when}
        while more := {name for name, names in reads.items() if names & wrong} - wrong:
            wrong |= more
        return wrong

    def items(self, key: str) -> dict[int, Any]:
        """The items of a list such as `zip` that have no mistake, by their index in the document."""
        given = self.values.get(key) or []
        wrong = {path[:2] for path in self._wrong() if path[0] == key}
        items = enumerate(given if isinstance(given, list) else [given])
        return {i: item for i, item in items if not wrong & {(key,), (key, i)}}

    def space(self, task: Task[Any]) -> Space:
        """The space of the cells, without parameters, groups and conditions that have a mistake."""
        wrong = self.wrong_parameters()
        changes = {
            "parameters": {name: part for name, part in self.spec.parameters.items() if name not in wrong},
            "zip": tuple(tuple(group) for group in self.items("zip").values() if not wrong & set(group)),
            "exclude": tuple(t for t in self.items("exclude").values() if not wrong & parse_expression(t).names),
            "try_first": tuple(self.items("try_first").values()),
            "baselines": tuple(self.items("baselines").values()),
        }
        return Space(self.spec.model_copy(update=changes), task)

    def _wrong(self) -> list[Path]:
        return [path for mistake in self.mistakes for path in (mistake.path, mistake.meant) if path]


def _valid_part(values: Mapping[str, Any], mistakes: Iterable[Mistake]) -> Spec:
    """The spec without the keys that have mistakes; these get their defaults."""
    kept = {key: dict(part) if isinstance(part, dict) else part for key, part in values.items()}
    for path in (mistake.path for mistake in mistakes):
        section = kept.get(str(path[0]))
        if isinstance(section, dict) and len(path) > 1:
            section.pop(str(path[1]), None)
        else:
            kept.pop(str(path[0]), None)
    required = {"name": "unnamed", "task": "unknown"}
    try:
        return Spec.model_validate({**required, **kept})
    except ValidationError as error:  # a section lacks a key that it needs
        wrong = {detail["loc"][0] for detail in error.errors()}
        return Spec.model_validate({**required, **{key: part for key, part in kept.items() if key not in wrong}})


def task_rules(draft: Draft) -> Iterator[Mistake]:
    """Find the task of the draft, and mistakes in everything that names its parameters and metrics."""
    spec, values, names = draft.spec, draft.values, task_names()
    if draft.sound("name") and spec.name in RESERVED:
        yield Mistake(("name",), f"{spec.name!r} is a file of the store; choose another name")
    if draft.sound("task") and spec.task not in names:
        yield Mistake(("task",), f"{spec.task!r} is not an installed task; {hint_from(spec.task, names)}")
    elif draft.sound("task"):
        draft.task = task = find_task(spec.task)
        yield from _values(task, ("parameters",), values.get("parameters"))
        yield from _conditions(task, values)
        yield from _metrics(task, values.get("metric"))
        for key in ("try_first", "baselines"):
            cells = values.get(key)
            for i, cell in enumerate(cells if isinstance(cells, list) else ()):
                yield from _values(task, (key, i), cell)
        if spec.keep == "weights" and not task.has_weights:
            yield Mistake(("keep",), f"{task.name} has no weights to keep; remove keep")


def _values(task: Task[Any], path: Path, given: Any) -> Iterator[Mistake]:
    """Mistakes in a mapping of parameters to values or axes."""
    for name, value in given.items() if isinstance(given, dict) else ():
        parameter = task.parameters.get(name)
        if parameter is None and name in ("seed", "seeds"):
            count = value if isinstance(value, int) else 5
            text = f"seeds are not parameters; write seeds: {count} at the top level of the spec"
            yield Mistake((*path, name), text)
        elif parameter is None:
            yield unknown_name((*path, name), list(task.parameters), f"a parameter of {task.name}")
        elif isinstance(value, dict) and parameter.type in (bool, str) and value.keys() & {"min", "max"}:
            kind = "true or false" if parameter.type is bool else "a string"
            yield Mistake((*path, name), f"is {kind}, which has no range; write {{values: [..]}}")
        else:
            for key, each in _scalars(value).items():
                if isinstance(each, Value) and (problem := _problem(parameter, whole(each))):
                    yield Mistake((*path, name, *key), problem)


def _scalars(value: Any) -> dict[Path, Any]:
    """A value, or the values and ends of an axis, by their path inside the parameter."""
    if not isinstance(value, dict):
        return {(): value}
    listed = value.get("values")
    found: dict[Path, Any] = {("values", i): each for i, each in enumerate(listed if isinstance(listed, list) else ())}
    return {**found, ("min",): value.get("min"), ("max",): value.get("max")}


def _problem(parameter: Parameter, value: Value) -> str | None:
    problem = parameter.problem(value)
    if problem and isinstance(value, str) and "," in value:
        with suppress(SpecError):  # the parts need not be YAML
            values = [read_value(part, "") for part in value.split(",")]
            if not any(parameter.problem(each) for each in values):
                return f"{problem}; to try several values, write {{values: {text_from_value(values, flow=True)}}}"
    if parameter.type is int and not problem and abs(float(value)) > _LARGEST_INT:
        return f"{value!r} does not fit into 64 bits; give a smaller number"
    if parameter.name == "frames" and not problem and float(value) > _MOST_FRAMES:
        return f"{value!r} is more than {_MOST_FRAMES:,} measurements; give fewer"
    return problem


def _conditions(task: Task[Any], values: Mapping[str, Any]) -> Iterator[Mistake]:
    parameters, exclude = values.get("parameters"), values.get("exclude")
    texts: dict[Path, Any] = {("exclude",): exclude}
    if isinstance(exclude, list):
        texts = {("exclude", i): text for i, text in enumerate(exclude)}
    for name, axis in parameters.items() if isinstance(parameters, dict) else ():
        texts["parameters", name, "when"] = axis.get("when") if isinstance(axis, dict) else None
    reads: dict[str, frozenset[str]] = {}
    for path, text in texts.items():
        if not isinstance(text, str):
            continue
        try:
            expression = parse_expression(text)
            unknown = sorted(expression.names - task.parameters.keys())
            yield from (_unknown_in_condition(path, name, text, task) for name in unknown)
            if not unknown:
                expression.holds({name: task.parameters[name].default for name in expression.names})
                reads |= {str(path[1]): expression.names} if path[0] == "parameters" else {}
        except ExpressionError as error:
            yield Mistake(path, str(error))
    try:
        TopologicalSorter({name: sorted(names) for name, names in reads.items()}).prepare()
    except CycleError as error:
        names = error.args[1]
        text = f"conditions form a circle: {' depends on '.join(reversed(names))}; remove one of them"
        yield Mistake(("parameters", names[0], "when"), text)


def _unknown_in_condition(path: Path, name: str, text: str, task: Task[Any]) -> Mistake:
    """An unknown name beside a parameter that takes strings is probably a string without quotes."""
    compared = [p for p in task.parameters.values() if p.type is str and re.search(rf"\b{p.name}\b", text)]
    hint = hint_from(name, task.parameters)
    if any(p.choices is None or name in p.choices for p in compared):
        quoted = re.sub(rf"\b{re.escape(name)}\b", repr(name), text)
        hint = f'strings need quotes: "{quoted}"'
    return Mistake(path, f"{name!r} is not a parameter of {task.name}; {hint}")


def _metrics(task: Task[Any], given: Any) -> Iterator[Mistake]:
    several = isinstance(given, list)
    names = [each.get("name") if isinstance(each, dict) else None for each in (given if several else [given])]
    for i, name in enumerate(names):
        path: Path = ("metric", i, "name") if several else ("metric", "name")
        if isinstance(name, str) and name not in task.scalars:
            yield Mistake(path, f"{name!r} is not measured by {task.name}; {hint_from(name, sorted(task.scalars))}")
        elif isinstance(name, str) and name in names[:i]:
            yield Mistake(path, f"{name!r} is listed twice; remove one")


def typed_spec(spec: Spec, task: Task[Any]) -> Spec:
    """The spec with every value in the type that the task declares, and the listed cells on the steps of the axes."""
    declared, axes = task.parameters, spec.axes()

    def typed(name: str, part: Any) -> Any:
        if isinstance(part, Axis):
            values = part.values and [declared[name].typed(value) for value in part.values]
            return part.model_copy(update={"values": values})
        return declared[name].typed(part)

    def on_steps(cell: Mapping[str, Value]) -> dict[str, Value]:
        varied = ((name, value) for name, value in cell.items() if name in axes)
        return {name: ranges.nearest_value(axes[name], declared[name], value) for name, value in varied}

    return spec.model_copy(
        update={
            "parameters": {name: typed(name, part) for name, part in spec.parameters.items()},
            "try_first": tuple(map(on_steps, spec.try_first)),
            "baselines": tuple(map(on_steps, spec.baselines)),
        }
    )
