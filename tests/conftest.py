"""What all tests share: a package of tiny tasks that is installed while they run, and one thread for torch."""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

from mislabel.sweeps.store.store import Store
from tests import pace as bowl_pace

# Its entry points are found through sys.path, here and in the processes that tests start.
INSTALLED = str(Path(__file__).parent / "installed")
sys.path.append(INSTALLED)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), INSTALLED]))

# Read by bowls in this process and in all processes that tests start.
os.environ[bowl_pace.VARIABLE] = str(Path(tempfile.gettempdir()) / f"mislabel-bowl-pause-{os.getpid()}")

torch.set_num_threads(1)
hypothesis.settings.register_profile("mislabel", deadline=None, print_blob=True)
hypothesis.settings.register_profile("check", deadline=None, print_blob=True, max_examples=20)
hypothesis.settings.load_profile("mislabel")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--step-delay", type=float, metavar="SECONDS", help="sleep this long before every call of advance")
    parser.addoption("--train-every", type=int, metavar="N", help="train only every Nth step of long runs")


def pytest_configure(config: pytest.Config) -> None:
    """Change the speed of training here, before tasks are imported, and in the processes that tests start."""
    import training_speed  # type: ignore[import-not-found]

    from mislabel.tasks.task import Task

    for option, variable in (("--step-delay", training_speed.DELAY), ("--train-every", training_speed.EVERY)):
        if (value := config.getoption(option)) is not None:
            os.environ[variable] = str(value)
    if {training_speed.DELAY, training_speed.EVERY} & os.environ.keys():
        training_speed.change(Task)


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in its own hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one worker run each file, so that it starts a Ray or a server once. Files that do so come first.

    Tests with a group of their own are spread over the workers.
    """

    def rank(item: pytest.Item) -> int:
        return next((i for i, mark in enumerate(("ray", "server")) if item.get_closest_marker(mark)), 2)

    first: dict[str, int] = {}
    for item in items:
        file = item.path.as_posix()
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(file))
        first[file] = min(first.get(file, 2), rank(item))
    items.sort(key=lambda item: first[item.path.as_posix()])


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


@pytest.fixture
def pace() -> Iterator[bowl_pace.Pace]:
    """Slows bowls down in this process and in all processes that the test starts."""
    pace = bowl_pace.Pace(Path(os.environ[bowl_pace.VARIABLE]))
    yield pace
    pace.path.unlink(missing_ok=True)
