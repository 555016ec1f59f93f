"""Several drivers and readers use one store: a sweep has one driver at a time, and readers see every run once."""

import io
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import psutil
import pytest

from mislabel.sweeps.run.lease import newest_generation
from mislabel.sweeps.store.store import Store
from tests.cluster.objects import ObjectStore
from tests.faults.bowl_sweeps import (
    KEYS,
    assert_same_table,
    continue_and_compare,
    exit_code_of,
    object_store,
    run_sweep,
    run_undisturbed,
    table_of,
    write_spec,
)
from tests.faults.forks import Forked, forked, mislabel
from tests.faults.resources import one_sentence
from tests.faults.suite import Case, scratch
from tests.faults.taps import Operation, Pause
from tests.pace import VARIABLE, Pace

MARKS = ("server",)
REFUSED_SECONDS = 30.0
"""A driver is refused within this time, even on a busy machine. The sweep itself is held for longer."""
SWEEPS = 10
READERS = ("load", "results", "dataset")


def cases(full: bool) -> Iterator[Case | list[Case]]:
    with scratch("drivers") as folder:
        grid = Disputed("grid", folder / "grid")
        yield [grid.two_at_once(number) for number in range(20 if full else 3)]
        for method in ("grid", "tpe", "asha") if full else ("grid",):
            sweep = grid if method == "grid" else Disputed(method, folder / method)
            yield sweep.replacements(1 if full else len(sweep.operations) // 3)
        yield [grid.many_at_once(number) for number in range(5 if full else 1)]
        yield [grid.read_while_merged(reader, 30 if full else 3) for reader in READERS]
        yield from on_object_store(folder, full)


def on_object_store(folder: Path, full: bool) -> Iterator[Case]:
    what = "two drivers start at once, store in an S3 bucket"
    try:
        with object_store(folder / "objects") as server:
            grid = Disputed("grid", folder / "grid-objects")
            for number in range(5 if full else 1):
                yield Case(what, f"try {number}", partial(grid.start_two, server))
    except pytest.skip.Exception as skipped:
        reason = str(skipped)
        yield Case(what, "all", lambda folder: pytest.skip(reason))


class Disputed:
    """A sweep of bowls that several drivers want to run."""

    def __init__(self, method: str, folder: Path) -> None:
        self.method = method
        self.spec = str(write_spec(folder, method))
        self.undisturbed = str(folder / "undisturbed")
        self.operations = run_undisturbed(Path(self.spec), self.undisturbed)
        synced = (each.number for each in self.operations if each.kind == "fsync" and each.path == "bowls/lease")
        self.takes_lease = next(synced)
        """The last operation of taking the lease."""

    def two_at_once(self, number: int) -> Case:
        return Case("two drivers start at once, store in a folder", f"try {number}", partial(self.start_two, None))

    def start_two(self, server: ObjectStore | None, folder: Path) -> None:
        """Exactly one trains. The other one is refused while the first is held, and names it."""
        store = str(folder / "store") if server is None else server.address(folder.name)
        pace = Pace(folder / "pace")
        pace.hold()
        moment = time.monotonic() + 0.5
        both = [Forked(run_held, self.spec, store, str(pace.path), moment, folder=folder) for _ in range(2)]
        deadline = time.monotonic() + REFUSED_SECONDS
        while all(each.runs for each in both):
            assert time.monotonic() < deadline, "neither driver was refused\n" + "\n".join(each.err for each in both)
            time.sleep(0.02)
        holder, refused = sorted(both, key=lambda each: not each.runs)
        assert holder.runs, f"both drivers have ended\n{holder.err}\n{refused.err}"
        ended = one_sentence(refused.ended(), 2)
        assert f"process {holder.pid} " in ended.err, ended.err
        pace.release()
        holder.ended().expect(0)
        forked(continue_and_compare, self.spec, store, self.undisturbed, folder=folder).expect(0)

    def replacements(self, every: int) -> list[Case]:
        what = f"{self.method}: the driver is paused at each operation and replaced with --take-over"
        return [
            Case(
                what,
                f"{'looks at once' if looks else 'looks later'} {operation}",
                partial(self.replace, operation, looks),
            )
            for operation in self.operations[every // 2 :: every]
            for looks in (True, False)
        ]

    def replace(self, operation: Operation, looks: bool, folder: Path) -> None:
        """The replaced driver stops when it wakes up. What it had finished is kept, and nothing is there twice."""
        store = str(folder / "store")
        paused = Forked(run_replaced, self.spec, store, operation.number, looks, folder=folder)
        try:
            if not _stops(paused):
                paused.ended().expect(0)
                return
            finished = _finished(store, folder)
            generation = newest_generation(Store(store).sweep("bowls"))
            forked(run_sweep, self.spec, store, None, "", "--no-mlflow", "--take-over", folder=folder).expect(0)
            assert finished <= _finished(store, folder), "runs that the paused driver had finished were run again"
            os.kill(paused.pid, signal.SIGCONT)
            ended = one_sentence(paused.ended(), 0, 1)
            # A driver that is paused while it takes the lease takes it after its successor, and has nothing to run. In
            # its second generation, a driver only removes files and reports that it is done.
            if looks and generation == 1 and operation.number > self.takes_lease:
                assert ended.code == 1, f"the replaced driver did not notice\n{ended.err}"
        finally:
            if paused.runs:
                paused.kill()
        forked(compare_tables, store, self.undisturbed, folder=folder).expect(0)
        forked(continue_and_compare, self.spec, store, self.undisturbed, folder=folder).expect(0)

    def many_at_once(self, number: int) -> Case:
        """Sweeps with the same cells, which may take over runs from each other."""

        def run(folder: Path) -> None:
            store, names = str(folder / "store"), [f"bowls-{i}" for i in range(SWEEPS)]
            moment = time.monotonic() + 1.0
            many = [Forked(run_named, self.spec, store, name, moment, folder=folder) for name in names]
            for each in many:
                each.ended(300).expect(0)
            for name in names:
                forked(compare_tables, store, self.undisturbed, name, folder=folder).expect(0)

        return Case(f"{SWEEPS} sweeps of the same cells run at once in one store", f"try {number}", run, SWEEPS)

    def read_while_merged(self, reader: str, states: int) -> Case:
        def run(folder: Path) -> None:
            store, stop = str(folder / "store"), str(folder / "stop")
            forked(widen, self.spec, store, 2, 2, stop, folder=folder).expect(0)
            writer = Forked(widen, self.spec, store, 3, 10_000, stop, folder=folder)
            forked(read_repeatedly, reader, store, states, stop, folder=folder, seconds=500).expect(0)
            writer.ended().expect(0)

        return Case("readers read a store whose parts are merged", reader, run)


def _stops(paused: Forked) -> bool:
    """Wait until the process stops itself; False if it ends instead."""
    while paused.runs:
        try:
            if psutil.Process(paused.pid).status() == psutil.STATUS_STOPPED:
                return True
        except psutil.NoSuchProcess:
            return False
        time.sleep(0.01)
    return False


def _finished(store: str, folder: Path) -> set[str]:
    return set(forked(print_finished, store, folder=folder).expect(0).out.split())


def print_finished(store: str) -> None:
    """Print each run with the time of its end."""
    runs = Store(store).sweep("bowls").read("runs").to_pydict()
    for run, at in zip(runs.get("run_id", ()), runs.get("finished_at", ()), strict=True):
        print(f"{run}@{at}".replace(" ", ""))


def run_held(spec: str, store: str, pace: str, moment: float) -> None:
    """Run the sweep from this moment on, with bowls that wait for the pace."""
    os.environ[VARIABLE] = pace
    while time.monotonic() < moment:
        pass
    run_sweep(spec, store)


def run_replaced(spec: str, store: str, number: int, looks: bool) -> None:
    """Run the sweep, pause at an operation, and with `looks` check the lease before every write."""
    from mislabel.sweeps.run import lease

    if looks:
        lease._CHECK_SECONDS = -1.0
    run_sweep(spec, store, Pause(number))


def run_named(spec: str, store: str, name: str, moment: float) -> None:
    while time.monotonic() < moment:
        time.sleep(0.01)
    run_sweep(spec, store, None, "", "--no-mlflow", "--set", f"name={name}")


def compare_tables(store: str, undisturbed: str, name: str = "bowls") -> None:
    for table in KEYS:
        assert_same_table(table_of(store, table, name), table_of(undisturbed, table))


def widen(spec: str, store: str, first: int, last: int, stop: str) -> None:
    """Add seeds to the sweep again and again, until there is a file. Each launch writes parts and merges them."""
    os.environ["GIT_DIR"] = os.devnull
    words = ("run", spec, "--store", store, "--inline", "--no-mlflow")
    for seeds in range(first, last + 1):
        if os.path.exists(stop):
            return
        code = exit_code_of(mislabel, *words, "--set", f"seeds={seeds}")
        assert code == 0, f"exit code {code}"


def read_repeatedly(reader: str, store: str, states: int, stop: str) -> None:
    """Read until the given number of states was seen. Every read succeeds, and contains each run once."""
    sizes = [0]
    try:
        while len(set(sizes)) <= states:
            runs = READ[reader](store)
            assert len(set(runs)) == len(runs), "a run is there twice"
            assert len(runs) >= sizes[-1], f"{sizes[-1] - len(runs)} runs have vanished"
            sizes.append(len(runs))
    finally:
        Path(stop).touch()


def _load(store: str) -> list[str]:
    import mislabel

    sweep = mislabel.load(store, "bowls")
    runs = sweep.runs["run_id"].tolist()
    curves = sweep.curves
    assert not curves.duplicated(["run_id", "step"]).any(), "a row of curves is there twice"
    assert set(runs) <= set(curves["run_id"]), "curves lack a run"
    return [str(run) for run in runs]


def _results(store: str) -> list[str]:
    """The command, which prints the number of runs of each cell."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = exit_code_of(mislabel, "results", "bowls", "--store", store, "--json")
    assert code == 0, f"exit code {code}"
    cells = json.loads(printed.getvalue())
    return [f"{number}-{seed}" for number, cell in enumerate(cells) for seed in range(cell["runs"])]


def _dataset(store: str) -> list[str]:
    """Another program that reads the Parquet files. While parts are merged, files vanish and runs are there twice."""
    import pyarrow.dataset as ds

    for _ in range(100):
        try:
            table = ds.dataset(f"{store}/bowls/runs", format="parquet").to_table(columns=["run_id"])
        except FileNotFoundError:
            continue
        return sorted({str(run) for run in table["run_id"].to_pylist()})
    raise AssertionError("files vanish at every read")


READ = {"load": _load, "results": _results, "dataset": _dataset}
