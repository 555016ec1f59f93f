"""The proposals of a search, stored batch by batch, so that a resumed search continues as if it had never stopped.

    <sweep>/proposals/00000.000001.json      batch 0, written under the first lease
    <sweep>/proposals/<branch>/…             in a sweep with branches

A batch contains the results that arrived since the batch before, the proposed trials with the sampler's notes on them,
and a digest of all this. A batch that is missing or damaged is reported and skipped: the cells that were run are
recovered from the store.

A driver that was paused and replaced may still write a batch. The batches of a later lease replace those of earlier
leases from the first number that it wrote.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.parameters import Value

_log = logging.getLogger(__name__)
_LAYOUT = 2
# A damaged number must not fill the memory with trials.
_MOST_TRIALS = 1_000_000


@dataclass(frozen=True)
class StoredTrial:
    values: dict[str, Value]
    """All parameters of the cell."""
    number: Annotated[int, Field(ge=0, lt=_MOST_TRIALS)]
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
    request: int = -1
    """The number of the driver's request. Branches share a request, and the cells of a request share packs."""
    turn: int = -1
    """Counts the batches of all branches."""


@dataclass(frozen=True)
class EarlierCell:
    """A cell of another sweep that the search learned from at its start."""

    values: dict[str, Value]
    mean: tuple[float, ...]


_BATCH = TypeAdapter(Batch)
_EARLIER = TypeAdapter(list[EarlierCell])


class Journal:
    def __init__(self, files: SweepFiles, branch: str = "") -> None:
        self._files = files
        self._folder = f"proposals/{branch}".rstrip("/")
        self._remove_replaced()
        self.next_number = max((number + 1 for number, _, _ in self._stored()), default=0)
        """The number of the next batch, higher than all others, readable or not."""

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """The readable batches with their numbers, in order."""
        stored = {number: name for number, _, name in self._stored()}
        for number in range(self.next_number):
            file = f"{self._folder}/{stored.get(number, f'{number:05}.json')}"
            if batch := _batch_from(self._files.read_json(file)):
                yield number, batch
            else:
                self._report(file, "its cells are recovered from the stored runs")

    def _remove_replaced(self) -> None:
        """Remove the batches of earlier leases that do not count. Readers remove nothing."""
        kept = {name for _, _, name in self._stored()}
        for _, generation, name in self._named():
            if name not in kept and generation < self._files.generation:
                self._files.remove(f"{self._folder}/{name}")

    def _named(self) -> list[tuple[int, int, str]]:
        """Number, generation and file name of every batch."""
        found = []
        for name in self._files.names(self._folder):
            stem, _, lease = name.removesuffix(".json").partition(".")
            if stem.isdecimal() and (lease or "0").isdecimal():
                found.append((int(stem), int(lease or "0"), name))
        return found

    def _stored(self) -> list[tuple[int, int, str]]:
        """Number, generation and file name of every batch that counts."""
        found = self._named()
        first: dict[int, int] = {}
        for number, generation, _ in found:
            first[generation] = min(number, first.get(generation, number))
        return sorted(
            (number, generation, name)
            for number, generation, name in found
            if not any(number >= start for later, start in first.items() if later > generation)
        )

    def append(self, batch: Batch) -> None:
        stored = {"layout": _LAYOUT, **_BATCH.dump_python(batch, by_alias=True)}
        lease = f".{self._files.generation:06}" if self._files.generation else ""
        file = f"{self._folder}/{self.next_number:05}{lease}.json"
        self._files.write_json(file, {**stored, "digest": _digest(stored)})
        self.next_number += 1

    def adopt(self, other: "Journal", limit: int) -> list[StoredTrial]:
        """Copy the first batches of another search that makes the same proposals; at most `limit` trials.

        Returns the copied trials. Call this on an empty journal.
        """
        adopted: list[StoredTrial] = []
        for number, batch in other.batches():
            if number != self.next_number or len(adopted) + len(batch.trials) > limit:
                break
            self.append(batch)
            adopted += batch.trials
        return adopted

    def earlier(self) -> list[EarlierCell] | None:
        """The cells of other sweeps that the search learned from at its start; None if it has not started."""
        file = f"{self._folder}/earlier.json"
        if self._files.read_bytes(file) is None:
            return None
        try:
            return _EARLIER.validate_python(self._files.read_json(file))
        except ValueError:
            self._report(file, "the search learns from the cells that the other sweeps have now")
            return None

    def write_earlier(self, cells: Sequence[EarlierCell]) -> None:
        self._files.write_json(f"{self._folder}/earlier.json", _EARLIER.dump_python(list(cells)))

    def _report(self, file: str, consequence: str) -> None:
        _log.warning("%s is missing or damaged: %s", self._files.shown(file), consequence)


def _batch_from(stored: Any) -> Batch | None:
    """The batch; None if it is damaged or has another layout. Batches of earlier versions have no digest."""
    try:
        digest = stored.pop("digest", None)
        is_whole = stored["layout"] == _LAYOUT and digest in (None, _digest(stored))
        return _BATCH.validate_python(stored) if is_whole else None
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _digest(stored: Any) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True).encode()).hexdigest()[:20]
