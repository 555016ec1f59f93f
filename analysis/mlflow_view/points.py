"""The points of a curve in MLflow: few, finite and rounded.

MLflow needs about a tenth of a millisecond per point, and its databases can't store missing values (infinity becomes
1.8e308, which ruins every chart).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

Curves = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""By metric: the measured steps, ascending, and the value at each."""


@dataclass(frozen=True)
class Point:
    metric: str
    value: float
    time: int
    """Milliseconds since 1970."""
    step: int


def growing_points(curves: Curves, span: tuple[int, int], most: int) -> Iterator[Point]:
    """Points of curves that may still grow: those of an earlier call are among those of a later call.

    A call gives at most `most` points per metric, and all calls together few more: each time that the number of steps
    doubles, half as many again. `span` is the start of training and the present.
    """
    for name, (steps, values) in curves.items():
        stride = 1 << max(0, math.ceil(math.log2(len(steps) / most))) if len(steps) else 1
        held = np.isfinite(values[::stride])
        chosen = zip(steps[::stride][held].tolist(), values[::stride][held].tolist(), strict=True)
        yield from _points(name, chosen, span, int(steps[-1]) if len(steps) else 0)


def final_points(curves: Curves, span: tuple[int, int], last: int, most: int) -> Iterator[Point]:
    """At most `most` points per metric, without the last step. `span` is the start and end of training."""
    for name, (steps, values) in curves.items():
        held = np.isfinite(values)
        chosen = ((step, value) for step, value in _thinned(steps[held], values[held], most) if step < last)
        yield from _points(name, chosen, span, last)


def _points(name: str, chosen: Iterator[tuple[int, float]], span: tuple[int, int], last: int) -> Iterator[Point]:
    started, ended = span
    for step, value in chosen:
        yield Point(name, rounded(value), started + (ended - started) * step // max(1, last), step)


def _thinned(steps: np.ndarray, values: np.ndarray, most: int) -> Iterator[tuple[int, float]]:
    """At most `most` points, spread evenly over the measured steps, with both ends.

    Only the ends of a flat stretch are kept: they draw the same line. The second point is always kept, because a
    logarithmic axis can't show step 0.
    """
    chosen = np.unique(np.rint(np.linspace(0, len(steps) - 1, min(len(steps), most))).astype(int))
    kept = values[chosen]
    flat = np.zeros(len(chosen), bool)
    flat[2:-1] = (kept[1:-2] == kept[2:-1]) & (kept[2:-1] == kept[3:])
    return zip(steps[chosen[~flat]].tolist(), kept[~flat].tolist(), strict=True)


def rounded(value: float) -> float:
    """The value rounded to single precision: 0.9, not 0.8999999761581421. The store has all digits."""
    return float(f"{value:.7g}")
