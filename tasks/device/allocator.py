"""Keep freed memory for the next tensors, and return it to the system when a pack has ended.

glibc returns each large block to the system when it is freed. The next operation then gets new pages, which the system
must clear: this takes a third of the time of a pack with tensors of some megabytes. On CUDA, torch has its own
allocator, which keeps freed memory.
"""

import ctypes
from functools import cache

# From glibc's <malloc.h>. Blocks below the thresholds are neither mapped separately nor trimmed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


@cache
def keep_freed_memory() -> None:
    """Keep freed memory from now on, in this process. Does nothing if the C library is not glibc."""
    glibc = _glibc()
    if glibc is not None:
        glibc.mallopt(_MMAP_THRESHOLD, _LARGEST)
        glibc.mallopt(_TRIM_THRESHOLD, _LARGEST)


def return_freed_memory() -> None:
    """Return the memory that is free now to the system."""
    glibc = _glibc()
    if glibc is not None:
        glibc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL("libc.so.6")
    except OSError:
        return None
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
