import logging
from pathlib import Path

import pytest
from pyarrow import fs

from mislabel.sweeps.run.sweep_log import sweep_log
from mislabel.sweeps.store.filesystem import FileSystem
from mislabel.sweeps.store.store import Store, SweepFiles

LOGGER = logging.getLogger("mislabel.somewhere")


@pytest.fixture(params=["folder", "object store"])
def files(request: pytest.FixtureRequest, store: Store) -> SweepFiles:
    """A sweep in a folder, and one in a store whose files can't be appended to."""
    Path(store.address, "bowls").mkdir(parents=True)
    if request.param == "object store":
        store._fs = FileSystem(fs.SubTreeFileSystem("/", fs.LocalFileSystem()))
        assert not store._fs.is_local
    return store.sweep("bowls")


def lines(files: SweepFiles) -> list[tuple[str, str]]:
    """The level and the text of every message in the log."""
    text = files.read_text("log.txt") or ""
    return [(level, text) for _, level, text in (line.split(" ", 2) for line in text.splitlines())]


def test_every_launch_appends_its_messages(files: SweepFiles) -> None:
    for number in (1, 2):
        with sweep_log(files) as log:
            LOGGER.info("before %d", number)
            log.begin()
            LOGGER.warning("after %d", number)
            LOGGER.debug("a detail")
    assert lines(files) == [("INFO", "before 1"), ("WARNING", "after 1"), ("INFO", "before 2"), ("WARNING", "after 2")]


def fail(files: SweepFiles, begin: bool) -> None:
    with sweep_log(files) as log:
        if begin:
            log.begin()
        raise ZeroDivisionError("by zero")


def test_a_launch_that_is_refused_writes_nothing(files: SweepFiles) -> None:
    with pytest.raises(ZeroDivisionError):
        fail(files, begin=False)
    assert files.read_text("log.txt") is None


def test_the_error_that_ends_a_launch_is_logged(files: SweepFiles) -> None:
    with pytest.raises(ZeroDivisionError):
        fail(files, begin=True)
    assert lines(files) == [("ERROR", "ended by ZeroDivisionError: by zero")]


def test_a_folder_has_each_message_at_once(store: Store) -> None:
    """A driver may be killed."""
    files = store.sweep("bowls")
    files.write_text("spec.yaml", "")
    with sweep_log(files) as log:
        log.begin()
        LOGGER.info("begun")
        assert lines(files) == [("INFO", "begun")]


def test_logging_is_as_before_when_a_launch_has_ended(files: SweepFiles) -> None:
    logger = logging.getLogger("mislabel")
    before = (logger.level, list(logger.handlers))
    with sweep_log(files) as log:
        log.begin()
        assert logger.isEnabledFor(logging.INFO)
    assert (logger.level, list(logger.handlers)) == before


def test_a_secret_is_not_logged(files: SweepFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret")
    with sweep_log(files) as log:
        log.begin()
        LOGGER.warning("refused: %s", "planted-secret")
    assert lines(files) == [("WARNING", "refused: …")]
