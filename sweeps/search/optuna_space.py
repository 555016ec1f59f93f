"""Convert between cells and the parameters of Optuna's trials."""

import json
import zlib
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from mislabel.sweeps.cells.ranges import nearest_value
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.spec.distribution import contains, distribution
from mislabel.tasks.parameters import Value


class Dimensions:
    """The dimensions of a space, with an Optuna distribution each: an axis, or the row index of zipped axes."""

    def __init__(self, space: Space, conditional: bool) -> None:
        self.space = space
        self.conditional = conditional
        """Whether an axis is proposed only where its condition holds. If not, it is proposed always, and ignored."""
        self.distributions: dict[str, BaseDistribution] = {}
        self._groups = {"+".join(group): group for group in space.dimensions}
        self._name_of = {axis: name for name, group in self._groups.items() for axis in group}
        for name, group in self._groups.items():
            if len(group) > 1:
                self.distributions[name] = CategoricalDistribution(range(len(space.candidates(group[0]))))
            else:
                self.distributions[name] = distribution(space.axes[name], space.task.parameters[name].type is int)
        described = json.dumps({name: repr(d) for name, d in self.distributions.items()})
        self.digest = f"{zlib.crc32(described.encode()):08x}"
        """Changes when an axis changes."""

    def suggested(self, trial: Trial) -> dict[str, Value]:
        """The cell that the sampler suggests. Axes that a condition reads come before the axis with the condition."""
        cell = dict(self.space.base)
        proposed: dict[str, Any] = {}
        if not self.conditional:
            proposed = {name: _suggest(trial, name, d) for name, d in self.distributions.items()}
        for axis in self.space.order:
            if self._holds(axis, cell):
                name = self._name_of[axis]
                if name not in proposed:
                    proposed[name] = _suggest(trial, name, self.distributions[name])
                cell[axis] = self._value(axis, proposed[name])
        return cell

    def parameters(self, cell: Mapping[str, Value], dormant: bool = False) -> dict[str, Any]:
        """The parameters of this cell's trial; ValueError if it is not in the space.

        Axes that the cell lacks are missing in the parameters too. `dormant` adds values for axes whose condition does
        not hold.
        """
        found: dict[str, Any] = {}
        whole = {**self.space.base, **cell}
        for name, d in self.distributions.items():
            group = self._groups[name]
            given = [axis for axis in group if axis in cell and self._holds(axis, whole)]
            if given and len(group) > 1:
                found[name] = self._row(group, {axis: cell[axis] for axis in given})
            elif given:
                found[name] = cell[name]
            elif dormant and not self.conditional:
                found[name] = d.choices[0] if isinstance(d, CategoricalDistribution) else d.low
        for name, value in found.items():
            if not contains(self.distributions[name], value):
                raise ValueError(f"{name}: {value!r} is not in the space")
        return found

    def _row(self, group: tuple[str, ...], values: Mapping[str, Value]) -> int:
        for i, row in enumerate(self.space.combinations(group)):
            if values.items() <= dict(zip(group, row, strict=True)).items():
                return i
        raise ValueError(f"{values} is not a combination of the space")

    def _holds(self, axis: str, cell: Mapping[str, Value]) -> bool:
        return axis not in self.space.when or bool(self.space.when[axis].holds(cell))

    def _value(self, axis: str, proposed: Any) -> Value:
        if self._name_of[axis] != axis:
            return self.space.candidates(axis)[int(proposed)]
        # Remove the rounding errors of Optuna's steps: they would change the cell's id.
        return nearest_value(self.space.axes[axis], self.space.task.parameters[axis], proposed)


def _suggest(trial: Trial, name: str, d: BaseDistribution) -> Any:
    if isinstance(d, CategoricalDistribution):
        return trial.suggest_categorical(name, d.choices)
    if isinstance(d, IntDistribution):
        return trial.suggest_int(name, d.low, d.high, log=d.log, step=d.step)
    assert isinstance(d, FloatDistribution)
    return trial.suggest_float(name, d.low, d.high, log=d.log, step=d.step)
