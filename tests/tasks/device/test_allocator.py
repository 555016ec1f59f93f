import subprocess
import sys

import pytest

from mislabel.tasks.device import allocator

_FAULTS = """
import resource
import torch
from mislabel.tasks.device import allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        torch.ones(4 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def pages():
    return int(open("/proc/self/statm").read().split()[1])

fresh = faults()
allocator.keep_freed_memory()
faults()
kept, held = faults(), pages()
allocator.return_freed_memory()
print(fresh, kept, held - pages())
"""


@pytest.mark.long
@pytest.mark.skipif(allocator._glibc() is None, reason="the C library is not glibc")
def test_freed_memory_is_reused_and_returned_at_the_end() -> None:
    said = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True).stdout
    fresh, kept, returned = map(int, said.split())
    assert kept < fresh / 5
    assert returned > 2000  # of the 4096 pages of a tensor
