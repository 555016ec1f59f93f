"""Cells of earlier sweeps that a search learns from before its first proposal."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from mislabel.sweeps.cells.ranges import problem_with
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import Problem, SpecError, nearest
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.statistics import mean
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.outcome import Status
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task

Earlier = tuple[Mapping[str, Value], Mean]
"""The parameters of a cell of another sweep, and its mean."""


def refuse_unknown_sweeps(spec: Spec, task: Task[Any], store: Store) -> None:
    """SpecError if a sweep of `start_from` is not in the store, or has another task."""
    problems = []
    names = store.names() if spec.start_from else []
    for i, name in enumerate(spec.start_from):
        place = f"start_from[{i}]"
        if name not in names:
            known = nearest(name, names) or (f"; it contains {', '.join(names[:20])}" if names else "; it is empty")
            problems.append(Problem(place, f"{name!r} is not a sweep of the store {store.address}{known}"))
            continue
        other = store.sweep(name).spec()
        if other is not None and other.task != task.name:
            problems.append(Problem(place, f"{name!r} is a sweep of {other.task}; name a sweep of {task.name}"))
    if problems:
        raise SpecError(spec.name, problems)


def earlier_cells(sweeps: Iterable[SweepFiles], space: Space) -> list[Earlier]:
    """The cells of these sweeps that the space contains, with their means.

    A mean is over the seeds that ended with all objectives, even a single one: an inexact start is better than none.
    """
    found: dict[str, Earlier] = {}
    for files in sweeps:
        for cell, (values, rows) in _measured(files, space).items():
            # Runs of another version of the task have other ids, and are not comparable.
            if cell not in found and cell == cell_id(space.task, values) and _contains(space, values):
                found[cell] = values, Mean(tuple(mean(column) for column in zip(*rows, strict=True)))
    return [found[cell] for cell in sorted(found)]


def _measured(files: SweepFiles, space: Space) -> dict[str, tuple[dict[str, Any], list[list[float]]]]:
    """For each cell, its parameters, and the objectives of its runs with status done."""
    names, earlier = list(space.task.parameters), space.task.earlier
    objectives = [objective.name for objective in space.spec.metric]
    if not {*names, *objectives} <= {*files.columns("runs"), *earlier}:
        return {}
    found: dict[str, tuple[dict[str, Any], list[list[float]]]] = {}
    for row in files.read_filled(earlier, ["cell_id", "status", *names, *objectives]).to_pylist():
        measured = [row[name] for name in objectives]
        if row["status"] == Status.DONE and all(value is not None and math.isfinite(value) for value in measured):
            _, rows = found.setdefault(row["cell_id"], ({name: row[name] for name in names}, []))
            rows.append(measured)
    return found


def _contains(space: Space, values: dict[str, Any]) -> bool:
    for name, value in values.items():
        if name in space.axes and (name not in space.when or space.when[name].holds(values)):
            if problem_with(space.axes[name], space.task.parameters[name], value):
                return False
        elif value != space.base[name]:
            return False
    return not space.excludes(values)
