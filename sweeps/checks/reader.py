"""Read a spec and report every mistake in it at once, with its place, the value, the rule and what would be right."""

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.checks.rules import mistakes_between
from mislabel.sweeps.errors import Problem, SpecError, nearest
from mislabel.sweeps.spec.condition import Expression, ExpressionError, parse_expression
from mislabel.sweeps.spec.document import LARGEST_BYTES, Document, Path, kind_of, read_document
from mislabel.sweeps.spec.messages import S, read_section, whole
from mislabel.sweeps.spec.model import KEPT, LONGEST_NAME, MOST_OBJECTIVES, NAME, Axis, Objective, Section, Seeds, Spec
from mislabel.sweeps.store.store import RESERVED
from mislabel.tasks.parameters import Parameter, Value
from mislabel.tasks.registry import find_task, task_names
from mislabel.tasks.task import Task

_LARGEST_INT = 2**63 - 1


def read_spec(path: str, overrides: tuple[str, ...] = (), quick: bool = False) -> tuple[Spec, Task[Any]]:
    """The spec in that file with the `--set` overrides applied, and its task. SpecError with all that is wrong.

    `quick` applies the spec's own section of that name, which makes it small, and marks its name.
    """
    return checked_spec(opened_spec(path, overrides, quick))


def opened_spec(path: str, overrides: tuple[str, ...] = (), quick: bool = False) -> Document:
    """The spec in that file, as `read_spec` would check it."""
    file = FilePath(path)
    try:
        size = file.stat().st_size
        if size > LARGEST_BYTES:
            raise SpecError(path, [Problem("", f"{size:,} bytes; a spec has at most {LARGEST_BYTES:,}")])
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise SpecError(path, [Problem("", "is not UTF-8 text; a spec is a YAML file")]) from None
    except OSError as error:
        raise SpecError(path, [Problem("", f"can't be read: {error.strerror}")]) from None
    document = read_document(text, path)
    _take_quick(document, quick)
    for assignment in overrides:
        document.set(assignment)
    return document


def checked_spec(document: Document) -> tuple[Spec, Task[Any]]:
    check = _Check(document)
    spec = check.spec()
    if check.problems or spec is None or check.task is None:
        raise SpecError(document.source, sorted(check.problems, key=lambda p: _line(p.place)))
    return spec, check.task


def _take_quick(document: Document, apply: bool) -> None:
    """Take the section `quick` out of the document, and where it is asked for, put what it says in place."""
    changes = document.values.pop("quick", None)
    if changes is None and not apply:
        return
    if not isinstance(changes, dict) or not isinstance(changes.get("parameters", {}), dict):
        text = "says what a small version of the sweep changes, such as {seeds: 2, parameters: {steps: 100}}"
        raise SpecError(document.source, [document.problem(("quick",), text)])
    if apply:
        for key, value in changes.items():
            given = document.values.get(key) or {}
            if key != "parameters":
                document.values[key] = value
            elif isinstance(given, dict):
                document.values[key] = {**given, **value}
        for path in [path for path in document.places if path[:1] == ("quick",) and len(path) > 1]:
            document.places[path[1:]] = document.places[path]
        if isinstance(document.values.get("name"), str):
            document.values["name"] += "-quick"


class _Check:
    """Goes through a document section by section, so that a mistake in one does not hide those in the next."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.values = document.values
        self.problems: list[Problem] = []
        self.task: Task[Any] | None = None
        groups = self.values.get("zip")
        self.zipped = (
            {str(n) for group in groups if isinstance(group, list) for n in group} if isinstance(groups, list) else ()
        )

    def spec(self) -> Spec | None:
        self._unknown_keys()
        read: dict[str, Any] = {"name": self._name(), "task": self._task(), "parameters": self._parameters()}
        read["metric"] = self._objectives()
        for key in ("method", "seeds", "budget", "resources", "track", "early_terminate"):
            if key in self.values:
                read[key] = self._section(key)
        read |= {"exclude": self._exclude(), "zip": self._zip(), "try_first": self._try_first()}
        read |= {"start_from": self._start_from(), "keep": self._keep()}
        if self.problems or self.task is None:
            return None
        spec = Spec.model_construct(**read)
        for path, text in mistakes_between(spec, self.task):
            self._say(path, text)
        return spec if self.problems else spec.model_copy(update={"try_first": _as_axes_have_them(spec, self.task)})

    def _say(self, path: Path, text: str) -> None:
        self.problems.append(self.document.problem(path, text))

    def _unknown_keys(self) -> None:
        for key in self.values:
            if key not in Spec.model_fields:
                known = ", ".join(Spec.model_fields)
                self._say((key,), f"not a key of a spec{nearest(key, Spec.model_fields) or f'; it has {known}'}")

    def _name(self) -> str:
        name = self.values.get("name")
        if name is None:
            self._say(("name",), "is missing; give the sweep a name, such as noise-by-width")
        elif not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > LONGEST_NAME or name in RESERVED:
            self._say(
                ("name",),
                f"{name!r} is not a name; use at most {LONGEST_NAME} letters, digits, - and _, with single dots inside",
            )
        return str(name)

    def _task(self) -> str:
        name = self.values.get("task")
        choices = task_names()
        if name is None:
            self._say(("task",), f"is missing; there are {', '.join(choices)}")
        elif name not in choices:
            hint = nearest(str(name), choices) or f"; there are {', '.join(choices)}"
            self._say(("task",), f"{name!r} is not an installed task{hint}")
        else:
            self.task = find_task(name)
        return str(name)

    def _keep(self) -> Any:
        value, choices = self.values.get("keep", KEPT[0]), ", ".join(KEPT)
        if value not in KEPT:
            self._say(("keep",), f"{value!r} is not one of {choices}{nearest(str(value), KEPT)}")
        return value

    def _parameters(self) -> dict[str, Any]:
        given = self.values.get("parameters")
        if given is None:
            return {}
        if not isinstance(given, dict):
            self._say(("parameters",), f"is {kind_of(given)}; write a mapping of parameter names to values")
            return {}
        read: dict[str, Any] = {}
        for name, value in given.items():
            declared = self.task.parameters if self.task else {}
            if self.task and name not in declared:
                hint = nearest(name, declared) or f"; it has {', '.join(declared)}"
                self._say(("parameters", name), f"not a parameter of {self.task.name}{hint}")
            read[name] = self._parameter(name, value, declared.get(name))
        self._conditions(read)
        return read

    def _parameter(self, name: str, value: Any, parameter: Parameter | None) -> Any:
        path: Path = ("parameters", name)
        if isinstance(value, dict):
            return self._axis(path, value, parameter)
        if isinstance(value, list):
            self._say(path, f"is a list; write {{values: {value}}} to try each of them".replace("'", ""))
            return None
        if value is None:
            self._say(path, "has no value")
            return None
        return self._typed(path, value, parameter)

    def _typed(self, path: Path, value: Any, parameter: Parameter | None) -> Any:
        if parameter is None:
            return value
        problem = parameter.problem(value)
        if parameter.type is int and not problem and not -_LARGEST_INT <= value <= _LARGEST_INT:
            problem = f"{value!r} is too large for a whole number of 64 bits"
        if problem:
            self._say(path, problem)
            return value
        return parameter.typed(value)

    def _axis(self, path: Path, value: dict[str, Any], parameter: Parameter | None) -> Axis | None:
        mistakes = len(self.problems)
        axis = self._model(Axis, value, path)
        if axis is None:
            return None
        right = len(self.problems) == mistakes
        if axis.values is None and isinstance(value.get("values"), list):
            for i, listed in enumerate(value["values"]):
                if isinstance(listed, Value):
                    self._typed((*path, "values", i), listed, parameter)
        if axis.values is not None:
            if axis.min is not None or axis.max is not None:
                self._say(path, "gives both values and a range; keep one of them")
            return self._axis_of_values(path, axis, parameter)
        if axis.min is not None and axis.max is not None:
            return self._axis_of_range(path, axis, parameter)
        if right and axis.min is None and axis.max is None:
            self._say(path, "gives no values; write {values: [..]}, or {min: .., max: ..}")
        elif right:
            self._say(path, f"a range needs both ends; {'max' if axis.max is None else 'min'} is missing")
        return axis

    def _axis_of_values(self, path: Path, axis: Axis, parameter: Parameter | None) -> Axis:
        assert axis.values is not None
        typed = [self._typed((*path, "values", i), value, parameter) for i, value in enumerate(axis.values)]
        seen = set()
        for i, value in enumerate(typed):
            # Of axes that go together, the combination must differ, not each value.
            if (type(value), value) in seen and path[1] not in self.zipped:
                self._say((*path, "values", i), f"{value!r} stands twice")
            seen.add((type(value), value))
        if axis.points is not None or axis.step is not None or axis.scale != "linear":
            self._say(path, "points, step and scale belong to a range, not to a list of values")
        return axis.model_copy(update={"values": typed})

    def _axis_of_range(self, path: Path, axis: Axis, parameter: Parameter | None) -> Axis:
        assert axis.min is not None
        assert axis.max is not None
        if parameter and parameter.type in (bool, str):
            kind = "true/false" if parameter.type is bool else "words"
            self._say(path, f"{parameter.name} takes {kind}, which have no range; write {{values: [..]}}")
            return axis
        for end in ("min", "max"):
            self._typed((*path, end), whole(getattr(axis, end)), parameter)
        for key, text in ranges.range_problems(axis, parameter):
            self._say((*path, key) if key else path, text)
        return axis

    def _conditions(self, read: Mapping[str, Any]) -> None:
        """`when` reads other parameters of the task, and in no circle."""
        reads: dict[str, frozenset[str]] = {}
        for name, axis in read.items():
            if isinstance(axis, Axis) and axis.when is not None:
                expression = self._expression(axis.when, ("parameters", name, "when"))
                reads[name] = expression.names if expression else frozenset()
        for name in reads:
            if name in _reached(name, reads):
                self._say(
                    ("parameters", name, "when"), f"depends on {name} itself, directly or through other conditions"
                )

    def _exclude(self) -> tuple[str, ...]:
        given = self.values.get("exclude")
        if given is None or isinstance(given, str):
            given = [] if given is None else [given]
        if not isinstance(given, list):
            self._say(("exclude",), f"is {kind_of(given)}; write a list of conditions")
            return ()
        for i, text in enumerate(given):
            self._expression(text, ("exclude", i))
        return tuple(map(str, given))

    def _zip(self) -> tuple[tuple[str, ...], ...]:
        """Groups of names; what they may name is a matter of what goes together."""
        given = self.values.get("zip")
        if given is None:
            return ()
        if not isinstance(given, list) or not all(isinstance(group, list) for group in given):
            self._say(("zip",), "write a list of groups, such as [[dim, width]]")
            return ()
        for i, group in enumerate(given):
            for name in group:
                if not isinstance(name, str):
                    self._say(("zip", i), f"{name!r} is not the name of a parameter")
        return tuple(tuple(map(str, group)) for group in given)

    def _try_first(self) -> tuple[dict[str, Any], ...]:
        given = self.values.get("try_first")
        if given is None:
            return ()
        if not isinstance(given, list) or not all(isinstance(cell, dict) for cell in given):
            self._say(("try_first",), "write a list of cells, such as [{width: 64, rate: 0.1}]")
            return ()
        declared = self.task.parameters if self.task else {}
        cells: list[dict[str, Any]] = [{} for _ in given]
        for i, cell in enumerate(given):
            for name, value in cell.items():
                path: Path = ("try_first", i, name)
                if self.task and name not in declared:
                    self._say(path, f"not a parameter of {self.task.name}{nearest(name, declared)}")
                elif not isinstance(value, Value):
                    self._say(path, "has no value" if value is None else f"is {kind_of(value)}; write one value")
                else:
                    cells[i][name] = self._typed(path, value, declared.get(name))
        return tuple(cells)

    def _start_from(self) -> tuple[str, ...]:
        given = self.values.get("start_from")
        if given is None or isinstance(given, str):
            given = [] if given is None else [given]
        if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
            self._say(("start_from",), "write a list of names of sweeps in the store")
            return ()
        return tuple(given)

    def _expression(self, text: object, path: Path) -> Expression | None:
        try:
            expression = parse_expression(text)
        except ExpressionError as error:
            self._say(path, str(error))
            return None
        if self.task:
            declared = self.task.parameters
            for name in sorted(expression.names - declared.keys()):
                self._say(path, f"{name!r} is not a parameter of {self.task.name}{nearest(name, declared)}")
            if expression.names <= declared.keys():
                try:
                    expression.holds({name: declared[name].default for name in expression.names})
                except ExpressionError as error:
                    self._say(path, str(error))
        return expression

    def _objectives(self) -> tuple[Objective, ...]:
        given = self.values.get("metric")
        if given is None:
            return ()
        several = isinstance(given, list)
        objectives = []
        names: list[object] = []
        for i, value in enumerate(given if several else [given]):
            path: Path = ("metric", i) if several else ("metric",)
            objectives.append(self._model(Objective, value, path))
            name = value.get("name") if isinstance(value, dict) else None
            if self.task and isinstance(name, str) and name not in self.task.scalars:
                hint = nearest(name, self.task.scalars) or f"; it measures {', '.join(sorted(self.task.scalars))}"
                self._say((*path, "name"), f"{name!r} is not measured by {self.task.name}{hint}")
            elif name is not None and name in names:
                self._say((*path, "name"), f"{name!r} stands twice")
            names.append(name)
        if len(names) > MOST_OBJECTIVES:
            self._say(("metric",), f"lists {len(names)} objectives; at most {MOST_OBJECTIVES} can be weighed")
        return tuple(objective for objective in objectives if objective is not None)

    def _section(self, key: str) -> Any:
        value = self.values[key]
        if key == "seeds" and isinstance(value, int) and not isinstance(value, bool):
            value = {"count": value}
        if key == "method" and isinstance(value, str):
            value = {"name": value}
        if value is None:
            return Spec.model_fields[key].default
        if not isinstance(value, dict) and key == "seeds":
            self._say((key,), f"is {kind_of(value)}; write a number of seeds, or {{count: 20, first: 0}}")
            return Seeds()
        annotation = Spec.model_fields[key].annotation
        model = next(
            t
            for t in (annotation, *getattr(annotation, "__args__", ()))
            if isinstance(t, type) and issubclass(t, Section)
        )
        return self._model(model, value, (key,))

    def _model(self, model: type[S], value: Any, path: Path) -> S | None:
        """The section, its mistakes said; what is left of it after them is still there to be checked."""
        section, mistakes = read_section(model, value, path)
        for where, text in mistakes:
            self._say(where, text)
        return section


def _as_axes_have_them(spec: Spec, task: Task[Any]) -> tuple[dict[str, Value], ...]:
    """The cells to try first: on the steps of their ranges, and without what all cells share."""
    axes = spec.axes()
    return tuple(
        {n: ranges.nearest_value(axes[n], task.parameters[n], value) for n, value in given.items() if n in axes}
        for given in spec.try_first
    )


def _reached(name: str, reads: Mapping[str, frozenset[str]]) -> set[str]:
    """All parameters that the condition of `name` depends on, through any number of conditions."""
    reached: set[str] = set()
    ahead = set(reads[name])
    while ahead:
        at = ahead.pop()
        reached.add(at)
        ahead |= reads.get(at, frozenset()) - reached
    return reached


def _line(place: str) -> tuple[int, str]:
    number = place.removeprefix("line ").split(",")[0]
    return (int(number), "") if number.isdigit() else (1 << 30, place)
