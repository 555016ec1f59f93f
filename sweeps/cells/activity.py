"""Which parameters a cell uses: a parameter with a condition (`when`) has its default where the condition fails.

Tables, figures, progress and MLflow show "–" there, because the default is not a choice that was made.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from mislabel.sweeps.spec.condition import Expression, parse_expression
from mislabel.sweeps.spec.model import Spec
from mislabel.tasks.parameters import Value


class Activity:
    """The conditions of a spec's parameters."""

    def __init__(self, spec: Spec) -> None:
        self.conditions: dict[str, Expression] = {
            name: parse_expression(axis.when) for name, axis in spec.axes().items() if axis.when
        }
        self.reads = sorted({name for condition in self.conditions.values() for name in condition.names})
        """The parameters that the conditions read."""

    def column(self, name: str, cells: Mapping[str, np.ndarray], count: int) -> np.ndarray:
        """Whether the parameter is active in each of these cells; `cells` has a column for each name in `reads`."""
        if name not in self.conditions:
            return np.ones(count, bool)
        return np.broadcast_to(self.conditions[name].holds(cells), (count,))

    def is_active(self, name: str, cell: Mapping[str, Value]) -> bool:
        """Whether the parameter is active in a cell with these values."""
        return name not in self.conditions or bool(self.conditions[name].holds(cell))

    def shown(self, cell: Mapping[str, Value], names: Iterable[str] | None = None) -> dict[str, Value | None]:
        """These parameters of a cell (default: all), with None for those that are inactive in it."""
        return {name: cell[name] if self.is_active(name, cell) else None for name in names or cell}
