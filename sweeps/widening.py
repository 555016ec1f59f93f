"""What changed between a sweep's spec and the one in the store, and whether it only adds runs.

One name is one sweep. A spec that keeps every run it had may add values, seeds or cells; any other change would leave
rows in the tables that the spec does not explain, and needs another name.
"""

from collections.abc import Mapping
from typing import Any

from sweeps.space import Space
from sweeps.spec import Axis, Spec
from tasks.task import Task


def changes_that_do_not_widen(old: Spec, new: Spec, task: Task[Any]) -> list[str]:
    """A sentence for each change that takes runs away or gives them another meaning."""
    if old.task != new.task:
        return [f"task: was {old.task}, now {new.task}"]
    told = []
    if (old.method.name, old.method.seed) != (new.method.name, new.method.seed):
        told.append(f"method: was {_shown(old.method)}, now {_shown(new.method)}")
    if new.method.name == "tpe" and old.metric != new.metric:
        told.append("metric: a search can't change its aim half-way")
    told += _parameters(old, new, task)
    added = [text for text in new.exclude if text not in old.exclude]
    if added:
        told.append(f"exclude: now also leaves out cells with {' or '.join(added)}")
    elif new.method.name == "random" and set(old.exclude) != set(new.exclude):
        was, now = (" or ".join(spec.exclude) or "nothing" for spec in (old, new))
        told.append(f"exclude: was {was}, now {now}; random cells would be others")
    if not set(old.seed_range) <= set(new.seed_range):
        told.append(f"seeds: was {_seeds(old)}, now {_seeds(new)}, which leaves some out")
    if (new.budget.cells or 0) < (old.budget.cells or 0):
        told.append(f"budget.cells: was {old.budget.cells}, now {new.budget.cells}, which leaves some out")
    return told


def _parameters(old: Spec, new: Spec, task: Task[Any]) -> list[str]:
    defaults = {name: parameter.default for name, parameter in task.parameters.items()}
    gone = {name: part for name, part in old.parameters.items() if name not in defaults}
    told = [f"parameters.{name}: was {_shown(part)}; {task.name} no longer has it" for name, part in gone.items()]
    kept = {name: part for name, part in old.parameters.items() if name in defaults}
    spaces = {"old": Space(old.model_copy(update={"parameters": kept}), task), "new": Space(new, task)}
    for name in {**kept, **new.parameters}:
        was, now = kept.get(name, defaults[name]), new.parameters.get(name, defaults[name])
        if was == now:
            continue
        if new.method.name == "random":
            told.append(f"parameters.{name}: was {_shown(was)}, now {_shown(now)}; random cells would all be others")
            continue
        lost = _lost(name, was, now, spaces)
        if lost:
            told.append(f"parameters.{name}: was {_shown(was)}, now {_shown(now)}; {lost}")
    return told


def _lost(name: str, was: Any, now: Any, spaces: Mapping[str, Space]) -> str:
    """What of the old values the new ones leave out, or nothing."""
    when_was = was.when if isinstance(was, Axis) else None
    when_now = now.when if isinstance(now, Axis) else None
    if when_was != when_now:
        return "its condition is another"
    ranged = [axis for axis in (was, now) if isinstance(axis, Axis) and axis.values is None]
    if len(ranged) == 2 and spaces["new"].spec.method.name == "tpe":
        inside = now.min <= was.min and was.max <= now.max and now.scale == was.scale
        return "" if inside else "the old range is not within the new one"
    before = spaces["old"].candidates(name) if isinstance(was, Axis) else [was]
    after = set(spaces["new"].candidates(name)) if isinstance(now, Axis) else {now}
    missing = [value for value in before if value not in after]
    return f"{', '.join(map(str, missing[:5]))}{' …' if len(missing) > 5 else ''} left out" if missing else ""


def _shown(part: Any) -> str:
    if hasattr(part, "model_dump"):
        given = {key: value for key, value in part if value != type(part).model_fields[key].default or key == "name"}
        return "{" + ", ".join(f"{key}: {value}" for key, value in given.items()) + "}"
    return str(part)


def _seeds(spec: Spec) -> str:
    return f"{spec.seeds.count} from {spec.seeds.first}"
