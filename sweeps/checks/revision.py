"""Compare a spec with the stored spec of the same name: a new revision may only add runs.

One name is one sweep. A new revision may add values, seeds or cells. Any other change would leave rows in the tables
that the spec does not explain; such a spec needs another name.
"""

import itertools
import math
from typing import Any

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.errors import Problem
from mislabel.sweeps.spec.model import Axis, Spec
from mislabel.tasks.task import Task


def incompatible_changes(old: Spec, new: Spec, task: Task[Any]) -> list[Problem]:
    """The changes that remove runs or change their meaning.

    Settings that only decide which runs come next or when to end may change at any time: the stopping rule (without
    it, stopped runs are continued), the budgets of runs and time, `startup` and `population`. A learning method may
    also change `try_first`, `baselines` and `start_from`, because all cells that it proposed stay in its space.
    """
    if old.task != new.task:
        return [Problem("task", f"was {old.task}, now {new.task}")]
    found = []
    if (old.method.name, old.method.seed) != (new.method.name, new.method.seed):
        found.append(_changed("method", old.method, new.method))
    if old.metric != new.metric and new.method.learns:
        found.append(Problem("metric", "a search can't change its objective"))
    elif old.metric != new.metric and old.early_terminate and new.early_terminate:
        found.append(Problem("metric", "the old one stopped some runs; remove early_terminate to continue them"))
    found += _parameters(old, new, task)
    if added := [text for text in new.exclude if text not in old.exclude]:
        found.append(Problem("exclude", f"now also removes cells with {' or '.join(added)}"))
    elif _redraws(new) and set(old.exclude) != set(new.exclude):
        was, now = (" or ".join(spec.exclude) or "nothing" for spec in (old, new))
        found.append(_changed("exclude", was, now, _redraws(new)))
    found += _seeds(old, new)
    if (new.budget.cells or 0) < (old.budget.cells or 0):
        found.append(_changed("budget.cells", old.budget.cells, new.budget.cells, "give at least as many"))
    return found or _shares(old, new, task)


def _changed(path: str, was: object, now: object, reason: str = "") -> Problem:
    return Problem(path, f"was {_shown(was)}, now {_shown(now)}{'; ' if reason else ''}{reason}")


def _redraws(new: Spec) -> str:
    """Why its axes must not change if its cells are random draws, which depend on them; else an empty string."""
    return f"{new.method.name} would draw other cells" if new.method.name in ("random", "qmc") else ""


def _parameters(old: Spec, new: Spec, task: Task[Any]) -> list[Problem]:
    defaults = {name: parameter.default for name, parameter in task.parameters.items()}
    gone = {name: part for name, part in old.parameters.items() if name not in defaults}
    found = [
        Problem(f"parameters.{n}", f"was {_shown(part)}; {task.name} no longer has it") for n, part in gone.items()
    ]
    kept = {name: part for name, part in old.parameters.items() if name in defaults}
    whole = tuple(group for group in old.zip if not gone.keys() & set(group))
    before = Space(old.model_copy(update={"parameters": kept, "zip": whole}), task)
    after = Space(new, task)
    if _redraws(new) and set(whole) != set(new.zip):
        found.append(_changed("zip", _groups(whole), _groups(new.zip), _redraws(new)))
    elif not gone:
        lost = [group for group in new.zip if not _keeps_combinations(before, after, group)]
        found += [Problem("zip", f"{', '.join(group)} are zipped now, which removes combinations") for group in lost]
    for name in {**kept, **new.parameters}:
        was, now = kept.get(name, defaults[name]), new.parameters.get(name, defaults[name])
        if was == now:
            continue
        reason = _redraws(new) or _lost(name, was, now, before, after)
        found += [_changed(f"parameters.{name}", was, now, reason)] if reason else []
    return found


def _keeps_combinations(before: Space, after: Space, group: tuple[str, ...]) -> bool:
    """Whether the zipped group has all combinations that it had before: zipped, varied independently, or fixed."""
    kept = {tuple(row.values()) for row in after.combinations(group)}
    parts = [before.combinations(part) for part in before.dimensions if set(part) & set(group)]
    choices = [{tuple(item for item in row.items() if item[0] in group) for row in rows} for rows in parts]
    if math.prod(map(len, choices)) > len(kept):
        return False
    had = ({**before.base, **dict(itertools.chain(*choice))} for choice in itertools.product(*choices))
    return all(tuple(cell[name] for name in group) in kept for cell in had)


def _lost(name: str, was: Any, now: Any, before: Space, after: Space) -> str:
    """What the new values remove, or an empty string."""
    axes = [part if isinstance(part, Axis) else Axis(values=[part]) for part in (was, now)]
    if axes[0].when != axes[1].when:
        return "its condition changed"
    if after.spec.method.learns and axes[0].grid != axes[1].grid:
        return "the branches of the search would change"
    searched = after.spec.method.learns and not axes[1].grid
    if searched and axes[0].values is None and not axes[0].grid:
        inside = axes[1].values is None and _within(*axes)
        return "" if inside else "the old range is not within the new one"
    old = before.candidates(name) if isinstance(was, Axis) else [was]
    if searched and axes[1].values is None:
        missing = [v for v in old if ranges.problem_with(axes[1], after.task.parameters[name], v)]
    else:
        kept = set(after.candidates(name)) if isinstance(now, Axis) else {now}
        missing = [value for value in old if value not in kept]
    return f"keep {ranges.shown(missing)}" if missing else ""


def _within(was: Axis, now: Axis) -> bool:
    """Whether the new range contains each value of the old one."""
    low, high = was.ends
    new_low, new_high = now.ends
    if not (new_low <= low and high <= new_high and now.scale == was.scale):
        return False
    if now.step is None:
        return True
    return was.step is not None and all(
        ranges.max_that_fits(Axis(min=0.0, max=length, step=now.step)) is None
        for length in (was.step, low - new_low)
        if length
    )


def _seeds(old: Spec, new: Spec) -> list[Problem]:
    if not set(old.seed_range) <= set(new.seed_range):
        was, now = (f"{spec.seeds.count} from {spec.seeds.first}" for spec in (old, new))
        return [_changed("seeds", was, now, "keep all old seeds")]
    old_end, new_end = (spec.seeds.first + max(spec.seeds.count, spec.seeds.up_to or 0) for spec in (old, new))
    if new_end < old_end:
        return [_changed("seeds.up_to", old.seeds.up_to, new.seeds.up_to, "some cells may have more seeds already")]
    return []


def _shares(old: Spec, new: Spec, task: Task[Any]) -> list[Problem]:
    """Branches that would get fewer cells than they had, because of more branches or more cells to try first."""
    before, after = _by_branch(old, task), _by_branch(new, task)
    each = " in each branch" if len(after) > 1 else ""
    for was, now in ((before[key], after[key]) for key in before if key in after):
        more = (now.budget.cells or 0) - (was.budget.cells or 0)
        if more < 0:
            text = f"{len(after)} branches share it now, which leaves {now.budget.cells} of {was.budget.cells} cells"
            return [Problem("budget.cells", f"{text}{each}; raise it")]
        firsts = sum(map(len, (now.try_first, now.baselines))) - sum(map(len, (was.try_first, was.baselines)))
        if _redraws(new) and any(cell not in now.baselines for cell in was.baselines):
            return [Problem("baselines", "keep all old cells")]
        if _redraws(new) and now.try_first[: len(was.try_first)] != was.try_first:
            return [Problem("try_first", "add new cells at the end")]
        if _redraws(new) and more < firsts:
            text = f"{firsts} more cells replace drawn cells; raise budget.cells by as many{each}"
            return [Problem("try_first" if now.try_first != was.try_first else "baselines", text)]
    return []


def _by_branch(spec: Spec, task: Task[Any]) -> dict[tuple[Any, ...], Spec]:
    return {tuple(sorted(space.branch.items())): space.spec for space in Space(spec, task).branches()}


def _shown(part: Any) -> str:
    if hasattr(part, "model_dump"):
        given = {key: value for key, value in part if value != type(part).model_fields[key].default or key == "name"}
        return "{" + ", ".join(f"{key}: {value}" for key, value in given.items()) + "}"
    return str(part)


def _groups(groups: tuple[tuple[str, ...], ...]) -> str:
    return " and ".join(", ".join(group) for group in groups) or "nothing"
