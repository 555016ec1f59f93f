"""Measure how fast a shape trains in packs of different sizes, and how much memory a lane takes."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from mislabel.tasks.device import allocator
from mislabel.tasks.device.determinism import make_deterministic
from mislabel.tasks.device.memory import device_name, is_out_of_memory, peak_bytes
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task

PACK_SIZES = (1, 4, 16, 64, 256, 1024)
"""The sizes that are measured, in this order."""
MEMORY_SHARE = 0.6
"""The part of a worker's memory that a pack may fill."""
_ENOUGH_SECONDS = 0.03
_LONGEST_SECONDS = 1.5
# A lane with steps this slow keeps the device busy alone: more lanes would gain nothing.
_SLOW_SECONDS = 0.25


@dataclass(frozen=True)
class Speed:
    """The measurements of one shape."""

    run_step_seconds: Mapping[int, float]
    """Seconds per run-step, by pack size."""
    measure_seconds: float
    """Seconds to measure one lane once."""
    lane_bytes: int
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


UNKNOWN_SPEED = Speed({1: 0.0}, 0.0, 1, more_may_pay=False)


class Profiler(Protocol):
    """Measures pack sizes, on a device like those that packs will train on."""

    @property
    def device(self) -> str:
        """The device's name. Measurements of one device say nothing about another."""

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        """See `measure_speed`. Raises ProfilerGone if nothing can be measured any more."""


class ProfilerGone(Exception):
    """The profiler has given its resources to the workers."""


class NoProfiler:
    """Measures nothing, because this machine has no device like those that packs will train on."""

    device = "none"

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        raise ProfilerGone


class LocalProfiler:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.device = device_name(device)

    def profile(self, task: Task[Any], values: Mapping[str, Value], memory_bytes: int, most: int) -> Speed:
        return measure_speed(task, values, self._device, memory_bytes, most)


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
            seconds[size], measure_seconds = _lane_seconds(task, settings, size, device)
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


def _lane_seconds(task: Task[Any], settings: Any, size: int, device: torch.device) -> tuple[float, float]:
    """Seconds per lane for a step of a pack of this size, and to measure it."""
    pack = Pack(task, Lanes([settings] * size, range(size), device))
    return _step_seconds(pack, settings.steps) / size, _measure_seconds(pack) / size


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
