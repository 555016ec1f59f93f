"""How far a sweep is: runs, work, rate and time left."""

import time
from collections import Counter
from dataclasses import dataclass, field

from mislabel.sweeps.store.outcome import Status


@dataclass
class Progress:
    runs: int
    work: float
    """Work of the runs that were missing at the start, minus the steps that early ends saved: see Backlog.work."""
    done: int = 0
    """Runs in the store, including those of earlier launches."""
    statuses: Counter[Status] = field(default_factory=Counter)
    """How the runs of this launch ended."""
    steps_done: int = 0
    work_done: float = 0.0
    train_seconds: float = 0.0
    running: int = 0
    began: float = field(default_factory=time.monotonic)
    first_report: float | None = None
    """When the first worker reported. Workers take seconds to start."""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def run_steps_per_second(self) -> float | None:
        """The rate since the workers started; None in the first seconds."""
        return self.steps_done / self._since if self._since > 3 and self.steps_done else None

    @property
    def seconds_left(self) -> float | None:
        """Extrapolated from the work done so far; None in the first seconds."""
        known = self.run_steps_per_second is not None
        return max(0.0, (self.work - self.work_done) * self._since / self.work_done) if known else None

    @property
    def share(self) -> float:
        """The part of the work that is done, from 0 to 1."""
        return min(1.0, self.work_done / self.work) if self.work else 1.0

    @property
    def _since(self) -> float:
        return time.monotonic() - (self.first_report or time.monotonic())
