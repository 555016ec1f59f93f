"""Spaces of the `bowl` task, and all their cells."""

from typing import Any

from hypothesis import assume

from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import Document
from mislabel.tasks.parameters import Value

Cell = dict[str, Value]

AXES: dict[str, Any] = {
    "x": {"min": -2, "max": 5},
    "rate": {"min": 0.001, "max": 1, "scale": "log"},
    "level": {"min": 3, "max": 9, "when": "x > 0"},
    "surface": {"values": ["smooth", "rough"]},
}


def space_of(parameters: dict[str, Any], **keys: Any) -> Space:
    spec, task = checked_spec(Document("a.yaml", {"name": "a", "task": "bowl", "parameters": parameters, **keys}))
    return Space(spec, task)


def random_space(parameters: dict[str, Any], cells: int, seed: int = 0, **keys: Any) -> Space:
    return space_of(parameters, method={"name": "random", "seed": seed}, budget={"cells": cells}, **keys)


def all_cells(space: Space) -> list[tuple[str, Cell]]:
    return [(chunk.ids[i], chunk.values(i)) for chunk in space.cells() for i in range(len(chunk))]


def accepted(values: dict[str, Any]) -> Space:
    """The space; hypothesis rejects specs that leave no cells."""
    try:
        return space_of(**values)
    except SpecError as error:
        assume({problem.path for problem in error.problems}.isdisjoint({"exclude", "parameters"}))
        raise
