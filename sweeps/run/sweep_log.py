"""The log of a sweep: every launch appends its log messages to `log.txt` in the sweep's folder."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from mislabel.sweeps.errors import StoreError
from mislabel.sweeps.redaction import redacted
from mislabel.sweeps.store.store import SweepFiles

FILE = "log.txt"
DETAILS = "mislabel.details"
"""Messages of this logger go to the sweep's log, and not to the screen."""


class SweepLog(logging.Handler):
    """Collects messages and writes them to the sweep's folder, without secrets.

    Nothing is written before `begin`: a launch that is refused leaves no folder. A folder then gets every message at
    once. An object store gets them at the end, because its files can't be appended to.
    """

    def __init__(self, files: SweepFiles) -> None:
        super().__init__()
        self._files = files
        self._lines: list[str] = []
        self._begun = False
        formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def begin(self) -> None:
        self._begun = True
        self._write(at_end=False)

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(redacted(f"{self.format(record)}\n"))
        self._write(at_end=False)

    def close(self) -> None:
        self._write(at_end=True)
        super().close()

    def _write(self, at_end: bool) -> None:
        if self._begun and self._lines and (at_end or self._files.is_local):
            lines, self._lines = self._lines, []
            with suppress(StoreError):  # the sweep itself reports that the store fails
                self._files.append_text(FILE, "".join(lines))


@contextmanager
def sweep_log(files: SweepFiles) -> Iterator[SweepLog]:
    """Log the messages of all our modules to the sweep's folder while the body runs, and an error that ends it."""
    log, logger = SweepLog(files), logging.getLogger("mislabel")
    level = logger.level
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    logger.addHandler(log)
    try:
        yield log
    except BaseException as error:
        text = f"ended by {type(error).__name__}: {error}"
        log.handle(logging.LogRecord(__name__, logging.ERROR, __file__, 0, text, None, None))
        raise
    finally:
        logger.removeHandler(log)
        logger.setLevel(level)
        log.close()
