"""What all tests share: a package of tiny tasks that is installed while they run, and one thread for torch."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from mislabel.sweeps.store.store import Store

# Its entry points are found through sys.path, here and in the processes that tests start.
INSTALLED = str(Path(__file__).parent / "installed")
sys.path.append(INSTALLED)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), INSTALLED]))

torch.set_num_threads(1)
hypothesis.settings.register_profile("mislabel", deadline=None, print_blob=True)
hypothesis.settings.load_profile("mislabel")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test marked data("mnist") is skipped where that data set was not fetched."""
    from mislabel.tasks.data.images import AbsentData, images

    for mark in item.iter_markers("data"):
        for name in mark.args:
            try:
                images(name)
            except AbsentData as absent:
                pytest.skip(str(absent))


@pytest.fixture
def messages() -> Iterator[list[str]]:
    """What our modules log in this test."""
    found: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, collector = logging.getLogger("mislabel"), Collector()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(collector)
    yield found
    logger.removeHandler(collector)
    logger.setLevel(level)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))
