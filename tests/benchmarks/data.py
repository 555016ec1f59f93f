"""Data sets of benchmarks. A benchmark whose data are absent says so, with the command that fetches them."""

import sys

from mislabel.tasks.data.images import AbsentData, images


def is_fetched(name: str, instead: str = "skipped") -> bool:
    """Whether the data set is on this machine; if not, print what is done instead and how to fetch it."""
    try:
        images(name)
    except AbsentData as absent:
        print(f"  {instead}: {absent}", file=sys.stderr)
        return False
    return True
