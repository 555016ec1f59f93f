"""What a driver leaves for the head's job when an unexpected error ends it: the error, and where it was raised."""

import json
import os
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from mislabel.sweeps.errors import TICKET
from mislabel.sweeps.redaction import redacted
from mislabel.tasks.files import write_atomically

SUFFIX = ".crash"
"""The file is beside the driver's ticket."""


@dataclass(frozen=True)
class Crash:
    error: str
    place: str

    @classmethod
    def of(cls, error: BaseException) -> "Crash":
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return cls(redacted(f"{type(error).__name__}: {error}"), place)


def note_crash(error: BaseException) -> None:
    """Write the crash of this process, if the head's queue started it."""
    ticket = os.environ.get(TICKET)
    if ticket:
        with suppress(OSError):
            write_atomically(Path(ticket).with_suffix(SUFFIX), json.dumps(asdict(Crash.of(error))).encode())


def take_crash(ticket: Path) -> Crash | None:
    """Read and remove the crash of the driver with this ticket."""
    path = ticket.with_suffix(SUFFIX)
    try:
        return Crash(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    finally:
        path.unlink(missing_ok=True)
