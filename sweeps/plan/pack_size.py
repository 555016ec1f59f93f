"""Choose how many runs go into a pack, and estimate how long they take.

More lanes share the cost of each operation, until memory or caches end the gain. We take the smallest pack within 10 %
of the best speed: smaller packs finish sooner, spread better over workers and lose less when one dies. Measured speeds
are stored with the sweep, so that a continued sweep is cut into the same packs.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter

from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.device import allocator
from mislabel.tasks.device.determinism import make_deterministic
from mislabel.tasks.device.memory import device_name, is_out_of_memory, peak_bytes
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task
from mislabel.tasks.training import measured_steps

PACK_SIZES = (1, 4, 16, 64, 256, 1024)
"""The sizes that are measured, in this order."""
MEMORY_SHARE = 0.6
"""The part of a worker's memory that a pack may fill."""
_ENOUGH_SECONDS = 0.03
_LONGEST_SECONDS = 1.5
# A lane with steps this slow keeps the device busy alone: more lanes would gain nothing.
_SLOW_SECONDS = 0.25
# After measuring for this long, further shapes use the speed of the known shape that is nearest in size.
_LONGEST_IN_ALL_SECONDS = 15.0
# Packs train for at most about this long if they can be smaller, so that results and checkpoints come early enough.
_LONGEST_PACK_SECONDS = 600.0


_Positive = Annotated[int, Field(gt=0)]
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Speed:
    """The measurements of one shape."""

    run_step_seconds: Annotated[Mapping[_Positive, _Seconds], Field(min_length=1)]
    """Seconds per run-step, by pack size."""
    measure_seconds: _Seconds
    """Seconds to measure one lane once."""
    lane_bytes: Annotated[int, Field(ge=0)]
    more_may_pay: bool
    """True if larger packs were not tried because the sweep was too small for them."""

    def at(self, lanes: int) -> float:
        """Seconds per run-step in packs of that size: the measurement of the nearest size that is not larger."""
        sizes = sorted(self.run_step_seconds)
        return self.run_step_seconds[max([size for size in sizes if size <= lanes] or sizes[:1])]

    def run_seconds(self, lanes: int, steps: int, frames: int) -> float:
        return steps * self.at(lanes) + frames * self.measure_seconds

    @property
    def best_size(self) -> int:
        fastest = min(self.run_step_seconds.values())
        return min(size for size, seconds in self.run_step_seconds.items() if seconds <= 1.1 * fastest)


_SPEEDS = TypeAdapter(dict[str, Speed])
UNKNOWN_SPEED = Speed({1: 0.0}, 0.0, 1, more_may_pay=False)


class ProfilerGone(Exception):
    """The profiler has no device, or has given it to the workers."""


class Profiler:
    """Measures pack sizes in this process, on a device like those that packs will train on; None if it has none."""

    def __init__(self, device: torch.device | None) -> None:
        self._device = device
        self.device = device_name(device) if device else "none"
        """The device's name. Measurements of one device say nothing about another."""

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        """See `measure_speed`. Raises ProfilerGone if nothing can be measured any more."""
        if self._device is None:
            raise ProfilerGone
        return measure_speed(task, values, self._device, memory_bytes, most)


class Sizing:
    """Chooses pack sizes for a sweep; measures each shape once."""

    def __init__(self, task: Task[Any], files: SweepFiles, profiler: Profiler, memory_bytes: int, workers: int) -> None:
        self.task = task
        self.files = files
        self.profiler = profiler
        self.memory_bytes = memory_bytes
        self.workers = workers
        self.spent_seconds = 0.0
        """How long measuring took."""
        self._unsaved = False
        self._known = files.read_value("speeds.json", _SPEEDS) or {}

    def speed(self, values: Mapping[str, Value], lanes: int) -> Speed:
        """The speed of this cell's shape in packs of up to that many lanes."""
        key = self._key(values)
        known = self._known.get(key)
        if known is None or (known.more_may_pay and lanes >= PACK_SIZES[len(known.run_step_seconds)]):
            if self._known and self.spent_seconds > _LONGEST_IN_ALL_SECONDS:
                return self._nearest(values)
            began = time.perf_counter()
            try:
                known = self._known[key] = self.profiler.profile(self.task, values, self.memory_bytes, lanes)
            except ProfilerGone:
                return known or (self._nearest(values) if self._known else UNKNOWN_SPEED)
            except Exception:  # the run will raise the same error, and it is recorded there
                return UNKNOWN_SPEED
            self.spent_seconds += time.perf_counter() - began
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


def measure_speed(
    task: Task[Any], values: Mapping[str, Value], device: torch.device, memory_bytes: int, most: int = PACK_SIZES[-1]
) -> Speed:
    """Measure pack sizes from one lane up to `most`, as long as larger packs are faster per run and fit into memory."""
    allocator.keep_freed_memory()
    make_deterministic(device)
    settings = task.settings(values)
    alone = _alone(task, settings, device)
    if alone.at(1) * _stretch(task, settings) > _SLOW_SECONDS:
        return alone
    lane_bytes = _lane_bytes(task, settings, device, alone.lane_bytes)
    seconds: dict[int, float] = {}
    measure_seconds = 0.0
    began = time.perf_counter()
    for size in PACK_SIZES:
        if size > (task.largest_pack or size) or (size > 1 and size * lane_bytes > MEMORY_SHARE * memory_bytes):
            break
        if size > most:
            return Speed(seconds, measure_seconds, lane_bytes, more_may_pay=True)
        try:
            pack = Pack(task, Lanes([settings] * size, range(size), device))
            seconds[size] = _step_seconds(pack, settings.steps) / size
            measure_seconds = _measure_seconds(pack) / size
        except Exception as error:
            if seconds and is_out_of_memory(error):
                break
            raise
        # Larger packs no longer pay if the last two enlargements together gained less than 5 %.
        pays = len(seconds) < 3 or seconds[size] <= 0.95 * list(seconds.values())[-3]
        if time.perf_counter() - began > _LONGEST_SECONDS or not pays:
            break
    return Speed(seconds, measure_seconds, lane_bytes, more_may_pay=False)


def _stretch(task: Task[Any], settings: Any) -> int:
    return min(task.block, int(settings.steps))


def _alone(task: Task[Any], settings: Any, device: torch.device) -> Speed:
    """Train and measure one lane as little as possible: steps may take seconds, and measuring minutes."""
    stretch, times = _stretch(task, settings), list[float]()

    def work() -> None:
        pack = Pack(task, Lanes([settings], [0], device))
        _timed(pack, stretch)  # creates the data that steps share, and warms caches
        times.extend([_timed(pack, stretch) / stretch, _measure_seconds(pack)])

    peak = peak_bytes(device, work)
    return Speed({1: times[0]}, times[1], peak, more_may_pay=False)


@torch.no_grad()
def _measure_seconds(pack: Pack[Any]) -> float:
    began = time.perf_counter()
    pack.task.measure(pack.lanes, pack.state)
    return time.perf_counter() - began


def _step_seconds(pack: Pack[Any], steps: int) -> float:
    """Seconds per step of the pack, over enough steps for a reliable measurement."""
    stretch = min(pack.task.block, steps)
    _timed(pack, stretch)  # creates the data that steps share, and warms caches
    while True:
        seconds = _timed(pack, stretch)
        if seconds > _ENOUGH_SECONDS or stretch == steps:
            # Other processes may slow us down: the fastest of three is the best estimate.
            return min(seconds, _timed(pack, stretch), _timed(pack, stretch)) / stretch
        stretch = min(4 * stretch, steps)


@torch.no_grad()
def _timed(pack: Pack[Any], steps: int) -> float:
    began = time.perf_counter()
    pack.task.advance(pack.lanes, pack.state, 0, steps)
    if pack.lanes.device.type == "cuda":
        torch.cuda.synchronize(pack.lanes.device)
    return time.perf_counter() - began


def _lane_bytes(task: Task[Any], settings: Any, device: torch.device, alone: int) -> int:
    """Memory of an additional lane: the peak of two lanes minus the peak of one, over some steps and a measurement.

    The memory of `alone` does not tell: it includes the data that all packs share.
    """
    if task.largest_pack == 1:
        return alone

    @torch.no_grad()
    def work(lanes: int) -> None:
        pack = Pack(task, Lanes([settings] * lanes, range(lanes), device))
        state = task.advance(pack.lanes, pack.state, 0, _stretch(task, settings))
        task.measure(pack.lanes, state)

    return max(1, peak_bytes(device, lambda: work(2)) - peak_bytes(device, lambda: work(1)))
