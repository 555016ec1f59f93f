"""Check the cells that a spec lists: `try_first` and `baselines`."""

import math
from collections.abc import Iterator, Mapping

from mislabel.sweeps.cells import ranges
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.checks.draft import Draft
from mislabel.sweeps.spec.document import Path
from mislabel.sweeps.spec.messages import Mistake
from mislabel.tasks.parameters import Value

# Each branch is a separate search.
MOST_BRANCHES = 10_000


def first_cell_rules(draft: Draft, space: Space) -> Iterator[Mistake]:
    wrong, spec = draft.wrong_parameters(), space.spec
    for key, cells in (("try_first", spec.try_first), ("baselines", spec.baselines)):
        for at, (i, given) in enumerate(draft.items(key).items()):
            path: Path = (key, i)
            if wrong & given.keys():
                continue
            found = list(_first_cell(space, path, given))
            if key == "baselines" and not found:
                found += _open_axes(space, path, given)
            if given in cells[:at]:
                found.append(Mistake(path, "is listed twice; remove one"))
            if not found and _is_excluded(space, key, at):
                found.append(Mistake(path, "is left out by exclude; give other values"))
            yield from found
    if (
        not (spec.try_first or spec.baselines)
        or space.spec.budget.cells is None
        or not draft.sound("parameters", "zip", "exclude", "budget.cells")
    ):
        return
    for branch in space.branches():
        firsts, baselines = branch.spec.try_first, branch.spec.baselines
        tried, budget = len([*baselines, *(cell for cell in firsts if cell not in baselines)]), branch.spec.budget.cells
        if tried > (budget or 0):
            each = " in each branch" if branch.branch else ""
            text = f"lists {tried} cells, but budget.cells allows {budget}{each}; list fewer, or raise the budget"
            yield Mistake(("try_first",) if firsts else ("baselines",), text)
            return


def _open_axes(space: Space, path: Path, given: Mapping[str, Value]) -> Iterator[Mistake]:
    """A baseline is one cell, or one cell of each branch: it leaves nothing to the method."""
    whole, branches = {**space.base, **given}, space.spec.branch_axes()
    is_active = {name: name not in space.when or bool(space.when[name].holds(whole)) for name in space.axes}
    missing = [n for n in space.axes if n not in given and n not in branches and is_active[n]]
    if missing:
        yield Mistake(path, f"does not give {', '.join(missing)}; a baseline gives every parameter that varies")


def _is_excluded(space: Space, key: str, at: int) -> bool:
    if key == "try_first":
        return not len(space.first(at))
    alone = Space(space.spec.model_copy(update={"baselines": space.spec.baselines[at : at + 1]}), space.task)
    branches = math.prod(len(space.candidates(group[0])) for group in space.branch_dimensions)
    return branches <= MOST_BRANCHES and not list(alone.baselines())


def _first_cell(space: Space, path: Path, given: Mapping[str, Value]) -> Iterator[Mistake]:
    found = []
    for name, value in given.items():
        problem = None
        if name not in space.axes:
            if value != space.base[name]:
                problem = f"{value!r} is not {space.base[name]!r}, the value of all cells; remove it, or vary {name}"
        elif (space.spec.method.name == "grid" and path[0] == "baselines") or name in space.spec.branch_axes():
            if value not in space.candidates(name):
                problem = f"{value!r} is not one of its values {ranges.shown(space.candidates(name))}"
        else:
            problem = ranges.problem_with(space.axes[name], space.task.parameters[name], value)
        found += [Mistake((*path, name), problem)] if problem else []
    for group in space.spec.zip if not found else ():
        held = {name: given[name] for name in group if name in given}
        if held and not space.combinations(group, held):
            shown = ", ".join(f"{name} {value}" for name, value in held.items())
            found.append(Mistake(path, f"{shown} is not a combination in zip; give one of its combinations"))
    if not found and space.axes.keys() <= given.keys():
        cell = {**space.base, **given}
        for name in space.when:
            if not space.when[name].holds(cell) and cell[name] != space.base[name]:
                text = f"has its default {space.base[name]} unless {space.axes[name].when}; remove it"
                found.append(Mistake((*path, name), text))
    yield from found
