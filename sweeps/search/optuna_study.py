"""The Optuna study of a search: it proposes cells, learns from their means, and converts cells to trials and back.

What a batch proposes depends only on the search's seed, the number of the batch and the trials in the study.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseGASampler
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from mislabel.sweeps.cells.ranges import nearest_value
from mislabel.sweeps.cells.space import Space
from mislabel.sweeps.search.journal import StoredTrial
from mislabel.sweeps.search.optuna_private import is_trusted, last_parents
from mislabel.sweeps.search.samplers import TrialWindow, contains, distribution, quietly, sampler_of, window_size
from mislabel.sweeps.store.cell_means import Mean
from mislabel.tasks.parameters import Value


class CellStudy:
    def __init__(self, space: Space) -> None:
        spec = space.spec
        self._method = spec.method
        # Samplers other than TPE would draw a conditional parameter at random forever. They get all axes; where an axis
        # does not apply, its value is ignored and the cell has the default.
        self.dimensions = Dimensions(space, conditional=spec.method.name == "tpe")
        ranks_pruned = spec.method.name == "tpe" and len(spec.metric) == 1
        self._window = TrialWindow(window_size(spec.method), ranks_pruned)
        with quietly():
            self._study = optuna.create_study(
                study_name=spec.name, storage=self._window, directions=[objective.goal for objective in spec.metric]
            )
        self._id = self._window.get_study_id_from_name(spec.name)
        self._source: list[FrozenTrial] = []
        """Trials of earlier sweeps."""
        self._notes_read = 0

    def new_notes(self) -> dict[str, Any]:
        """What samplers have noted on the study since the last call."""
        notes = list(self._window.get_study_system_attrs(self._id).items())
        first, self._notes_read = self._notes_read, len(notes)
        return dict(notes[first:])

    def restore_notes(self, notes: Mapping[str, Any]) -> None:
        for key, value in notes.items():
            self._window.set_study_system_attr(self._id, key, value)

    def trial(self, number: int) -> FrozenTrial:
        return self._window.get_trial(self._trial_id(number))

    def _trial_id(self, number: int) -> int:
        return int(self._window.get_trial_id_from_study_id_trial_number(self._id, number))

    def begin_batch(self, number: int) -> None:
        """Create the sampler of this batch, and let it read the trials that have ended."""
        seed = zlib.crc32(f"{self._method.seed}/{number}".encode())
        self._study.sampler = sampler_of(self._method, seed, self._source)
        self._window.update(self._id, seed, last_parents(self._window.get_study_system_attrs(self._id)))

    @quietly()
    def suggest(self, values: Mapping[str, Value] | None = None) -> tuple[int, dict[str, Value]]:
        """Start a trial, and return its number and its cell. The sampler chooses the axes that have no value here."""
        if values is not None:
            axes = {name: value for name, value in values.items() if name in self.dimensions.space.axes}
            self._study.enqueue_trial(self.dimensions.parameters(axes))
        trial = self._study.ask()
        return trial.number, self.dimensions.suggested(trial)

    def reject(self, number: int) -> None:
        """End a trial whose cell is not proposed."""
        self._study.tell(number, state=TrialState.FAIL)

    def finish(self, number: int, mean: Mean) -> None:
        """End a trial with its cell's mean. Without a comparable mean, it ranks below all others."""
        # `study.tell` would copy the whole trial.
        trial_id = self._trial_id(number)
        if mean.comparable:
            self._window.set_trial_state_values(trial_id, TrialState.COMPLETE, list(mean.values))
            return
        if mean.stopped_at is not None and len(mean.values) == 1:
            self._window.set_trial_intermediate_value(trial_id, mean.stopped_at, mean.values[0])
        self._window.set_trial_state_values(trial_id, TrialState.PRUNED)

    def add(self, values: Mapping[str, Value]) -> int | None:
        """Add a running trial of this cell, and return its number; None if the space does not contain the cell."""
        try:
            axes = {name: values[name] for name in self.dimensions.space.axes}
            parameters = self.dimensions.parameters(axes, dormant=True)
        except (ValueError, KeyError):
            return None
        return self._add(parameters, {})

    def add_stored(self, stored: StoredTrial, same_axes: bool) -> int | None:
        """Like `add`, for a trial of the journal. It keeps its number if all trials before it were added."""
        while len(self._window.numbers) < stored.number:
            self._study.add_trial(create_trial(state=TrialState.FAIL))
        if not same_axes:
            return self.add(stored.values)
        try:
            return self._add(stored.parameters, stored.notes if is_trusted(stored.notes) else {})
        except (ValueError, KeyError):
            return None

    def _add(self, parameters: dict[str, Any], notes: Mapping[str, Any]) -> int:
        distributions = {name: self.dimensions.distributions[name] for name in parameters}
        trial = create_trial(
            state=TrialState.RUNNING, params=parameters, distributions=distributions, system_attrs=dict(notes)
        )
        number = len(self._window.numbers)
        self._study.add_trial(trial)
        if isinstance(self._study.sampler, BaseGASampler) and not notes:
            self._study.sampler.get_trial_generation(self._study, self.trial(number))
        return number

    def add_earlier(self, values: Mapping[str, Value], mean: Mean) -> None:
        """Add a cell of an earlier sweep with its mean, if the space contains it."""
        number = self.add(values)
        if number is not None:
            self.finish(number, mean)
            self._source.append(self.trial(number))


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
        """The parameters of this cell's trial, without axes that the cell lacks; ValueError if it is not in the space.

        `dormant` adds values for axes whose condition does not hold.
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
            if values.items() <= row.items():
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
