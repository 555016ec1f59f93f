"""How runs ended, and the rows that say so."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from mislabel.sweeps.spec.model import Spec

Status = Literal["done", "stopped", "diverged", "failed", "lost"]
ENDED: tuple[Status, ...] = ("done", "diverged")
"""Statuses that the run's own setting determines: running it again would give the same."""


def settled(spec: Spec) -> tuple[Status, ...]:
    """Statuses of runs that need not be run again: where the sweep has a stopping rule, also what that has stopped."""
    return (*ENDED, "stopped") if spec.early_terminate else ENDED


@dataclass(frozen=True)
class Outcome:
    """One run's end, as the driver needs to know it."""

    cell: str
    seed: int
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    step: int = 0
    """The last step that was measured."""
