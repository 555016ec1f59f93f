"""What a search can learn from before its first proposal: cells of earlier sweeps that lie in its space."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mislabel.sweeps.cells.ranges import problem_with
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import Problem, SpecError, nearest
from mislabel.sweeps.ids import cell_id
from mislabel.sweeps.spec.model import Spec, spec_from_stored
from mislabel.sweeps.statistics import mean
from mislabel.sweeps.store.cell_means import Mean
from mislabel.sweeps.store.earlier_values import read_runs
from mislabel.sweeps.store.outcome import Status
from mislabel.sweeps.store.store import Store, SweepFiles
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task


@dataclass(frozen=True)
class Earlier:
    """A cell of another sweep, to learn from."""

    values: Mapping[str, Value]
    mean: Mean


def refuse_unknown_sweeps(spec: Spec, task: Task[Any], store: Store) -> None:
    """SpecError where a sweep to start from is not in the store, or is of another task."""
    problems = []
    names = store.names() if spec.start_from else []
    for i, name in enumerate(spec.start_from):
        place = f"start_from[{i}]"
        if name not in names:
            known = nearest(name, names) or (f"; it holds {', '.join(names[:20])}" if names else "; it is empty")
            problems.append(Problem(place, f"{name!r} is not a sweep of the store {store.address}{known}"))
            continue
        other = spec_from_stored(store.sweep(name).read_text("spec.yaml") or "")
        if other.task != task.name:
            problems.append(Problem(place, f"{name!r} is a sweep of {other.task}; only one of {task.name} can help"))
    if problems:
        raise SpecError(spec.name, problems)


def earlier_cells(sweeps: Iterable[SweepFiles], space: Space) -> list[Earlier]:
    """Cells of these sweeps with their means: those whose every parameter is as the space could propose it.

    A mean is over the seeds that ended with all objectives, be it one: an inexact start is better than none.
    """
    objectives = [objective.name for objective in space.spec.metric]
    found: dict[str, Earlier] = {}
    for files in sweeps:
        for cell, values, rows in _measured(files, space, objectives):
            if cell not in found and _lies_in(space, values):
                means = tuple(mean(column) for column in zip(*rows, strict=True))
                found[cell] = Earlier(values, Mean(means))
    return [found[cell] for cell in sorted(found)]


def _measured(
    files: SweepFiles, space: Space, objectives: list[str]
) -> Iterable[tuple[str, dict[str, Any], list[Any]]]:
    """Each cell's id, parameters and the objectives of its runs that were trained to the end."""
    names = list(space.task.parameters)
    earlier = space.task.earlier
    if not {*names, *objectives} <= {*files.columns("runs"), *earlier}:
        return
    table = read_runs(files, earlier, ["cell_id", "status", *names, *objectives])
    values: dict[str, dict[str, Any]] = {}
    rows: dict[str, list[Any]] = defaultdict(list)
    for row in table.to_pylist():
        measured = [row[name] for name in objectives]
        if row["status"] == Status.DONE and all(value is not None and math.isfinite(value) for value in measured):
            values[row["cell_id"]] = {name: row[name] for name in names}
            rows[row["cell_id"]].append(measured)
    for cell, measured in rows.items():
        # A sweep of another version of the task measured something else.
        if cell == cell_id(space.task, values[cell]):
            yield cell, values[cell], measured


def _lies_in(space: Space, values: dict[str, Any]) -> bool:
    for name, value in values.items():
        if name in space.axes and (name not in space.when or space.when[name].holds(values)):
            if problem_with(space.axes[name], space.task.parameters[name], value):
                return False
        elif value != space.base[name]:
            return False
    return not space.excludes(values)
