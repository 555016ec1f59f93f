"""What each method can do, and what it can't: said before anything runs, with the reason.

Nothing of Optuna is needed here, so that a spec is checked without it.
"""

from mislabel.sweeps.spec.document import Path
from mislabel.sweeps.spec.model import Axis, Spec

# Optuna's CMA-ES ranks by one number and knows numbers alone.
_ONE_OBJECTIVE = ("cmaes",)
_NUMBERS_ONLY = ("cmaes",)
_POPULATIONS = ("nsga2", "nsga3")


def refusals(spec: Spec) -> list[tuple[Path, str]]:
    """What does not go together in this spec: where, and why."""
    return [*_search(spec), *_seeds(spec), *_earlier(spec)]


def _search(spec: Spec) -> list[tuple[Path, str]]:
    method, name = spec.method, spec.method.name
    found: list[tuple[Path, str]] = []
    if method.learns and not spec.metric:
        found.append((("metric",), f"is missing; {name} needs to know what to improve, such as {_EXAMPLE}"))
    if name in _ONE_OBJECTIVE and len(spec.metric) > 1:
        text = f"lists {len(spec.metric)} objectives; {name} improves one: keep one, or use tpe, gp, nsga2 or nsga3"
        found.append((("metric",), text))
    searched = {n: axis for n, axis in spec.axes().items() if not axis.grid}
    if name in _NUMBERS_ONLY and searched and not any(map(_is_range, searched.values())):
        text = f"{name} moves through ranges of numbers, and there is none; give a min and a max, or use tpe or gp"
        found.append((("method",), text))
    cells = spec.budget.cells
    if name in _POPULATIONS and cells is not None and method.population >= cells:
        text = f"{method.population} of budget.cells = {cells} leave none for a second generation; give fewer"
        found.append((("method", "population"), text))
    return found


def _seeds(spec: Spec) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    if spec.seeds.up_to is not None and len(spec.metric) != 1:
        found.append((("seeds", "up_to"), f"gives more seeds to the best by one objective; {_listed(spec)}"))
    if spec.seeds.up_to is not None and spec.seeds.up_to <= spec.seeds.count:
        text = f"{spec.seeds.up_to} is not above count, {spec.seeds.count}, which each cell has anyway"
        found.append((("seeds", "up_to"), text))
    return found


def _earlier(spec: Spec) -> list[tuple[Path, str]]:
    name = spec.method.name
    if spec.method.learns:
        return []
    found: list[tuple[Path, str]] = []
    if spec.start_from:
        found.append((("start_from",), f"{name} learns nothing from results; remove it, or use {_LEARNING}"))
    if spec.try_first and name == "grid":
        found.append((("try_first",), f"a grid runs all its cells anyway; remove it, or use random, qmc, {_LEARNING}"))
    return found


def _is_range(axis: Axis) -> bool:
    return axis.values is None


def _listed(spec: Spec) -> str:
    if not spec.metric:
        return f"give the metric, such as {_EXAMPLE}"
    return f"metric lists {len(spec.metric)}: keep one, or remove this"


_EXAMPLE = "{name: .., goal: minimize}"
_LEARNING = "tpe, gp, cmaes, nsga2 or nsga3"
