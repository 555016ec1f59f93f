"""What a sweep needs runs out or misbehaves; one sentence says so, and the same command completes the sweep."""

import datetime
import errno
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mislabel.sweeps.process import Process
from mislabel.sweeps.store.filesystem import FileSystem
from tests.cluster.heads import until
from tests.faults import ray_kills
from tests.faults.bowl_sweeps import (
    continue_and_compare,
    exit_code_of,
    object_store,
    run_sweep,
    run_undisturbed,
    write_spec,
)
from tests.faults.forks import Ended, forked, mislabel
from tests.faults.suite import Case, scratch
from tests.faults.taps import CHANGES, WRITES, Crash, Error, Fault, Flaky, Operation, Slow

MARKS = ("server",)
YEAR_SECONDS = 365 * 86400
DISK_METHODS = ("grid", "weights", "tpe", "asha")
MOST_LAUNCHES = 50
"""How often a command is repeated on a store that fails now and then."""


def cases(full: bool) -> Iterator[Case | list[Case]]:
    with scratch("resources") as folder:
        sweeps = {method: Undisturbed(folder / method, method) for method in (DISK_METHODS if full else ("tpe",))}
        sweeps["grid"] = sweeps.get("grid") or Undisturbed(folder / "grid", "grid")
        for sweep in sweeps.values():
            yield sweep.failing_writes(full)
        grid = sweeps["grid"]
        yield [grid.small_disk(kilobytes) for kilobytes in (range(4, 260, 4) if full else range(16, 200, 60))]
        yield [grid.read_only(), grid.read_only_from_the_start()]
        yield grid.few_descriptors(full)
        yield grid.few_descriptors_to_continue(full)
        yield [grid.flaky(seed) for seed in range(20 if full else 2)]
        yield [grid.slow(every) for every in ((7, 11, 13, 17, 19) if full else (71,))]
        yield grid.clock_jumps(full)
        yield from on_object_store(folder, full)
        yield from killed_for_memory(folder / "ray", 3 if full else 0)


class Undisturbed:
    """A sweep of bowls that nothing disturbs, and cases that disturb it."""

    def __init__(self, folder: Path, method: str) -> None:
        self.method = method
        self.spec = write_spec(folder, method)
        self.store = str(folder / "undisturbed")
        self.operations = run_undisturbed(self.spec, self.store)

    def failing_writes(self, full: bool) -> list[Case]:
        """The disk is full from a write on, or for one write alone."""
        writes = [operation for operation in self.operations if operation.kind in WRITES]
        chosen = writes if full else writes[:: len(writes) // 6]
        kinds = {True: "the disk is full from each write on", False: "each write alone finds the disk full"}
        return [
            Case(
                f"{self.method}: {what} (ENOSPC)",
                str(operation),
                partial(self.disturb, Error(operation.number, errno.ENOSPC, stays)),
            )
            for stays, what in kinds.items()
            for operation in chosen
        ]

    def disturb(self, fault: Fault, folder: Path) -> None:
        store = folder / "store"
        ended = forked(run_sweep, str(self.spec), str(store), fault, folder=folder)
        one_sentence(ended, 0, 1)
        self.complete(store, folder)

    def complete(self, store: Path, folder: Path) -> None:
        """The same command completes the sweep."""
        forked(continue_and_compare, str(self.spec), str(store), self.store, folder=folder).expect(0)

    def small_disk(self, kilobytes: int) -> Case:
        def run(folder: Path) -> None:
            with mounted(folder / "disk", f"size={kilobytes}k") as disk:
                one_sentence(forked(run_sweep, str(self.spec), str(disk / "store"), folder=folder), 0, 1)
                remount(disk, "size=64m")
                self.complete(disk / "store", folder)

        return Case("grid: a file system of a few kilobytes is full", f"{kilobytes} KiB", run)

    def read_only(self) -> Case:
        """The file system becomes read-only, as Linux does after an error of the disk."""

        def run(folder: Path) -> None:
            for operation in self.operations[10::20]:
                part = folder / str(operation.number)
                fault = Error(operation.number, errno.EROFS, kinds=CHANGES)
                self.disturb(fault, part)

        return Case(
            "grid: the store becomes read-only", "at every twentieth operation", run, len(self.operations) // 20
        )

    def read_only_from_the_start(self) -> Case:
        """A finished sweep can be read, and one that is not finished can't be continued."""

        def run(folder: Path) -> None:
            with mounted(folder / "disk", "size=64m") as disk:
                store = disk / "store"
                stored = [each.number for each in self.operations if each.kind == "rename" and "/runs/" in each.path]
                fault = Error(stored[1] + 1, errno.ENOSPC)
                forked(run_sweep, str(self.spec), str(store), fault, folder=folder).expect(1)
                remount(disk, "ro")
                one_sentence(forked(run_sweep, str(self.spec), str(store), folder=folder), 1)
                for words in (("list",), ("status", "bowls"), ("results", "bowls"), ("plan", str(self.spec))):
                    forked(mislabel, *words, "--store", str(store), folder=folder).expect(0)
                remount(disk, "rw")
                self.complete(store, folder)

        return Case("grid: the store is on a read-only file system", "run, list, status, results, plan", run)

    def few_descriptors(self, full: bool) -> list[Case]:
        return [
            Case(
                "grid: no file descriptors are left",
                f"{left} left at {operation}",
                partial(self.disturb, NoDescriptors(operation.number, left)),
            )
            for operation in self.operations[:: 5 if full else 60]
            for left in ((0, 1, 2, 3) if full else (0, 2))
        ]

    def few_descriptors_to_continue(self, full: bool) -> list[Case]:
        """A launch that can't open files must not take the parts of earlier launches for damaged."""

        def run(left: int, folder: Path) -> None:
            store = folder / "store"
            crash = Crash(len(self.operations) * 2 // 3, "before")
            forked(run_sweep, str(self.spec), str(store), crash, folder=folder).expect(Crash.CODE)
            fault = NoDescriptors(1, left)
            one_sentence(forked(run_sweep, str(self.spec), str(store), fault, folder=folder), 0, 1)
            self.complete(store, folder)

        return [
            Case("grid: no file descriptors are left to continue", f"{left} left", partial(run, left))
            for left in (range(8) if full else (1, 2))
        ]

    def flaky(self, seed: int) -> Case:
        def run(folder: Path) -> None:
            store = folder / "store"
            for launch in range(MOST_LAUNCHES):
                fault = Flaky(0.1, errno.EIO, 1000 * seed + launch)
                if one_sentence(forked(run_sweep, str(self.spec), str(store), fault, folder=folder), 0, 1).code == 0:
                    break
            else:
                raise AssertionError(f"not complete after {MOST_LAUNCHES} launches")
            self.complete(store, folder)

        return Case("grid: 10 % of the operations that write fail (EIO), until a launch completes", f"seed {seed}", run)

    def slow(self, every: int) -> Case:
        def run(folder: Path) -> None:
            store = folder / "store"
            forked(run_sweep, str(self.spec), str(store), Slow(every, 5.0), folder=folder, seconds=500).expect(0)
            self.complete(store, folder)

        return Case("grid: operations take 5 s", f"each operation whose number {every} divides", run)

    def clock_jumps(self, full: bool) -> list[Case]:
        what = "grid: the clock jumps by a year"
        chosen = self.operations[:: 3 if full else 70]
        found = [
            Case(what, f"{'+' if sign > 0 else '-'} at {operation}", partial(self._jump, operation, sign))
            for operation in chosen
            for sign in (1, -1)
        ]
        crash = self.operations[len(self.operations) // 2]
        return found + [
            Case(what, f"between a crash and the next launch, {sign:+d}", partial(self._jump_between, crash, sign))
            for sign in (1, -1)
        ]

    def _jump(self, operation: Operation, sign: int, folder: Path) -> None:
        store = folder / "store"
        jump = ClockJump(operation.number, sign * YEAR_SECONDS)
        forked(run_sweep, str(self.spec), str(store), jump, folder=folder).expect(0)
        self.complete(store, folder)

    def _jump_between(self, operation: Operation, sign: int, folder: Path) -> None:
        store = folder / "store"
        forked(run_sweep, str(self.spec), str(store), Error(operation.number, errno.EIO), folder=folder).expect(1)
        forked(run_with_clock, sign * YEAR_SECONDS, str(self.spec), str(store), folder=folder).expect(0)
        self.complete(store, folder)


def on_object_store(folder: Path, full: bool) -> Iterator[Case | list[Case]]:
    """Requests that fail temporarily are repeated, so one launch completes the sweep."""
    what = "grid, store in an S3 bucket: "
    faults = {"10 % of the requests fail": (0.1, 0.0), "10 % of the requests take 5 s": (0.0, 5.0)}
    try:
        with object_store(folder / "objects") as server:
            spec = write_spec(folder / "grid-objects", "grid")
            undisturbed = server.address("undisturbed")
            run_undisturbed(spec, undisturbed, seconds=300)

            def run(share: float, pause: float, seed: int, folder: Path) -> None:
                store = server.address(folder.name)
                words = (str(spec), store, share, pause, seed)
                forked(run_on_unreliable_requests, *words, folder=folder, seconds=900).expect(0)
                forked(continue_and_compare, str(spec), store, undisturbed, folder=folder, seconds=300).expect(0)

            yield [
                Case(what + fault, f"seed {seed}", partial(run, *how, seed), seconds=1200)
                for fault, how in faults.items()
                for seed in range(5 if full else 1)
                if full or not how[1]
            ]
    except pytest.skip.Exception as skipped:
        reason = str(skipped)
        yield [Case(what + fault, "all", lambda folder: pytest.skip(reason)) for fault in faults]


def run_on_unreliable_requests(spec: str, store: str, share: float, pause: float, seed: int) -> None:
    """Let this share of the requests fail temporarily, or a tenth of them take this long."""
    random_ = random.Random(seed)

    def unreliable(real: Any) -> Any:
        def request(*arguments: Any) -> Any:
            if random_.random() < share:
                raise OSError("AWS Error SLOW_DOWN: this test lets the request fail")
            if pause and random_.random() < 0.1:
                time.sleep(pause)
            return real(*arguments)

        return request

    methods = {name: unreliable(getattr(FileSystem, name)) for name in ("_put", "_pieces")}
    with mock.patch.multiple(FileSystem, **methods):
        run_sweep(spec, store)


def killed_for_memory(folder: Path, tries: int) -> Iterator[Case]:
    """Workers on Ray that the kernel kills. A sample leaves this to the topic of random kills on Ray."""
    if tries:
        folder.mkdir()
        sweep = ray_kills.Sweep(folder)
        sweep.run_undisturbed()
        for seed in range(tries):
            run = partial(sweep.kill_workers, seed, 2, how=let_the_kernel_kill)
            yield Case("grid on Ray: the kernel kills workers for their memory", f"seed {seed}", run, 2, 1200)


def let_the_kernel_kill(process: Process) -> None:
    """Let the process need more memory than it may have."""
    group = Path("/sys/fs/cgroup/memory") if Path("/sys/fs/cgroup/memory").exists() else Path("/sys/fs/cgroup")
    group /= f"mislabel-{process.pid}"
    try:
        group.mkdir()
        limit = next(path for path in (group / "memory.limit_in_bytes", group / "memory.max") if path.exists())
        limit.write_text("4096")
        (group / "cgroup.procs").write_text(str(process.pid))
    except (OSError, StopIteration):
        pytest.skip("needs the right to limit the memory of a process (cgroups)")
    until(lambda: not process.lives, 120)
    with suppress(OSError):  # busy while its parent has not noticed its end
        group.rmdir()


def one_sentence(ended: Ended, *codes: int) -> Ended:
    """This process ended with one of these exit codes; unless it succeeded, with one sentence that says why."""
    ended.expect(*codes)
    said = [line for line in ended.err.splitlines() if line.startswith("mislabel: ")]
    assert len(said) == (1 if ended.code else 0), f"{len(said)} sentences\n{ended.err}"
    return ended


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A file system in memory with these options."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)


@dataclass(frozen=True)
class NoDescriptors(Fault):
    """Leave this many file descriptors from an operation on."""

    number: int
    left: int

    def before(self, operation: Operation) -> None:
        if operation.number != self.number:
            return
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        taken = []
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for descriptor in taken[: self.left]:
            os.close(descriptor)


def run_with_clock(seconds: float, spec: str, store: str) -> None:
    """Run the sweep with a clock that is wrong by this much; the files of earlier launches have right times."""
    shift_clock(seconds)
    code = exit_code_of(run_sweep, spec, store)
    assert code == 0, f"exit code {code}"


@dataclass(frozen=True)
class ClockJump(Fault):
    """Set the clock forward or back at an operation."""

    number: int
    seconds: float

    def before(self, operation: Operation) -> None:
        if operation.number == self.number:
            shift_clock(self.seconds)


def shift_clock(seconds: float) -> None:
    """Let time.time and datetime.now in this process differ from the real time."""
    real, now = time.time, datetime.datetime

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime.datetime:  # type: ignore[override]
            return now.now(tz) + datetime.timedelta(seconds=seconds)

    time.time = lambda: real() + seconds
    for name, module in list(sys.modules.items()):
        if name.startswith("mislabel") and getattr(module, "datetime", None) is now:
            module.datetime = Shifted  # type: ignore[attr-defined]
