"""How far a sweep is: runs, work, rate and time left."""

import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Progress:
    """What is shown while a sweep runs."""

    runs: int
    work: float
    """Of all runs that were missing at the start, without what early ends have spared: see Plan.work."""
    done: int = 0
    """Runs in the store, those of earlier launches included."""
    statuses: Counter[str] = field(default_factory=Counter)
    """How the runs of this launch ended."""
    steps_done: int = 0
    work_done: float = 0.0
    train_seconds: float = 0.0
    running: int = 0
    began: float = field(default_factory=time.monotonic)
    first_report: float | None = None
    """When workers, which take seconds to start, first reported."""

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def run_steps_per_second(self) -> float | None:
        """The rate since the workers run; None until it can be told."""
        return self.steps_done / self._since if self._since > 3 and self.steps_done else None

    @property
    def seconds_left(self) -> float | None:
        """As long as it took so far, by the share of the work that is left; None until it can be told."""
        if self.run_steps_per_second is None:
            return None
        return max(0.0, (self.work - self.work_done) * self._since / self.work_done)

    @property
    def share(self) -> float:
        """Of the work, what is done."""
        return min(1.0, self.work_done / self.work) if self.work else 1.0

    @property
    def _since(self) -> float:
        return time.monotonic() - (self.first_report or time.monotonic())
