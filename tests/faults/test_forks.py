"""Processes of the fault suite: each thread gets the exit code of its own process."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults.forks import forked


def end(code: int) -> None:
    sys.exit(code)


@pytest.mark.long
def test_threads_that_start_processes_do_not_take_each_others_exit_codes(tmp_path: Path) -> None:
    wanted = [i % 7 for i in range(300)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda i: forked(end, wanted[i], folder=tmp_path / str(i)).code, range(len(wanted)))
        assert list(found) == wanted
