"""Measure the peak memory of work on tensors, on any device, and recognize out-of-memory errors."""

import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Texts of out-of-memory errors that are RuntimeErrors: from the CPU's allocator and from CUDA libraries.
_SIGNS = ("can't allocate memory", "not enough memory", "STATUS_ALLOC_FAILED", "CUDA error: out of memory")


def peak_bytes(device: torch.device, work: Callable[[], object]) -> int:
    """The largest number of bytes of tensors alive while `work` runs. Its result counts as alive until the end."""
    if device.type == "cuda":
        before = int(torch.cuda.memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        work()
        return int(torch.cuda.max_memory_allocated(device)) - before
    counter = _StorageCounter()
    with counter:
        work()
    return counter.peak


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is an out-of-memory error of torch or numpy, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def memory_of(device: torch.device) -> int:
    """The total memory of the device, in bytes."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class _StorageCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations allocate, until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: int = 0
        self.peak: int = 0
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its compiler, which takes seconds.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                if storage._cdata not in self._known:
                    self._known.add(storage._cdata)
                    self.live += storage.nbytes()
                    self.peak = max(self.peak, self.live)
                    weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        return out

    def _freed(self, key: int, size: int) -> None:
        self.live -= size
        self._known.discard(key)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
