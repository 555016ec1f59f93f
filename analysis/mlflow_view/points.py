"""Metrics as points for MLflow: thinned curves, and means over seeds with their standard deviation."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mislabel.sweeps.statistics import Summary, summary


@dataclass(frozen=True)
class Point:
    metric: str
    value: float
    time: int
    """Milliseconds since 1970."""
    step: int


def finals_of(values: pd.DataFrame) -> dict[str, Summary]:
    """The summary over runs of each column that has a value."""
    found = {str(name): summary(values[name]) for name in values.columns}
    return {name: final for name, final in found.items() if final.n}


def points_of(
    finals: dict[str, Summary], curves: pd.DataFrame | None, span: tuple[int, int], last: int, most: int
) -> Iterator[Point]:
    """At most `most` points per metric, and its standard deviation. The last point is the mean at the end.

    `curves` has a column per metric and a row per step. `span` is the start and end of training, in milliseconds.
    """
    started, ended = span
    if curves is not None:
        steps = curves.index.to_numpy()
        for name, values in zip(curves.columns, curves.to_numpy().T, strict=True):
            held = np.isfinite(values)
            for step, value in _thinned(steps[held], values[held], most):
                if step < last:
                    roughly = started + (ended - started) * step // max(1, last)
                    yield Point(name, _rounded(value), roughly, step)
    for name, final in finals.items():
        yield Point(name, _rounded(final.mean), ended, last)
        if final.n > 1 and f"{name}_std" not in finals:
            yield Point(f"{name}_std", _rounded(final.std), ended, last)


def _thinned(steps: np.ndarray, values: np.ndarray, most: int) -> Iterator[tuple[int, float]]:
    """At most `most` points, spread evenly over the measured steps, with both ends.

    Only the ends of a flat stretch are kept: they draw the same line, and MLflow writes points slowly. The second point
    is always kept, because a logarithmic axis can't show step 0.
    """
    chosen = np.unique(np.rint(np.linspace(0, len(steps) - 1, min(len(steps), most))).astype(int))
    kept = values[chosen]
    flat = np.zeros(len(chosen), bool)
    flat[2:-1] = (kept[1:-2] == kept[2:-1]) & (kept[2:-1] == kept[3:])
    return zip(steps[chosen[~flat]].tolist(), kept[~flat].tolist(), strict=True)


def _rounded(value: float) -> float:
    """The value rounded to single precision: 0.9, not 0.8999999761581421. The store has all digits."""
    return float(f"{value:.7g}")
