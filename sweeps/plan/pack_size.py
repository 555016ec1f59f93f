"""Choose how many runs go into a pack, and estimate how long they take.

More lanes share the cost of each operation, until memory or caches end the gain. We take the smallest pack within 10 %
of the best speed: smaller packs finish sooner, spread better over workers and lose less when one dies. Measured speeds
are stored with the sweep, so that a continued sweep is cut into the same packs.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from mislabel.sweeps.plan.speed import MEMORY_SHARE, PACK_SIZES, UNKNOWN_SPEED, Profiler, ProfilerGone, Speed
from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task
from mislabel.tasks.training import measured_steps

# After measuring for this long, further shapes use the speed of the nearest known shape.
_LONGEST_IN_ALL_SECONDS = 15.0
# Packs train for at most about this long if they can be smaller, so that results and checkpoints come early enough.
_LONGEST_PACK_SECONDS = 600.0


class Sizing:
    """Chooses pack sizes for a sweep; measures each shape once."""

    def __init__(self, task: Task[Any], files: SweepFiles, profiler: Profiler, memory_bytes: int, workers: int) -> None:
        self.task = task
        self.files = files
        self.profiler = profiler
        self.memory_bytes = memory_bytes
        self.workers = workers
        self._known: dict[str, Speed] = {}
        self._spent_seconds = 0.0
        self._unsaved = False
        for key, value in (files.read_json("speeds.json") or {}).items():
            value["run_step_seconds"] = {int(size): seconds for size, seconds in value["run_step_seconds"].items()}
            self._known[key] = Speed(**value)

    def speed(self, values: Mapping[str, Value], lanes: int) -> Speed:
        """The speed of this cell's shape in packs of up to that many lanes.

        After 15 s of measuring, further shapes get the speed of the known shape that is nearest in size.
        """
        key = self._key(values)
        known = self._known.get(key)
        if known is None or (known.more_may_pay and lanes >= PACK_SIZES[len(known.run_step_seconds)]):
            if self._known and self._spent_seconds > _LONGEST_IN_ALL_SECONDS:
                return self._nearest(values)
            began = time.perf_counter()
            try:
                known = self._known[key] = self.profiler.profile(self.task, values, self.memory_bytes, lanes)
            except ProfilerGone:
                return known or (self._nearest(values) if self._known else UNKNOWN_SPEED)
            except Exception:  # the run will raise the same error, and it is recorded there
                return UNKNOWN_SPEED
            self._spent_seconds += time.perf_counter() - began
            self._unsaved = True
        return known

    def keep(self) -> None:
        """Store new measurements with the sweep."""
        if self._unsaved:
            self._unsaved = False
            self.files.write_json("speeds.json", {key: asdict(speed) for key, speed in self._known.items()})

    def size(self, values: Mapping[str, Value], runs: int, wanted: int | str) -> int:
        """Runs per pack, for a shape with this many runs in the sweep."""
        most = self.task.largest_pack or runs
        if wanted != "auto":
            return max(1, min(int(wanted), most))
        shared = math.ceil(runs / self.workers)
        speed = self.speed(values, shared)
        settings = self.task.settings(values)
        fitting = int(MEMORY_SHARE * self.memory_bytes / max(1, speed.lane_bytes))
        run_seconds = speed.run_seconds(speed.best_size, settings.steps, len(measured_steps(settings)))
        timely = max(16, int(_LONGEST_PACK_SECONDS / max(run_seconds, 1e-9)))
        best = speed.best_size
        if speed.more_may_pay and best == max(speed.run_step_seconds) and shared < 2 * best:
            best = shared  # one larger pack is better than a pack and a small rest
        return max(1, min(best, fitting, timely, shared, most))

    def _key(self, values: Mapping[str, Value]) -> str:
        shapes = {name: values[name] for name in self.task.names("shape")}
        return json.dumps([self.task.name, self.task.version, self.profiler.device, shapes], sort_keys=True)

    def _nearest(self, values: Mapping[str, Value]) -> Speed:
        lanes = Lanes([self.task.settings(values)], [0], torch.device("cpu"))
        size = Pack(self.task, lanes).state_bytes
        return min(self._known.values(), key=lambda speed: abs(math.log(max(1, speed.lane_bytes) / max(1, size))))
