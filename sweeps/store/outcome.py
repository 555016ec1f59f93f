"""How runs end, and why a launch of a sweep stops before all of its runs have ended."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto

from mislabel.sweeps.errors import ExitCode
from mislabel.sweeps.spec.model import Spec


class Status(StrEnum):
    """How a run ended. The values are stored in the column `status` of `runs`."""

    DONE = "done"
    STOPPED = "stopped"
    """Stopped early by the sweep's stopping rule."""
    DIVERGED = "diverged"
    """Its metrics are no longer finite."""
    FAILED = "failed"
    """It raised an error."""
    LOST = "lost"
    """Its worker died too often."""

    @property
    def has_result(self) -> bool:
        return self not in (Status.FAILED, Status.LOST)

    @property
    def rank(self) -> int:
        """If a run has several rows, the row of the highest rank counts."""
        return {"done": 2, "diverged": 2, "stopped": 1, "failed": 0, "lost": -1}[self]


WITH_RESULT = tuple(status for status in Status if status.has_result)
ENDED = (Status.DONE, Status.DIVERGED)
"""Statuses that depend on the run's parameters alone: running it again would give the same."""


def settled(spec: Spec) -> tuple[Status, ...]:
    """Statuses of runs that need not be run again. With a stopping rule, that includes stopped runs."""
    return (*ENDED, Status.STOPPED) if spec.early_terminate else ENDED


@dataclass(frozen=True)
class Outcome:
    """The end of one run, as the driver needs it."""

    cell: str
    seed: int
    status: Status
    metrics: Mapping[str, float] = field(default_factory=dict)
    step: int = 0
    """The last measured step."""


class StopCause(Enum):
    INTERRUPTED = auto()
    """A signal."""
    ASKED = auto()
    """`mislabel stop`."""
    RUNS_USED_UP = auto()
    TIME_USED_UP = auto()
    TOO_MANY_FAILURES = auto()
    STORE_FAILED = auto()


@dataclass(frozen=True)
class StopReason:
    """Why a driver stops, with the text that is shown and stored."""

    cause: StopCause
    text: str

    @property
    def exit_code(self) -> ExitCode | None:
        """How the command ends for this reason; None if that depends on how the runs ended."""
        if self.cause in (StopCause.INTERRUPTED, StopCause.ASKED):
            return ExitCode.INTERRUPTED
        return ExitCode.FAILED if self.cause is StopCause.STORE_FAILED else None


INTERRUPTED = StopReason(StopCause.INTERRUPTED, "interrupted")
ASKED = StopReason(StopCause.ASKED, "asked to by `mislabel stop`")
