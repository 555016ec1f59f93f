"""The task contract: typed parameters, declared metrics, and three functions of an explicit state.

`init`, `advance` and `measure` work on all lanes at once and don't know their caller. Everything else (the loop,
checkpoints, dropping lanes) is written once, in `mislabel.tasks.pack`.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal

from torch import Tensor

from mislabel.tasks.lanes import Lanes, P
from mislabel.tasks.parameters import Parameter, Value, parameters_of

State = Mapping[str, Tensor]
"""Tensors with the lane axis first. Data that depend only on random draws belong in `lanes.once` instead."""


@dataclass(frozen=True)
class Metric:
    """One measured quantity.

    A metric `per` neuron (or per anything else) is an array per lane, stored only at the run's snapshots. If a metric
    `may_be_absent`, nan means that there is nothing to measure (yet), not that the run diverged.
    """

    help: str
    per: str | None = None
    may_be_absent: bool = False


def _nothing(*given: object) -> dict[str, Any]:
    """No conflicts, no data or no weights."""
    return {}


@dataclass(frozen=True)
class Task(Generic[P]):
    name: str
    params: type[P]
    metrics: Mapping[str, Metric]
    init: Callable[[Lanes[P]], State]
    advance: Callable[[Lanes[P], State, int, int], State]
    measure: Callable[[Lanes[P], State], Mapping[str, Tensor]]
    conflicts: Callable[[P], Iterable[str]] = _nothing
    """Sentences about conflicts between parameters that are each within their own bounds."""
    data: Callable[[P], Mapping[str, str]] = _nothing
    """The checksums of the data sets that a run reads, by name; raises AbsentData if one is missing."""
    weights: Callable[[Lanes[P], State], State] = _nothing
    """The trained weights of a run, lane first, by the names under which other programs load them."""
    version: int = 1
    """Raise it when the same parameters give other numbers. Results of the old version are then not reused."""
    block: int = 1
    """`advance` starts and stops only at frames and at multiples of this number."""
    largest_pack: int | None = None
    small: Mapping[str, Value] = field(default_factory=dict)
    """Settings that make a step fast, for tests; all other parameters keep their defaults."""

    @property
    def parameters(self) -> dict[str, Parameter]:
        return parameters_of(self.params)

    def names(self, kind: Literal["shape", "knob"]) -> list[str]:
        return [name for name, parameter in self.parameters.items() if parameter.kind == kind]

    @property
    def earlier(self) -> dict[str, Value]:
        """For each parameter that was added to the task later, the value that runs had before."""
        return {name: p.earlier for name, p in self.parameters.items() if p.earlier is not None}

    @property
    def has_weights(self) -> bool:
        return self.weights is not _nothing

    @property
    def scalars(self) -> list[str]:
        """The metrics with one number per lane."""
        return [name for name, metric in self.metrics.items() if metric.per is None]

    def settings(self, values: Mapping[str, Value]) -> P:
        """The task's Params from plain, valid values."""
        declared = self.parameters
        return self.params(**{name: declared[name].typed(value) for name, value in values.items()})  # type: ignore[arg-type]

    @property
    def summary(self) -> str:
        """The first line of the task module's docstring."""
        doc = sys.modules[self.init.__module__].__doc__ or self.name
        return doc.strip().splitlines()[0]
