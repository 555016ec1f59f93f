"""The proposals of a search, stored batch by batch, so that a resumed search continues as if it had never stopped.

    <sweep>/proposals/00000.json             a batch; in a sweep with branches: proposals/<branch>/00000.json

A batch contains the results that arrived since the batch before, and the proposed trials with the sampler's notes on
them. Batches that can't be read are skipped: their runs are in the store.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value

_LAYOUT = 2


@dataclass(frozen=True)
class StoredTrial:
    values: dict[str, Value]
    """All parameters of the cell."""
    number: int
    """Optuna's number of the trial."""
    parameters: dict[str, Value]
    """What the sampler proposed, with the values of inactive axes, and with row indices of zipped axes."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the sampler noted on the trial."""


@dataclass(frozen=True)
class Batch:
    trials: list[StoredTrial]
    results: Annotated[tuple[tuple[int, int], ...], Field(alias="told")] = ()
    """Trials whose results arrived since the batch before: number of the trial, and of the seeds in its mean."""
    notes: dict[str, Any] = field(default_factory=dict)
    """What the sampler noted on the study since the batch before."""
    space: str = ""
    """A digest of the axes. Notes and parameters are used only for the same axes."""
    tried_first: Annotated[int, Field(alias="given")] = 0
    """How many cells of `try_first` are done."""


_BATCH = TypeAdapter(Batch)


class Journal:
    def __init__(self, files: SweepFiles, branch: str = "") -> None:
        self._files = files
        self._folder = f"proposals/{branch}".rstrip("/")
        stems = [name.removesuffix(".json") for name in files.names(self._folder)]
        self.next_number = max((int(stem) + 1 for stem in stems if stem.isdigit()), default=0)
        """The number of the next batch, higher than all others, readable or not."""

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """The readable batches with their numbers, in order."""
        for name in self._files.names(self._folder):
            stem = name.removesuffix(".json")
            if stem.isdigit() and (batch := _batch_from(self._files.read_json(f"{self._folder}/{name}"))):
                yield int(stem), batch

    def append(self, batch: Batch) -> None:
        stored = {"layout": _LAYOUT, **_BATCH.dump_python(batch, by_alias=True)}
        self._files.write_json(f"{self._folder}/{self.next_number:05}.json", stored)
        self.next_number += 1

    def earlier(self) -> list[dict[str, Any]] | None:
        """The cells of other sweeps that the search learned from at its start; None if it has not started."""
        stored = self._files.read_json(f"{self._folder}/earlier.json")
        return stored if isinstance(stored, list) else None

    def write_earlier(self, cells: Sequence[Mapping[str, Any]]) -> None:
        self._files.write_json(f"{self._folder}/earlier.json", list(cells))


def _batch_from(stored: Any) -> Batch | None:
    """The batch; None if it is damaged or has another layout."""
    try:
        return _BATCH.validate_python(stored) if stored["layout"] == _LAYOUT else None
    except (KeyError, TypeError, ValueError):
        return None
