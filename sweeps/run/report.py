"""What a worker reports of its pack."""

from dataclasses import dataclass, field

from mislabel.sweeps.store.outcome import Outcome


@dataclass(frozen=True)
class Report:
    """What a worker tells the driver: progress, and how runs ended."""

    pack: str
    run_steps: int = 0
    """Steps trained since the last report, summed over lanes."""
    train_seconds: float = 0.0
    outcomes: list[Outcome] = field(default_factory=list)
    """Of runs that have ended; where a worker died in between, some may be told twice."""
    error: str | None = None
    """Why the pack can't go on, where it failed."""
    out_of_memory: bool = False
    """True where it failed because it has more lanes than fit."""
    finished: bool = False
    halted: bool = False
    """True where the pack was checkpointed because the sweep is stopping."""
    parked: bool = False
    """True where the pack was checkpointed because it has lost so many lanes that it is to be filled up."""
    step: int = 0
    """How far a parked pack has come."""
