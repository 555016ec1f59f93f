"""The order to train a pack, as plain values that can be sent to any worker and stored with a checkpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from mislabel.sweeps.ids import pack_id, run_id
from mislabel.tasks.parameters import Value


@dataclass(frozen=True)
class PackOrder:
    sweep: str
    task: str
    common: Mapping[str, Value]
    """Parameters that are equal in all runs, including all shape parameters."""
    columns: Mapping[str, Sequence[Value]]
    """The other parameters, with a value per run."""
    cells: Sequence[str]
    seeds: Sequence[int]
    attempt: int = 1
    resume: Sequence[str] = ()
    """Packs whose checkpoints this one continues. Their lanes that are not in this order are dropped."""
    refill: bool = False
    """Whether other runs of this shape wait. A pack that lost half of its lanes is then merged with them."""
    keep_weights: bool = False
    """Whether to store the weights of runs that are trained to the end."""
    data: Mapping[str, str] = field(default_factory=dict)
    """The sweep's data sets, with their checksums on the driver's machine. This pack need not read all of them."""
    commit: str = ""
    """The commit of the code that the driver runs."""

    def __len__(self) -> int:
        return len(self.seeds)

    @cached_property
    def run_ids(self) -> list[str]:
        return [run_id(cell, seed) for cell, seed in zip(self.cells, self.seeds, strict=True)]

    @cached_property
    def id(self) -> str:
        return pack_id(self.run_ids)

    def values(self, lane: int) -> dict[str, Value]:
        return {**self.common, **{name: column[lane] for name, column in self.columns.items()}}

    def select(self, lanes: Sequence[int], **changes: Any) -> "PackOrder":
        columns = {name: [column[i] for i in lanes] for name, column in self.columns.items()}
        cells, seeds = [self.cells[i] for i in lanes], [self.seeds[i] for i in lanes]
        return replace(self, columns=columns, cells=cells, seeds=seeds, **changes)

    def halves(self) -> "list[PackOrder]":
        """Two orders with half of the runs each, to find the run that fails."""
        middle = len(self) // 2
        return [self.select(range(middle), resume=()), self.select(range(middle, len(self)), resume=())]

    def joined(self, other: "PackOrder") -> "PackOrder":
        """One order for the runs of both, which have the same shape."""
        agree = {k: v for k, v in self.common.items() if k in other.common and other.common[k] == v}
        names = [name for name in (*self.common, *self.columns) if name not in agree]
        columns = {name: [*self._column(name), *other._column(name)] for name in names}
        return replace(
            self, common=agree, columns=columns, cells=[*self.cells, *other.cells], seeds=[*self.seeds, *other.seeds],
            attempt=max(self.attempt, other.attempt), resume=tuple(dict.fromkeys((*self.resume, *other.resume))),
        )  # fmt: skip

    def _column(self, name: str) -> Sequence[Value]:
        return self.columns[name] if name in self.columns else [self.common[name]] * len(self)
