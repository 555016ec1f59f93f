"""How many runs to a pack, and how long they will take: from trying a few sizes for a moment, where they are to run.

More lanes share the cost of each operation, until memory or caches end the gain. The smallest pack within a tenth of
the best speed is taken: smaller packs finish sooner, spread better over workers and lose less when one dies. What was
measured is kept with the sweep, so that a continued sweep is cut into the same packs.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch

from mislabel.sweeps.store.store import SweepFiles
from mislabel.tasks.device import allocator
from mislabel.tasks.device.determinism import be_exact
from mislabel.tasks.device.memory import device_name, is_out_of_memory, peak_bytes
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task
from mislabel.tasks.training import measured_steps

_SIZES = (1, 4, 16, 64, 256, 1024)
_ENOUGH_SECONDS = 0.03
_LONGEST_SECONDS = 1.5
_LONGEST_IN_ALL_SECONDS = 15.0
# A lane whose steps take this long keeps the device busy by itself: others beside it would gain nothing.
_SLOW_SECONDS = 0.25
# Of the memory that workers share, the part that packs may fill.
_MEMORY_SHARE = 0.6
# A run is at most this long where a pack could also be smaller: then results and checkpoints come in time.
_LONGEST_PACK_SECONDS = 600.0


@dataclass(frozen=True)
class Speed:
    """What was measured for one shape."""

    run_step_seconds: Mapping[int, float]
    """Seconds per run-step, by pack size."""
    measure_seconds: float
    """Seconds to measure one lane once."""
    lane_bytes: int
    more_may_pay: bool
    """True where larger packs were not tried because the sweep was too small for them."""

    def at(self, lanes: int) -> float:
        """Seconds per run-step in packs of that size: as measured for the nearest size that is not larger."""
        sizes = sorted(self.run_step_seconds)
        return self.run_step_seconds[max([size for size in sizes if size <= lanes] or sizes[:1])]

    def run_seconds(self, lanes: int, steps: int, frames: int) -> float:
        return steps * self.at(lanes) + frames * self.measure_seconds

    @property
    def best_size(self) -> int:
        fastest = min(self.run_step_seconds.values())
        return min(size for size, seconds in self.run_step_seconds.items() if seconds <= 1.1 * fastest)


_UNKNOWN = Speed({1: 0.0}, 0.0, 1, more_may_pay=False)


class Profiler(Protocol):
    """Who tries pack sizes, on a device like those that packs will train on."""

    @property
    def device(self) -> str:
        """The device's name: what was measured on one tells nothing of another."""

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        """As `measure_speed`; ProfilerGone where nothing can be measured any more."""


class ProfilerGone(Exception):
    """The profiler has made way for the workers."""


class NoProfiler:
    """Tries nothing: there is no such device here as packs will train on."""

    device = "none"

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        raise ProfilerGone


class LocalProfiler:
    """Tries sizes in this process."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    @property
    def device(self) -> str:
        return device_name(self._device)

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        return measure_speed(task, values, self._device, memory_bytes, most)


class Sizing:
    """Decides pack sizes for a sweep; measures each shape once."""

    def __init__(self, task: Task[Any], files: SweepFiles, profiler: Profiler, memory_bytes: int, workers: int) -> None:
        self.task = task
        self.files = files
        self.profiler = profiler
        self.memory_bytes = memory_bytes
        self.workers = workers
        self._known: dict[str, Speed] = {}
        self._spent = 0.0
        for key, value in (files.read_json("speeds.json") or {}).items():
            value["run_step_seconds"] = {int(size): seconds for size, seconds in value["run_step_seconds"].items()}
            self._known[key] = Speed(**value)

    def speed(self, values: Mapping[str, Value], lanes: int) -> Speed:
        """What the shape of this cell costs in packs of up to that many lanes.

        After many shapes, the nearest one in size stands for the rest.
        """
        key = self._key(values)
        known = self._known.get(key)
        if known is None or (known.more_may_pay and lanes >= _SIZES[len(known.run_step_seconds)]):
            if self._known and self._spent > _LONGEST_IN_ALL_SECONDS:
                return self._nearest(values)
            began = time.perf_counter()
            try:
                known = self._known[key] = self.profiler.profile(self.task, values, self.memory_bytes, lanes)
            except ProfilerGone:
                return known or (self._nearest(values) if self._known else _UNKNOWN)
            except Exception:  # what raises here will raise when it is run, and be recorded there
                return _UNKNOWN
            self._spent += time.perf_counter() - began
        return known

    def keep(self) -> None:
        """Keep what was measured with the sweep."""
        self.files.write_json("speeds.json", {key: asdict(speed) for key, speed in self._known.items()})

    def size(self, values: Mapping[str, Value], runs: int, wanted: int | str) -> int:
        """Runs to a pack, for a shape of which the sweep has that many runs."""
        most = self.task.largest_pack or runs
        if wanted != "auto":
            return max(1, min(int(wanted), most))
        shared = math.ceil(runs / self.workers)
        speed = self.speed(values, shared)
        settings = self.task.settings(values)
        fitting = int(_MEMORY_SHARE * self.memory_bytes / max(1, speed.lane_bytes))
        run_seconds = speed.run_seconds(speed.best_size, settings.steps, len(measured_steps(settings)))
        timely = max(16, int(_LONGEST_PACK_SECONDS / max(run_seconds, 1e-9)))
        best = speed.best_size
        if speed.more_may_pay and best == max(speed.run_step_seconds) and shared < 2 * best:
            best = shared  # rather one somewhat larger pack than a small rest
        return max(1, min(best, fitting, timely, shared, most))

    def _key(self, values: Mapping[str, Value]) -> str:
        shapes = {name: values[name] for name in self.task.names("shape")}
        return json.dumps([self.task.name, self.task.version, self.profiler.device, shapes], sort_keys=True)

    def _nearest(self, values: Mapping[str, Value]) -> Speed:
        """The known speed whose state is nearest in size to that of these values."""
        lanes = Lanes([self.task.settings(values)], [0], torch.device("cpu"))
        size = Pack(self.task, lanes).state_bytes
        return min(self._known.values(), key=lambda speed: abs(math.log(max(1, speed.lane_bytes) / max(1, size))))


def measure_speed(
    task: Task[Any], values: Mapping[str, Value], device: torch.device, memory_bytes: int, most: int = _SIZES[-1]
) -> Speed:
    """Try pack sizes from one lane up to `most`, for as long as more lanes pay and fit."""
    allocator.keep_freed()
    be_exact(device)
    settings = task.settings(values)
    alone = _alone(task, settings, device)
    if alone.stretch_seconds > _SLOW_SECONDS:
        return Speed({1: alone.step_seconds}, alone.measure_seconds, alone.bytes, more_may_pay=False)
    lane_bytes = _lane_bytes(task, settings, device, alone.bytes)
    seconds: dict[int, float] = {}
    measure_seconds = 0.0
    began = time.perf_counter()
    for size in _SIZES:
        if size > (task.largest_pack or size) or (size > 1 and size * lane_bytes > _MEMORY_SHARE * memory_bytes):
            break
        if size > most:
            return Speed(seconds, measure_seconds, lane_bytes, more_may_pay=True)
        try:
            step_seconds, measure_seconds = _pack_seconds(task, settings, size, device)
        except Exception as error:
            if seconds and is_out_of_memory(error):
                break
            raise
        seconds[size] = step_seconds / size
        measure_seconds /= size
        if time.perf_counter() - began > _LONGEST_SECONDS or (len(seconds) > 2 and _no_longer_pays(seconds)):
            break
    return Speed(seconds, measure_seconds, lane_bytes, more_may_pay=False)


@dataclass(frozen=True)
class _Alone:
    """What one lane takes."""

    stretch_seconds: float
    step_seconds: float
    measure_seconds: float
    bytes: int


def _alone(task: Task[Any], settings: Any, device: torch.device) -> _Alone:
    """One lane, trained and measured as little as can be: steps may take seconds, and measuring minutes."""
    stretch, times = min(task.block, settings.steps), list[float]()

    def work() -> None:
        pack = Pack(task, Lanes([settings], [0], device))
        _timed(pack, stretch)  # makes the data that steps share, and warms caches
        times.append(_timed(pack, stretch))
        began = time.perf_counter()
        with torch.no_grad():
            task.measure(pack.lanes, pack.state)
        times.append(time.perf_counter() - began)

    peak = peak_bytes(device, work)
    return _Alone(times[0], times[0] / stretch, times[1], peak)


def _pack_seconds(task: Task[Any], settings: Any, size: int, device: torch.device) -> tuple[float, float]:
    """Seconds for a step of a pack, and to measure it."""
    pack = Pack(task, Lanes([settings] * size, range(size), device))
    step_seconds = _step_seconds(pack, settings.steps)
    began = time.perf_counter()
    with torch.no_grad():
        task.measure(pack.lanes, pack.state)
    return step_seconds, time.perf_counter() - began


def _no_longer_pays(seconds: Mapping[int, float]) -> bool:
    """True where the last two enlargements together gained less than a twentieth."""
    before, _, last = list(seconds.values())[-3:]
    return last > 0.95 * before


def _step_seconds(pack: Pack[Any], steps: int) -> float:
    """Seconds per step of the pack, over a stretch that takes long enough to be believed."""
    stretch = min(pack.task.block, steps)
    _timed(pack, stretch)  # makes the data that steps share, and warms caches
    while True:
        seconds = _timed(pack, stretch)
        if seconds > _ENOUGH_SECONDS or stretch == steps:
            # The machine may be busy with other things: the fastest of three is nearest to the truth.
            return min(seconds, _timed(pack, stretch), _timed(pack, stretch)) / stretch
        stretch = min(4 * stretch, steps)


def _timed(pack: Pack[Any], steps: int) -> float:
    began = time.perf_counter()
    with torch.no_grad():
        pack.task.advance(pack.lanes, pack.state, 0, steps)
    if pack.lanes.device.type == "cuda":
        torch.cuda.synchronize(pack.lanes.device)
    return time.perf_counter() - began


def _lane_bytes(task: Task[Any], settings: Any, device: torch.device, alone: int) -> int:
    """Memory of a further lane: what two lanes take beyond one, at the peak of some steps and a measurement.

    What `alone` took is no measure for that: it also made the data that all packs share.
    """
    if task.largest_pack == 1:
        return alone

    def peak(lanes: int) -> int:
        def work() -> None:
            with torch.no_grad():
                pack = Pack(task, Lanes([settings] * lanes, range(lanes), device))
                state = task.advance(pack.lanes, pack.state, 0, min(task.block, settings.steps))
                task.measure(pack.lanes, state)

        return peak_bytes(device, work)

    return max(1, peak(2) - peak(1))
