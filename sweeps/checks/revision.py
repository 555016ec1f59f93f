"""What changed between a sweep's spec and the one in the store, and whether it only adds runs.

One name is one sweep. A spec that keeps every run it had may add values, seeds or cells; any other change would leave
rows in the tables that the spec does not explain, and needs another name.
"""

import itertools
import math
from typing import Any

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.spec.model import Axis, Spec
from mislabel.tasks.task import Task


def incompatible_changes(old: Spec, new: Spec, task: Task[Any]) -> list[str]:
    """A sentence for each change that takes runs away or gives them another meaning.

    Free at any time is what only says which runs come next or when to end: a stopping rule (without it, runs that it
    stopped are run on), budgets of runs and time, `startup` and `population`, and, where a method learns, cells to try
    first and sweeps to start from: all cells that it proposed still lie in its space.
    """
    if old.task != new.task:
        return [f"task: was {old.task}, now {new.task}"]
    told = []
    if (old.method.name, old.method.seed) != (new.method.name, new.method.seed):
        told.append(f"method: was {_shown(old.method)}, now {_shown(new.method)}")
    if old.metric != new.metric and new.method.learns:
        told.append("metric: a search can't change its aim half-way")
    elif old.metric != new.metric and old.early_terminate and new.early_terminate:
        told.append("metric: runs were stopped by the old aim; remove early_terminate, so that they are run on")
    told += _parameters(old, new, task)
    added = [text for text in new.exclude if text not in old.exclude]
    if added:
        told.append(f"exclude: now also leaves out cells with {' or '.join(added)}")
    elif _draws(new) and set(old.exclude) != set(new.exclude):
        was, now = (" or ".join(spec.exclude) or "nothing" for spec in (old, new))
        told.append(f"exclude: was {was}, now {now}; {new.method.name} cells would be others")
    told += _seeds(old, new)
    was_cells, now_cells = old.budget.cells or 0, new.budget.cells or 0
    if now_cells < was_cells:
        told.append(f"budget.cells: was {was_cells}, now {now_cells}, which leaves some out")
    return told or _shares(old, new, task)


def _draws(spec: Spec) -> bool:
    """Whether its cells are draws that follow from the axes and the seed of the method alone."""
    return spec.method.name in ("random", "qmc")


def _parameters(old: Spec, new: Spec, task: Task[Any]) -> list[str]:
    defaults = {name: parameter.default for name, parameter in task.parameters.items()}
    gone = {name: part for name, part in old.parameters.items() if name not in defaults}
    told = [f"parameters.{name}: was {_shown(part)}; {task.name} no longer has it" for name, part in gone.items()]
    kept = {name: part for name, part in old.parameters.items() if name in defaults}
    whole = tuple(group for group in old.zip if not gone.keys() & set(group))
    before = Space(old.model_copy(update={"parameters": kept, "zip": whole}), task)
    after = Space(new, task)
    if _draws(new) and set(whole) != set(new.zip):
        told.append(f"zip: was {_groups(whole)}, now {_groups(new.zip)}; {new.method.name} cells would all be others")
    elif not gone:
        told += _groups_lost(before, after)
    for name in {**kept, **new.parameters}:
        was, now = kept.get(name, defaults[name]), new.parameters.get(name, defaults[name])
        if was == now:
            continue
        if _draws(new):
            text = f"was {_shown(was)}, now {_shown(now)}; {new.method.name} cells would all be others"
            told.append(f"parameters.{name}: {text}")
            continue
        lost = _lost(name, was, now, before, after)
        if lost:
            told.append(f"parameters.{name}: was {_shown(was)}, now {_shown(now)}; {lost}")
    return told


def _groups_lost(before: Space, after: Space) -> list[str]:
    """Parameters that now go together, where they had combinations that they no longer have."""
    lost = [group for group in after.zips if not _keeps(set(after.combinations(group)), before, group)]
    return [f"zip: {', '.join(group)} now go together, which leaves combinations out" for group in lost]


def _keeps(kept: set[tuple[Any, ...]], space: Space, group: tuple[str, ...]) -> bool:
    """Whether these are all the combinations that the parameters had: varied together, apart, or not at all."""
    parts = [(part, [name for name in part if name in group]) for part in space.dimensions if set(part) & set(group)]
    rows = [{tuple(row[part.index(n)] for n in names) for row in space.combinations(part)} for part, names in parts]
    if math.prod(map(len, rows)) > len(kept):
        return False
    names = [name for _, names in parts for name in names]
    had = (dict(zip(names, itertools.chain(*choice), strict=True)) for choice in itertools.product(*rows))
    return all(tuple({**space.base, **cell}[name] for name in group) in kept for cell in had)


def _lost(name: str, was: Any, now: Any, before: Space, after: Space) -> str:
    """What of the old values the new ones leave out, or nothing."""
    axes = [part if isinstance(part, Axis) else Axis(values=[part]) for part in (was, now)]
    if axes[0].when != axes[1].when:
        return "its condition is another"
    if after.spec.method.learns and axes[0].grid != axes[1].grid:
        return "the other axes would be searched in other branches"
    searched = after.spec.method.learns and not axes[1].grid
    if searched and axes[0].values is None and not axes[0].grid:
        inside = axes[1].values is None and _within(*axes)
        return "" if inside else "the old range is not within the new one"
    left = before.candidates(name) if isinstance(was, Axis) else [was]
    if searched and axes[1].values is None:
        missing = [v for v in left if ranges.problem_with(axes[1], after.task.parameters[name], v)]
    else:
        kept = set(after.candidates(name)) if isinstance(now, Axis) else {now}
        missing = [value for value in left if value not in kept]
    return f"{', '.join(map(str, missing[:5]))}{' …' if len(missing) > 5 else ''} left out" if missing else ""


def _within(was: Axis, now: Axis) -> bool:
    """Whether each value of the old range is one of the new."""
    low, high = ranges.ends_of(was)
    new_low, new_high = ranges.ends_of(now)
    if not (new_low <= low and high <= new_high and now.scale == was.scale):
        return False
    if now.step is None:
        return True
    return was.step is not None and all(
        ranges.max_that_fits(Axis(min=0.0, max=length, step=now.step)) is None
        for length in (was.step, low - new_low)
        if length
    )


def _seeds(old: Spec, new: Spec) -> list[str]:
    if not set(old.seed_range) <= set(new.seed_range):
        return [f"seeds: was {_counted(old)}, now {_counted(new)}, which leaves some out"]
    if _most_seeds(new) < _most_seeds(old):
        now = "gone" if new.seeds.up_to is None else f"now {new.seeds.up_to}"
        return [f"seeds.up_to: was {old.seeds.up_to}, {now}; some cells may have more seeds already"]
    return []


def _most_seeds(spec: Spec) -> int:
    """The last seed that a cell may have, and one."""
    return spec.seeds.first + max(spec.seeds.count, spec.seeds.up_to or 0)


def _shares(old: Spec, new: Spec, task: Task[Any]) -> list[str]:
    """What each branch is left of the budget; only of specs that agree on their branches."""
    before, after = _by_branch(old, task), _by_branch(new, task)
    for key in (key for key in before if key in after):
        was, now = before[key], after[key]
        more = (now.budget.cells or 0) - (was.budget.cells or 0)
        each = " in each branch" if len(after) > 1 else ""
        if more < 0:
            text = f"{len(after)} branches now share it, so that {was.budget.cells} cells become {now.budget.cells}"
            return [f"budget.cells: {text}{each}; raise it"]
        if not _draws(new):
            continue
        if now.try_first[: len(was.try_first)] != was.try_first:
            return ["try_first: add cells to its end alone, so that none is left out"]
        firsts = len(now.try_first) - len(was.try_first)
        if more < firsts:
            return [f"try_first: {firsts} more, which leaves drawn cells out; raise budget.cells by as many{each}"]
    return []


def _by_branch(spec: Spec, task: Task[Any]) -> dict[tuple[Any, ...], Spec]:
    return {tuple(sorted(space.branch.items())): space.spec for space in Space(spec, task).branches()}


def _shown(part: Any) -> str:
    if hasattr(part, "model_dump"):
        given = {key: value for key, value in part if value != type(part).model_fields[key].default or key == "name"}
        return "{" + ", ".join(f"{key}: {value}" for key, value in given.items()) + "}"
    return str(part)


def _counted(spec: Spec) -> str:
    return f"{spec.seeds.count} from {spec.seeds.first}"


def _groups(groups: tuple[tuple[str, ...], ...]) -> str:
    return " and ".join(", ".join(group) for group in groups) or "nothing"
