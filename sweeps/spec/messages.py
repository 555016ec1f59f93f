"""Turn what pydantic finds wrong with a spec into messages that point into the user's document."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from pydantic import ValidationError

from mislabel.sweeps.errors import closest, nearest
from mislabel.sweeps.spec.document import Path, dotted, kind_of
from mislabel.sweeps.spec.model import Section, Spec


class Mistake(NamedTuple):
    path: Path
    text: str
    meant: Path | None = None
    """For an unknown name: the path that was probably meant. It counts as wrong too, so that it is not also missing."""


_KINDS = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "a string",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
}
_SHORT_FORMS: dict[str | int, str] = {"seeds": "a number or ", "method": "a name or "}
_EXAMPLES: dict[str | int, str] = {
    "parameters": "a mapping such as {width: 64}",
    "zip": "groups such as [[dim, width]]",
    "try_first": "cells such as [{width: 64}]",
}
_LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "min_length": "at least"}
_LIMITS["max_length"] = "at most"


def mistakes_in(error: ValidationError, values: Mapping[str, Any]) -> list[Mistake]:
    """All mistakes that pydantic found in the values of a spec, one per path.

    A value that may have several types gets an error for each of them; these become one message.
    """
    found: dict[Path, list[Mistake]] = {}
    for detail in error.errors():
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # pydantic does not count items that are wrong themselves
        path = _path(detail["loc"], values)
        if detail["type"] == "extra_forbidden":
            keys = list(_section_of(path).model_fields)
            mistake = unknown_name(path, keys, f"a key of {dotted(path[:-1]) or 'a spec'}")
        else:
            mistake = Mistake(path, _text(path, detail["input"], detail["type"], detail.get("ctx", {})))
        found.setdefault(path, []).append(mistake)
    return [
        first._replace(text=", nor ".join([first.text, *(other.text.partition(" is not ")[2] for other in others)]))
        for first, *others in found.values()
    ]


def unknown_name(path: Path, choices: Sequence[str], what: str) -> Mistake:
    """The last part of the path is not `what`, such as a key of budget: none of the choices."""
    close = closest(str(path[-1]), choices)
    return Mistake(path, f"not {what}; {hint_from(str(path[-1]), choices)}", (*path[:-1], close) if close else None)


def hint_from(word: str, choices: Iterable[str]) -> str:
    """What to write instead of the word: the closest choice, or else all of them."""
    known = list(choices)
    close = closest(word, known)
    return f"did you mean {close}?" if close else f"choose from {', '.join(known)}"


def _text(path: Path, value: Any, kind: str, context: Mapping[str, Any]) -> str:
    if kind == "missing":
        return f"is missing; give {_section_of(path).model_fields[str(path[-1])].description}"
    if kind == "value_error":
        return str(context["error"])
    if value is None:
        return "has no value"
    if kind == "model_type":
        keys = ", ".join(_SECTIONS[path[0]].model_fields)
        return f"is {kind_of(value)}; write {_SHORT_FORMS.get(path[0], '')}a mapping of {keys}"
    if kind in ("too_short", "too_long"):
        limits = [f"{_LIMITS[name]} {context[name]}" for name in ("min_length", "max_length") if name in context]
        return f"has {len(value)} items; give {' and '.join(limits)}"
    if kind == "literal_error":
        choices = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        one_of = "one of " if len(choices) > 1 else ""
        return f"{_shown(value)} is not {one_of}{', '.join(choices)}{nearest(str(value), choices)}"
    limits = [f"{_LIMITS[name]} {bound:g}" for name, bound in context.items() if name in _LIMITS]
    shown = kind in ("dict_type", "tuple_type") and path[0] in _EXAMPLES
    example = f"; write {_EXAMPLES[path[0]]}" if shown else ""
    return f"{_shown(value)} is not {' and '.join(limits) or _KINDS.get(kind, 'right') + example}"


def _path(location: Sequence[str | int], values: Any) -> Path:
    """The location in the document: without pydantic's names for types, and without the index of a single item."""
    path: list[str | int] = []
    for part in location:
        inside = isinstance(values, dict) and part in values
        inside |= isinstance(values, list) and isinstance(part, int)
        if inside or part in _KEYS:
            path.append(part)
            values = values[part] if inside else None
    return tuple(path)


def _section_of(path: Path) -> type[Section]:
    """The section that the last key of the path belongs to."""
    return Spec if len(path) == 1 else _SECTIONS[path[0]]


def _section_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)


def _shown(value: Any) -> str:
    return kind_of(value) if isinstance(value, dict | list | tuple) else repr(whole(value))


def whole(value: Any) -> Any:
    """The number as a researcher would write it: 3, not 3.0."""
    return int(value) if isinstance(value, float) and math.isfinite(value) and value.is_integer() else value


_SECTIONS: dict[str | int, Any] = {name: _section_in(field.annotation) for name, field in Spec.model_fields.items()}
_KEYS = {key for section in (Spec, *filter(None, _SECTIONS.values())) for key in section.model_fields}
