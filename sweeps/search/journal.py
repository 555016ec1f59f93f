"""What a search has proposed, kept in the store batch by batch, so that it can be resumed as if it had never stopped.

    <sweep>/proposals/00000.json             a batch; of a sweep with branches: proposals/<branch>/00000.json

A batch holds what had been told before it and the trials that were proposed, each with what the sampler noted on it.
Batches that can't be read are left out: their runs are in the store all the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value

_LAYOUT = 2


@dataclass(frozen=True)
class KeptTrial:
    """A proposal as it is kept."""

    values: dict[str, Value]
    """All parameters of the cell."""
    number: int | None = None
    """Of the trial in its study; None where an earlier layout did not keep it."""
    parameters: dict[str, Value] | None = None
    """What the sampler proposed: axes that lie dormant included, and groups of axes by their index."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the sampler noted on the trial."""


@dataclass(frozen=True)
class Batch:
    trials: Sequence[KeptTrial]
    told: Sequence[tuple[int, int]] = ()
    """Trials told since the batch before, by number, with the seeds that the mean was over."""
    notes: Mapping[str, Any] = field(default_factory=dict)
    """What the sampler has noted on the study since the batch before."""
    space: str = ""
    """A digest of the axes: notes hold for these alone."""
    given: int = 0
    """How many of the cells to try first have had their turn."""


class Proposals:
    """The batches of one search."""

    def __init__(self, files: SweepFiles, branch: str = "") -> None:
        self._files = files
        self._folder = f"proposals/{branch}".rstrip("/")

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """The batches that can be read, with their numbers, in order."""
        for name in self._files.names(self._folder):
            stem = name.removesuffix(".json")
            if stem.isdigit() and (batch := _batch_from(self._files.read_json(f"{self._folder}/{name}"))):
                yield int(stem), batch

    @property
    def count(self) -> int:
        """The number of the next batch: above those of all that are there, readable or not."""
        stems = [name.removesuffix(".json") for name in self._files.names(self._folder)]
        return max((int(stem) + 1 for stem in stems if stem.isdigit()), default=0)

    @property
    def earlier(self) -> list[dict[str, Any]] | None:
        """Cells of other sweeps that the search had learnt from before its first batch; None where it never began."""
        kept = self._files.read_json(f"{self._folder}/earlier.json")
        return kept if isinstance(kept, list) else None

    def keep_earlier(self, cells: Sequence[Mapping[str, Any]]) -> None:
        self._files.write_json(f"{self._folder}/earlier.json", list(cells))

    def keep(self, number: int, batch: Batch) -> None:
        trials = [vars(trial) for trial in batch.trials]
        self._files.write_json(f"{self._folder}/{number:05}.json", {"layout": _LAYOUT, **vars(batch), "trials": trials})


def _batch_from(kept: Any) -> Batch | None:
    """The batch, of this layout or of the first one, a plain list of cells; None where it is neither."""
    try:
        if isinstance(kept, list):
            return Batch([KeptTrial(dict(values)) for values in kept])
        if not isinstance(kept, dict) or kept["layout"] != _LAYOUT:
            return None
        told = tuple((int(number), int(seeds)) for number, seeds in kept["told"])
        trials = [KeptTrial(**trial) for trial in kept["trials"]]
        return Batch(trials, told, dict(kept["notes"]), str(kept["space"]), int(kept["given"]))
    except (KeyError, TypeError, ValueError):
        return None
