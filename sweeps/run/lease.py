"""The lease of a sweep: at most one driver runs a sweep at a time.

    <sweep>/lease/000007.json                the seventh holder

The number is the lease's generation. Each holder creates the file of the next generation exclusively, so of several
drivers that start at the same moment exactly one gets the lease. A thread renews it while its holder lives.

A holder that was paused may wake up after another one took over, between a check and a write. Checks alone therefore
protect nothing. What protects the sweep: files that a holder writes carry its generation in their name or content,
and the highest generation counts; a holder deletes a part of a table only after it has moved to a later generation.
"""

import getpass
import platform
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ValidationError

from mislabel.sweeps.errors import LeaseLostError, StoreError, SweepBusyError
from mislabel.sweeps.process import Process, numbering
from mislabel.sweeps.store.store import SweepFiles

FOLDER = "lease"
_RENEW_SECONDS = 5.0
# A holder on another machine that has not renewed its lease for this long may be dead.
_SILENT_SECONDS = 60.0
# It counts as dead if it does not renew its lease while we watch for this long.
_WATCH_SECONDS = 3 * _RENEW_SECONDS
_POLL_SECONDS = 0.5
# A holder looks for later generations before it writes, at most this often.
_CHECK_SECONDS = 2 * _RENEW_SECONDS
_ATTEMPTS = 5


class Holder(BaseModel, frozen=True):
    """Who holds a lease, as it is stored."""

    token: str
    """Differs between any two holders."""
    user: str
    host: str
    pid: int
    started: str
    numbering: str
    """Where this process has this number: see `process.numbering`."""
    taken_at: str
    beats: int = 0
    """How often the lease was renewed."""
    released: bool = False

    @classmethod
    def here(cls) -> "Holder":
        process, now = Process.own(), datetime.now(UTC).isoformat(timespec="seconds")
        return cls(
            token=uuid.uuid4().hex, user=_user(), host=platform.node(), pid=process.pid, started=process.started,
            numbering=numbering(), taken_at=now,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}, since {self.taken_at}"


class Lease:
    """The lease that this process holds on a sweep."""

    def __init__(self, files: SweepFiles, generation: int, holder: Holder) -> None:
        self._plain = files
        self._holder = holder
        self.generation = generation
        self.lost: LeaseLostError | None = None
        self._checked = _now()
        self._ended = threading.Event()
        self._renewing = threading.Lock()
        renewal = threading.Thread(target=_renew, args=(weakref.ref(self), self._ended), daemon=True)
        weakref.finalize(self, self._ended.set)
        renewal.start()

    @property
    def files(self) -> SweepFiles:
        """The sweep's files as the holder writes them. If the lease is lost, every write raises LeaseLostError."""
        return self._plain.held(self.generation, self.check)

    def check(self) -> None:
        """Raise LeaseLostError if another driver took over. Looks into the store at most every few seconds."""
        if self.lost is None and _now() - self._checked > _CHECK_SECONDS:
            self._look()
        if self.lost is not None:
            raise self.lost

    def advance(self) -> None:
        """Move to the next generation. Raises LeaseLostError if another driver took over."""
        with self._renewing:
            following = self.generation + 1
            if not _created(self._plain, following, self._holder) or not _is_newest(self._plain, following):
                self._look()
                raise self.lost or StoreError(f"{self._plain.address}/{FOLDER}: {following} can't be created")
            self._plain.remove(_file(self.generation))
            self.generation = following

    def renew(self) -> None:
        with self._renewing, suppress(StoreError):  # the next renewal comes soon
            self._look()
            if self.lost is None and not self._ended.is_set():
                self._holder = self._holder.model_copy(update={"beats": self._holder.beats + 1})
                self._plain.write_text(_file(self.generation), self._holder.model_dump_json(indent=1))

    def release(self) -> None:
        """Let others take the lease at once. Does nothing if it was released or lost."""
        with self._renewing:
            if self._ended.is_set():
                return
            self._ended.set()
            with suppress(StoreError):
                self._look()
                if self.lost is not None:
                    return
                if self._plain.read_text("spec.yaml") is None:  # nothing was run
                    self._plain.remove(_file(self.generation))
                    self._plain.remove_empty_folders(FOLDER)
                    return
                released = self._holder.model_copy(update={"released": True})
                self._plain.write_text(_file(self.generation), released.model_dump_json(indent=1))

    def _look(self) -> None:
        newest = newest_generation(self._plain)
        self._checked = _now()
        if newest > self.generation:
            self._ended.set()
            self.lost = LeaseLostError(
                f"{self._plain.name} was taken over by {_shown(holder_of(self._plain, newest))}; "
                "this process stops, and the runs that it finished are kept"
            )


def take(files: SweepFiles, take_over: bool = False) -> Lease:
    """Take the lease of the sweep. Raises SweepBusyError if a driver runs it.

    With `take_over`, also take it from a driver that runs. That driver notices before its next write and stops.
    """
    holder = Holder.here()
    for _ in range(_ATTEMPTS):
        newest = newest_generation(files)
        if newest and not take_over and is_held(files, newest):
            raise SweepBusyError(_busy(files, newest))
        following = 1 + max(newest, _newest(files, "revisions"))
        if _created(files, following, holder) and _is_newest(files, following):
            for number in _generations(files, FOLDER):
                if number < following - 1:
                    files.remove(_file(number))
            return Lease(files, following, holder)
    raise SweepBusyError(f"{files.name}: several drivers start at this moment; try again")


def is_held(files: SweepFiles, generation: int) -> bool:
    """Whether the holder of this generation runs.

    On this machine, its process answers that. Elsewhere, it runs if it renewed the lease within the last minute by the
    storage's clock, or if it renews it while we watch.
    """
    before = files.read_bytes(_file(generation))
    here = _is_held_here(holder_of(files, generation))
    if here is not None:
        return here
    age = files.age_seconds(_file(generation))
    if age is not None and 0 <= age <= _SILENT_SECONDS:
        return True
    # The storage's clock may have been set. A renewal that we see needs no clock.
    deadline = time.monotonic() + _WATCH_SECONDS
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        if newest_generation(files) > generation:
            return True
        if files.read_bytes(_file(generation)) != before:
            return not (now := holder_of(files, generation)) or not now.released
    return False


def running_among(sweeps: Sequence[SweepFiles]) -> set[str]:
    """The names of the sweeps that a driver runs, for people to see. Writes nothing.

    A lease elsewhere that looks old is watched for one renewal, because clocks of machines differ.
    """
    running, before = set(), {}
    for files in sweeps:
        generation = newest_generation(files)
        here = _is_held_here(holder_of(files, generation)) if generation else False
        age = files.apparent_age_seconds(_file(generation)) if here is None else None
        if here or (age is not None and 0 <= age <= _SILENT_SECONDS):
            running.add(files.name)
        elif here is None:
            before[files.name] = files, generation, files.read_bytes(_file(generation))
    time.sleep(_RENEW_SECONDS + 1 if before else 0)
    for name, (files, generation, data) in before.items():
        if newest_generation(files) > generation or files.read_bytes(_file(generation)) != data:
            running.add(name)
    return running


def _is_held_here(holder: Holder | None) -> bool | None:
    """Whether the holder runs; None if it is on another machine, or unknown."""
    if holder is not None and holder.released:
        return False
    if holder is not None and holder.numbering == numbering():
        return Process(holder.pid, holder.started).lives
    return None


def holder_of(files: SweepFiles, generation: int) -> Holder | None:
    """The holder of this generation; None if the file is damaged or does not exist."""
    try:
        return Holder.model_validate_json(files.read_bytes(_file(generation)) or b"")
    except ValidationError:
        return None


def newest_generation(files: SweepFiles) -> int:
    """The generation of the last lease; 0 if the sweep never had one."""
    return _newest(files, FOLDER)


def _newest(files: SweepFiles, folder: str) -> int:
    return max(_generations(files, folder), default=0)


def _generations(files: SweepFiles, folder: str) -> list[int]:
    stems = (name.partition(".")[0] for name in files.names(folder))
    return [int(stem) for stem in stems if stem.isdecimal()]


def _created(files: SweepFiles, generation: int, holder: Holder) -> bool:
    data = holder.model_dump_json(indent=1).encode()
    if files.create(_file(generation), data):
        return True
    # An earlier attempt whose answer was lost may have created it.
    found = holder_of(files, generation)
    return found is not None and found.token == holder.token


def _is_newest(files: SweepFiles, generation: int) -> bool:
    """Whether no later generation exists. If one does, remove the file of this one.

    Holders remove the files of earlier generations. So a process that was paused may create the file of a generation
    that was used and removed meanwhile.
    """
    if newest_generation(files) == generation:
        return True
    files.remove(_file(generation))
    return False


def _renew(lease: "weakref.ref[Lease]", ended: threading.Event) -> None:
    while not ended.wait(_RENEW_SECONDS):
        held = lease()
        if held is None:
            return
        held.renew()
        del held


def _busy(files: SweepFiles, generation: int) -> str:
    holder = holder_of(files, generation)
    damage = f" ({files.shown(_file(generation))} is damaged)" if holder is None else ""
    return (
        f"{files.name} is being run by {_shown(holder)}{damage}; wait for it, stop it with `mislabel stop "
        f"{files.name}`, or, if it is certainly dead, run the same command with --take-over"
    )


def _shown(holder: Holder | None) -> str:
    return "an unknown process" if holder is None else str(holder)


def _file(generation: int) -> str:
    return f"{FOLDER}/{generation:06}.json"


def _now() -> float:
    # Unlike time.monotonic, this clock also runs while the machine is suspended.
    clock: Any = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
