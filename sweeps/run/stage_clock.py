"""Measure the stages of a launch, so that the times of later launches can be expected."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from mislabel.sweeps.plan.stages import Stages, contention, measured_now, note_stages, start_seconds
from mislabel.sweeps.run.driver import Driver
from mislabel.sweeps.store.store import Store


class StageClock:
    _launches: ClassVar[int] = 0
    """Launches in this process. Only the first one starts Ray and imports libraries."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._new_view = store.folder is not None and not Path(store.folder, "mlflow.db").exists()
        self._stages = Stages(start=start_seconds())
        self._last = time.monotonic()
        self._contention = 1.0
        self._is_first = StageClock._launches == 0
        StageClock._launches += 1

    def end(self, stage: str) -> None:
        """The stage has ended, and the next one begins."""
        self._add(stage, time.monotonic())

    def begin_training(self, driver: Driver) -> None:
        self._contention = contention(driver.plan.workers)

    def end_training(self, driver: Driver) -> None:
        self._add("workers", driver.progress.first_report or time.monotonic())
        self.end("train")

    def _add(self, stage: str, now: float) -> None:
        before = asdict(self._stages)
        self._stages = Stages(**{**before, stage: before[stage] + max(0.0, now - self._last)})
        self._last = now

    def note(self, driver: Driver, on_ray: bool) -> None:
        """Store the stages with the sweep, unless the launch is not typical: it was stopped, or trained nothing."""
        progress = driver.progress
        if driver.stop_reason or not progress.work_done or not driver.packs:
            return
        idle = max(0.0, self._stages.train * driver.plan.workers - progress.train_seconds)
        # Without costs of shapes, work is counted in steps.
        expected = progress.work_done * self._contention
        slowdown = progress.train_seconds / expected if driver.backlog.has_costs else 1.0
        idle_per_pack = idle / driver.packs
        measured = measured_now(on_ray, self._stages, slowdown, idle_per_pack, self._new_view, self._is_first)
        note_stages(self._store.sweep(driver.plan.spec.name), measured)
