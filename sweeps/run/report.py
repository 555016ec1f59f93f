"""What a worker reports about its pack: one class per case."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch

from mislabel.sweeps.plan.pack_order import PackOrder
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.store.outcome import Outcome
from mislabel.tasks.device.memory import device_name, is_out_of_memory, memory_of


@dataclass(frozen=True)
class Report:
    """What a pack trained since its last report."""

    pack: str
    run_steps: int = 0
    """Steps, summed over lanes."""
    train_seconds: float = 0.0
    outcomes: Sequence[Outcome] = ()
    """Runs that ended. After the death of a worker, some are reported twice."""
    ends_pack: ClassVar = True


class Advanced(Report):
    """The pack continues."""

    ends_pack = False


class Finished(Report):
    """All runs of the pack have ended."""


class Halted(Report):
    """The pack was checkpointed because the sweep stops or makes room for another sweep."""


@dataclass(frozen=True)
class Refill(Report):
    """The pack lost many lanes and was checkpointed, so that it can be merged with others."""

    step: int = 0
    """The step of the checkpoint."""


@dataclass(frozen=True)
class _Error(Report):
    error: str = ""


class Failed(_Error):
    """The pack raised an error."""


class OutOfMemory(_Error):
    """The pack has more lanes than fit into the device's memory."""


class StoreBroken(_Error):
    """The worker could not read or write the store."""


def failure(order: PackOrder, error: Exception, device: torch.device, share: float = 1.0) -> Failed | OutOfMemory:
    """The report of a pack that raised the error; `share` is the part of the device that the pack had."""
    if not is_out_of_memory(error):
        return Failed(order.id, error=reason(error))
    runs = "one run of this shape" if len(order) == 1 else f"a pack of {len(order)} runs"
    share = min(share, 1.0) if device.type == "cuda" else 1.0
    has = f"the {share * memory_of(device) / 2**30:.1f} GiB of {device_name(device)}"
    return OutOfMemory(order.id, error=f"out of memory: {runs} needs more than {has}\n{reason(error)}")


def reason(error: BaseException) -> str:
    """The error in one line, then its traceback, as text without secrets that can always be encoded."""
    text = f"{type(error).__name__}: {error}\n{''.join(traceback.format_exception(error))}"
    return redacted(text.encode("utf-8", "replace").decode())
