"""Memory that tensors have freed is kept for the next ones, and given back to the system when a pack has ended.

glibc gives each large block back as soon as it is freed. The next operation then gets fresh pages, which the system
clears one by one: a third of the time of a pack whose tensors have some megabytes. CUDA's allocator is torch's own, and
keeps what is freed anyway.
"""

import ctypes
from functools import cache

# Of glibc's <malloc.h>. Blocks below the threshold are not mapped each by itself; free memory below it is not trimmed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 2**31 - 1


@cache
def keep_freed() -> None:
    """From now on, in this process. Does nothing where the C library is another than glibc."""
    glibc = _glibc()
    if glibc is not None:
        glibc.mallopt(_MMAP_THRESHOLD, _LARGEST)
        glibc.mallopt(_TRIM_THRESHOLD, _LARGEST)


def give_back() -> None:
    """What has been kept so far."""
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
