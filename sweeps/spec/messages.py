"""Read a section of a spec into its model, and say in our words what pydantic finds wrong with it."""

import math
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from mislabel.sweeps.errors import nearest
from mislabel.sweeps.spec.document import Path, dotted, kind_of
from mislabel.sweeps.spec.model import Section

S = TypeVar("S", bound=Section)
Mistake = tuple[Path, str]

_KINDS = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "a word",
    "list_type": "a list",
}
_RULES = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def read_section(model: type[S], value: Any, path: Path) -> tuple[S | None, list[Mistake]]:
    """The section, and what is wrong with it; where something is, the section is that of the keys that are right."""
    if not isinstance(value, dict):
        return None, [(path, f"is {kind_of(value)}; write a mapping of {', '.join(model.model_fields)}")]
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        found = error.errors()
    wrong = {mistake["loc"][0] for mistake in found}
    try:
        rest = model.model_validate({key: part for key, part in value.items() if key not in wrong})
    except ValidationError:
        rest = None
    return rest, list(_told_once([_told(mistake, path, model) for mistake in found]))


def _told_once(mistakes: list[Mistake]) -> Iterator[Mistake]:
    """One mistake per place: where a value may be of several types, each of them has found its own fault with it."""
    told: dict[Path, dict[str, None]] = {}
    for where, text in mistakes:
        told.setdefault(where, {})[text] = None
    for where, (first, *others) in told.items():
        yield where, ", nor ".join([first, *(text.partition(" is not ")[2] for text in others)])


def _told(mistake: Any, path: Path, model: type[Section]) -> Mistake:
    where: Path = (*path, *[part for part in mistake["loc"] if part in model.model_fields or isinstance(part, int)])
    value, kind, limits = mistake["input"], mistake["type"], mistake.get("ctx", {})
    if kind == "extra_forbidden":
        key = str(mistake["loc"][-1])
        hint = nearest(key, model.model_fields) or f"; there are {', '.join(model.model_fields)}"
        return (*path, key), f"not a key of {dotted(path)}{hint}"
    if kind == "missing":
        return (*path, *mistake["loc"]), "is missing"
    if value is None:
        return where, "has no value"
    if kind == "literal_error":
        choices = limits["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        one_of = "one of " if len(choices) > 1 else ""
        return where, f"{value!r} is not {one_of}{', '.join(choices)}{nearest(str(value), choices)}"
    if limits.keys() & _RULES.keys():
        shown = repr(whole(value) if isinstance(value, float) else value)
        return where, "; ".join(f"{shown} is not {_RULES[name]} {bound:g}" for name, bound in limits.items())
    if kind == "too_short":
        return where, "is empty; list at least one value"
    if kind == "value_error":
        return where, str(limits["error"])
    shown = kind_of(value) if isinstance(value, dict | list) else repr(value)
    return where, f"{shown} is not {_KINDS.get(kind, mistake['msg'].lower())}"


def whole(value: float) -> int | float:
    """The number as a researcher would write it: 3, not 3.0."""
    return int(value) if math.isfinite(value) and value.is_integer() else value
