"""Read a YAML document into plain values with their lines, and refuse YAML features that no spec needs.

YAML 1.1 reads `1e-3` as a string, `no` as false and `017` as octal. Scalars here follow the core rules of YAML 1.2.
Tags can build objects, and anchors can make a short file grow without bound. Tags, anchors and aliases are refused.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from mislabel.sweeps.errors import Problem, SpecError

LARGEST_BYTES = 1_000_000
DEEPEST = 12

_INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(_[0-9]+)*(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LOWER_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "true": True, "false": False,
    ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan,
}  # fmt: skip
_WORDS = {word: meaning for lower, meaning in _LOWER_WORDS.items() for word in (lower, lower.title(), lower.upper())}
_WORDS[".NaN"] = math.nan

Path = tuple[str | int, ...]


@dataclass
class Document:
    """A mapping read from YAML, and the line of each of its parts."""

    source: str
    values: dict[str, Any]
    places: dict[Path, str] = field(default_factory=dict)

    def problem(self, path: Path, text: str) -> Problem:
        """A problem at the path, with the line of the smallest part of the document that contains the path."""
        line = next((self.places[path[:i]] for i in range(len(path), 0, -1) if path[:i] in self.places), "")
        return Problem(dotted(path), text, line)

    def set(self, assignment: str) -> None:
        """Apply an assignment such as `parameters.width=512`. The value is YAML; missing sections are created."""
        name, equals, text = assignment.partition("=")
        path = tuple(name.strip().split("."))
        if not equals or not all(path):
            raise SpecError("--set", [Problem(assignment, "is not an assignment; write key=value, such as seeds=5")])
        at = self.values
        for key in path[:-1]:
            if not isinstance(at.get(key), dict):
                at[key] = {}
            at = at[key]
        at[path[-1]] = read_value(text, f"--set {assignment}")
        others = {known: place for known, place in self.places.items() if known[: len(path)] != path}
        self.places = {**others, path: f"--set {assignment}"}


def dotted(path: Path) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def read_document(text: str, source: str, most_characters: int = LARGEST_BYTES) -> Document:
    """Read a document, which must be a mapping. SpecError with everything that is not allowed in YAML here."""
    places: dict[Path, str] = {}
    value = read_value(text, source, places, most_characters)
    if not isinstance(value, dict | None):
        problem = f"is {kind_of(value)}; a spec is a mapping of keys such as name and task"
        raise SpecError(source, [Problem("", problem)])
    return Document(source, value or {}, places)


def text_from_value(value: Any, flow: bool = False) -> str:
    """The value as YAML that reads back the same; with `flow`, on one line such as [1, 2]."""
    width = math.inf if flow else 120
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width, default_flow_style=flow
    )
    return text.strip() if flow else text


def kind_of(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None else f"the value {value!r}"


def read_value(
    text: str, source: str, places: dict[Path, str] | None = None, most_characters: int = LARGEST_BYTES
) -> Any:
    """Read any YAML value, and the line of each of its parts into `places`."""
    if len(text) > most_characters:
        raise SpecError(source, [Problem("", f"has {len(text):,} characters; a spec has at most {most_characters:,}")])
    try:
        events = _allowed_events(yaml.parse(text, Loader=yaml.SafeLoader), source)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or str(error).splitlines()[0]
        line = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(source, [Problem("", f"not valid YAML: {what}", line)]) from None
    if sum(isinstance(event, yaml.DocumentStartEvent) for event in events) > 1:
        raise SpecError(source, [Problem("", "contains several documents; write one spec per file")])
    nodes = iter([event for event in events if isinstance(event, yaml.NodeEvent | yaml.CollectionEndEvent)])
    problems: list[Problem] = []
    first = next(nodes, None)
    value = None if first is None else _value(first, nodes, (), {} if places is None else places, problems)
    if problems:
        raise SpecError(source, problems)
    return value


def _allowed_events(parsed: Iterable[Any], source: str) -> list[Any]:
    """The events of a document without tags, anchors and aliases; SpecError if there are any.

    Parsing stops when the nesting is too deep: PyYAML takes half a minute for 10,000 brackets.
    """
    events, problems, depth = [], [], 0
    for event in parsed:
        events.append(event)
        line = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            problems.append(Problem(f"*{event.anchor}", "aliases are not allowed; write the value out", line))
            continue
        if getattr(event, "anchor", None):
            problems.append(Problem(f"&{event.anchor}", "anchors are not allowed; write the value out", line))
        if getattr(event, "tag", None):
            problems.append(Problem(event.tag, "tags are not allowed; write a plain value", line))
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            problems.append(Problem("", f"is nested more than {DEEPEST} levels deep; write it flatter", line))
            break
    if problems:
        raise SpecError(source, problems[:20])
    return events


def _value(event: Any, nodes: Iterator[Any], path: Path, places: dict[Path, str], problems: list[Problem]) -> Any:
    places.setdefault(path, f"line {event.start_mark.line + 1}")
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event.value) if event.implicit[0] else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Any] = []
        while not isinstance(inner := next(nodes), yaml.SequenceEndEvent):
            items.append(_value(inner, nodes, (*path, len(items)), places, problems))
        return items
    mapping: dict[str, Any] = {}
    while not isinstance(key := next(nodes), yaml.MappingEndEvent):
        name = key.value if isinstance(key, yaml.ScalarEvent) else None
        line = f"line {key.start_mark.line + 1}"
        if name is None:
            problems.append(Problem(dotted(path), "a key is not a string; write a plain word", line))
            name = str(_value(key, nodes, path, places, problems))
        elif name in mapping:
            text = f"is given twice, first on {places[(*path, name)]}; remove one"
            problems.append(Problem(dotted((*path, name)), text, line))
        places.setdefault((*path, name), line)
        mapping[name] = _value(next(nodes), nodes, (*path, name), places, problems)
    return mapping


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) < 300:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return text


class _Dumper(yaml.SafeDumper):
    """PyYAML's dumper, without anchors, and with quotes around strings that this module would read as another type."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    plain = text.isprintable() and isinstance(_scalar(text), str)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _represent_string)
