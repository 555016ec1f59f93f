"""One sweep of many runs with an MLflow view: memory, files and the time per run stay bounded."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import yaml

from tests.bowls import bowl_values
from tests.faults.forks import forked
from tests.faults.suite import Case

if TYPE_CHECKING:
    from mislabel.sweeps.plan.plan import Plan
    from mislabel.sweeps.run.driver import Driver
    from mislabel.sweeps.store.store import SweepFiles

MARKS = ("server",)
SEEDS, PACK = 4, 10
FLAT = 1.2
"""The memory at the end, relative to that after the first quarter."""
SLOWEST = 2.0
"""The time per run of the last quarter, relative to that of the second. Machines are busy with other things, too."""
FILES_PER_PACK, FILES_AT_END = 4, 60


def cases(full: bool) -> Iterator[Case]:
    runs = 10_000 if full else 300
    what = f"{runs:,} runs with an MLflow run for each"
    yield Case(what, "memory, files and time", partial(run_and_judge, runs), seconds=7200)


@dataclass(frozen=True)
class Sample:
    """The state of a process at one moment."""

    process: str
    """driver or writer"""
    done: int
    """Runs that have ended, for the driver, or that MLflow has, for its writer."""
    memory: int
    """In bytes."""
    seconds: float
    """Of the processor, since its start."""
    files: int = 0


def run_and_judge(runs: int, folder: Path) -> None:
    axis = {"min": -10.0, "max": 10.0, "points": runs // SEEDS}
    values = bowl_values(
        parameters={"x": axis}, seeds=SEEDS, resources={"pack": PACK}, track={"per": "run"}, name="soak"
    )
    (folder / "soak.yaml").write_text(yaml.safe_dump(values))
    arguments = (str(folder / "soak.yaml"), str(folder / "store"), str(folder / "samples.json"))
    forked(soak, *arguments, folder=folder, seconds=7000).expect(0)
    samples = [Sample(**each) for each in json.loads((folder / "samples.json").read_text())]
    judge(samples, runs)
    assert files_in(folder / "store" / "soak") <= FILES_AT_END


def judge(samples: Sequence[Sample], runs: int) -> None:
    wrong = {}
    for process in ("driver", "writer"):
        found = [sample for sample in samples if sample.process == process and sample.done]
        assert found[-1].done >= runs, found[-1]
        memory, seconds = _growth(found, runs), _slowdown(found, runs)
        if memory > FLAT:
            wrong[process] = f"its memory grows to {memory:.2f} times that after the first quarter\n{_excerpt(found)}"
        elif seconds > SLOWEST:
            wrong[process] = f"a run takes {seconds:.2f} times as long at the end\n{_excerpt(found)}"
    assert not wrong, "\n".join(f"{process}: {text}" for process, text in wrong.items())
    assert max(sample.files for sample in samples) <= FILES_PER_PACK * runs / PACK + FILES_AT_END


def _growth(samples: Sequence[Sample], runs: int) -> float:
    """The most memory, relative to the memory after the first quarter of the runs."""
    before = max(sample.memory for sample in samples if sample.done <= max(runs / 4, samples[0].done))
    return max(sample.memory for sample in samples) / before


def _slowdown(samples: Sequence[Sample], runs: int) -> float:
    """The time of the last quarter of the runs, relative to that of the second quarter."""

    def at(share: float) -> Sample:
        return min(samples, key=lambda sample: abs(sample.done - share * runs))

    def pace(start: Sample, end: Sample) -> float:
        return (end.seconds - start.seconds) / max(1, end.done - start.done)

    return pace(at(0.75), at(1.0)) / max(pace(at(0.25), at(0.5)), 1e-6)


def _excerpt(samples: Sequence[Sample]) -> str:
    return "\n".join(str(sample) for sample in samples[:: max(1, len(samples) // 20)])


def soak(spec: str, store: str, record: str) -> None:
    """Run the sweep with an MLflow view, and record samples."""
    from mislabel.sweeps.checks.reader import read_spec
    from mislabel.sweeps.run.launch import inline_host, run_sweep
    from mislabel.sweeps.store.store import Store

    read, task = read_spec(spec, (), False)
    samples: list[Sample] = []
    run_sweep(read, task, Store(store), inline_host, observer=partial(_observed, samples))
    Path(record).write_text(json.dumps([asdict(sample) for sample in samples]))


@contextmanager
def _observed(
    samples: list[Sample], plan: "Plan", files: "SweepFiles", driver: "Driver | None"
) -> Iterator[Callable[[], None]]:
    from mislabel.analysis.mlflow_view.view import following

    assert driver is not None
    store = Path(files.store)
    done = threading.Event()

    def watch_driver() -> None:
        here = psutil.Process()
        memory, folder = here.memory_info().rss, store / files.name
        samples.append(Sample("driver", driver.progress.done, memory, time.thread_time(), files_in(folder)))

    def watch_writer() -> None:
        while not done.wait(0.5):
            samples.extend(_writer(store / "mlflow.db"))

    thread = threading.Thread(target=watch_writer)
    thread.start()
    try:
        with following(files, f"sqlite:///{store}/mlflow.db", every_seconds=2.0, last_seconds=6000.0):
            yield watch_driver
    finally:
        done.set()
        thread.join()


def _writer(database: Path) -> Iterator[Sample]:
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if "mislabel.analysis.mlflow_view.follower" in child.cmdline():
                yield Sample("writer", _shown(database), child.memory_info().rss, sum(child.cpu_times()[:2]))


def _shown(database: Path) -> int:
    """The number of runs in MLflow."""
    if not database.exists():
        return 0
    with suppress(sqlite3.Error):
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=5)
        try:
            found = connection.execute("select count(*) from runs where lifecycle_stage = 'active'").fetchone()[0]
            return int(found)
        finally:
            connection.close()
    return 0


def files_in(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))
