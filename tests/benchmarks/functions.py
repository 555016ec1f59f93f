"""Test functions for searches, as tasks. Searches see noisy means over seeds; the score is the value without noise."""

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mislabel.sweeps.spec.model import Spec
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, Task
from mislabel.tasks.training import Training

SEEDS = 3


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    kind: str = shape("plain", choices=("plain", "bent"), help="which of two shapes the function has")
    x0: float = knob(0.5, between=(0, 1), help="first coordinate")
    x1: float = knob(0.5, between=(0, 1), help="second coordinate")
    x2: float = knob(0.5, between=(0, 1), help="third coordinate")
    x3: float = knob(0.5, between=(0, 1), help="fourth coordinate")
    x4: float = knob(0.5, between=(0, 1), help="fifth coordinate")
    x5: float = knob(0.5, between=(0, 1), help="sixth coordinate")
    rate: float = knob(0.1, above=0, at_most=1, help="a parameter with a range over decades")
    width: int = knob(8, at_least=1, at_most=64, help="a parameter with few whole numbers")
    level: int = knob(0, between=(0, 1000), help="a parameter with many whole numbers")


def _nothing(*_: Any) -> Any:
    raise AssertionError("functions are evaluated, not trained")


TASK = Task(
    name="functions", version=1, params=Params, metrics={"f": Metric("first value"), "g": Metric("second value")},
    init=_nothing, advance=_nothing, measure=_nothing,
)  # fmt: skip

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Function:
    name: str
    dims: int
    of: Callable[[Values], tuple[float, ...]]
    noise: float
    """Standard deviation of one seed."""
    conditional: bool = False
    objectives: int = 1

    def spec(self, method: Mapping[str, Any], cells: int) -> Spec:
        parameters: dict[str, Any] = {f"x{i}": {"min": 0.0, "max": 1.0} for i in range(self.dims)}
        if self.conditional:
            parameters = {"kind": {"values": ["plain", "bent"]}, **parameters}
            parameters[f"x{self.dims - 1}"]["when"] = "kind == 'bent'"
        names = ("f", "g")[: self.objectives]
        values = {
            "name": "bench", "task": "functions", "method": method, "parameters": parameters, "seeds": {"count": SEEDS},
            "metric": [{"name": name, "goal": "minimize"} for name in names], "budget": {"cells": cells},
        }  # fmt: skip
        return Spec.model_validate(values, strict=False)

    def mean(self, values: Values, seed: int, seeds: int = SEEDS) -> tuple[float, ...]:
        """The mean over this many seeds; it depends only on the cell and the search's seed."""
        cell = zlib.crc32(repr(sorted(values.items())).encode())
        noise = np.random.default_rng([seed, cell]).normal(0, self.noise, (seeds, 2)).mean(axis=0)
        return tuple(value + float(e) for value, e in zip(self.of(values), noise, strict=False))


def branin(values: Values) -> tuple[float, ...]:
    x, y = 15 * values["x0"] - 5, 15 * values["x1"]
    bend = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return (bend**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10,)


_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(values: Values) -> tuple[float, ...]:
    x = np.array([values[f"x{i}"] for i in range(6)])
    return (float(-np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-(_A * (x - _P) ** 2).sum(axis=1))),)


def rosenbrock(values: Values) -> tuple[float, ...]:
    """On a log scale, like a loss."""
    x = np.array([4 * values[f"x{i}"] - 2 for i in range(5)])
    return (float(np.log10(1 + (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum())),)


def conditional(values: Values) -> tuple[float, ...]:
    """The better kind has a parameter that the other kind does not have."""
    bowl = 4 * (values["x0"] - 0.3) ** 2 + 4 * (values["x1"] - 0.7) ** 2
    return (bowl + (0.3 if values["kind"] == "plain" else 2 * (values["x2"] - 0.2) ** 2),)


def zdt1(values: Values) -> tuple[float, ...]:
    rest = 1 + 9 * sum(values[f"x{i}"] for i in range(1, 5)) / 4
    return values["x0"], rest * (1 - math.sqrt(values["x0"] / rest))


FUNCTIONS = {
    f.name: f
    for f in (
        Function("Branin", 2, branin, 1.0),
        Function("Hartmann 6", 6, hartmann, 0.1),
        Function("Rosenbrock 5", 5, rosenbrock, 0.1),
        Function("conditional", 3, conditional, 0.05, conditional=True),
        Function("ZDT1", 5, zdt1, 0.05, objectives=2),
    )
}


def hypervolume(points: list[tuple[float, ...]], reference: tuple[float, float] = (1.5, 10.0)) -> float:
    """The area that the points dominate, up to the reference."""
    area, lowest = 0.0, reference[1]
    for x, y in sorted((x, y) for x, y in points if x < reference[0]):
        if y < lowest:
            area += (reference[0] - x) * (lowest - y)
            lowest = y
    return area
