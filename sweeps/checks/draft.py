"""A spec while it is being checked: its valid parts, and the mistakes found so far.

All rules run, whatever mistakes there are. A rule that needs a part which is itself wrong is skipped for that part, so
that one mistake gives one message.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.spec.condition import parse_expression
from mislabel.sweeps.spec.document import Path
from mislabel.sweeps.spec.messages import Mistake, mistakes_in
from mislabel.sweeps.spec.model import Spec
from mislabel.tasks.task import Task


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

    def space(self) -> Space:
        """The space of the cells, without parameters, groups and conditions that have a mistake."""
        assert self.task is not None
        wrong = self.wrong_parameters()
        changes = {
            "parameters": {name: part for name, part in self.spec.parameters.items() if name not in wrong},
            "zip": tuple(tuple(group) for group in self.items("zip").values() if not wrong & set(group)),
            "exclude": tuple(t for t in self.items("exclude").values() if not wrong & parse_expression(t).names),
            "try_first": tuple(self.items("try_first").values()),
        }
        return Space(self.spec.model_copy(update=changes), self.task)

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
