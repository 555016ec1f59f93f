"""Find tasks by name: ours and those of other packages, through the entry point group `mislabel.tasks`."""

from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mislabel.tasks.task import Task

GROUP = "mislabel.tasks"


def task_names() -> list[str]:
    """The names of all installed tasks, without importing them."""
    return sorted({point.name for point in entry_points(group=GROUP)})


@cache
def find_task(name: str) -> "Task[Any]":
    """The task with this name; KeyError if it is not installed."""
    points = {(point.value, point) for point in entry_points(group=GROUP, name=name)}
    if not points:
        raise KeyError(name)
    if len({value for value, _ in points}) > 1:
        raise ValueError(f"task {name!r} is declared twice: {' and '.join(sorted(value for value, _ in points))}")
    task: Task[Any] = points.pop()[1].load()
    if task.name != name:
        raise ValueError(f"entry point {name!r} refers to a task with the name {task.name!r}; make them equal")
    return task
