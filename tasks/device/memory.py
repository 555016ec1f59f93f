"""How much memory some work on tensors takes at its peak, on any device, and how it shows that there is too little."""

import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Of errors that come as RuntimeError: of the CPU's allocator, and of CUDA libraries with allocators of their own.
_SIGNS = ("can't allocate memory", "not enough memory", "STATUS_ALLOC_FAILED", "CUDA error: out of memory")


def peak_bytes(device: torch.device, work: Callable[[], object]) -> int:
    """Bytes of tensors alive at once while `work` runs. What it returns counts as alive until the end."""
    if device.type == "cuda":
        before = int(torch.cuda.memory_allocated(device))
        torch.cuda.reset_peak_memory_stats(device)
        work()
        return int(torch.cuda.max_memory_allocated(device)) - before
    watched = _Watched()
    with watched:
        work()
    return watched.peak


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is how torch or numpy say that memory does not suffice, on any device."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS)


def memory_of(device: torch.device) -> int:
    """Bytes that the device has in all."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class _Watched(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operations make, from the moment they appear until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live: int = 0
        self.peak: int = 0
        self._known: set[int] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Otherwise torch imports its whole compiler, which takes seconds.
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
