"""Metrics as MLflow takes them: points of thinned curves, and means over seeds with their spread."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd


@dataclass(frozen=True)
class Point:
    metric: str
    value: float
    time: int
    """Milliseconds since 1970."""
    step: int


@dataclass(frozen=True)
class Span:
    """From when to when runs were trained, in milliseconds since 1970, and to which step."""

    started: int
    ended: int
    last: int

    def time(self, step: int) -> int:
        """When about this step was reached."""
        return self.started + (self.ended - self.started) * step // max(1, self.last)


@dataclass(frozen=True)
class Final:
    """A metric at the end of several runs."""

    mean: float
    std: float
    runs: int


def finals_of(runs: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Final]:
    """Each metric that has a value."""
    finals = {}
    for name, column in zip(metrics, runs[list(metrics)].to_numpy(float).T, strict=True):
        held = column[np.isfinite(column)]
        if len(held):
            finals[name] = Final(float(held.mean()), float(held.std(ddof=1)) if len(held) > 1 else 0.0, len(held))
    return finals


def points_of(finals: dict[str, Final], curves: pd.DataFrame | None, span: Span, most: int) -> Iterator[Point]:
    """Of each metric at most so many points, the last of them its mean at the end; and its standard deviation.

    `curves` has a column per metric and a row per step.
    """
    if curves is not None:
        steps = curves.index.to_numpy()
        for name, values in zip(curves.columns, curves.to_numpy().T, strict=True):
            held = np.isfinite(values)
            for step, value in _thinned(steps[held], values[held], most):
                if step < span.last:
                    yield Point(name, _rounded(value), span.time(step), step)
    for name, final in finals.items():
        yield Point(name, _rounded(final.mean), span.ended, span.last)
        if final.runs > 1 and f"{name}_std" not in finals:
            yield Point(f"{name}_std", _rounded(final.std), span.ended, span.last)


def with_interval(final: Final) -> str:
    """Such as '0.97 ± 0.014': a mean over seeds and half of its 95 % interval, by Student's t."""
    if final.runs < 2:
        return f"{final.mean:.4g}"
    return f"{final.mean:.4g} ± {_student(final.runs) * final.std / final.runs**0.5:.2g}"


@cache
def _student(runs: int) -> float:
    from scipy.special import stdtrit  # scipy.stats takes seconds to import

    return float(stdtrit(runs - 1, 0.975))


def _thinned(steps: np.ndarray, values: np.ndarray, most: int) -> Iterator[tuple[int, float]]:
    """At most so many points, spread evenly over what was measured, both ends among them.

    Of a flat stretch only the ends are kept, which draw the same line: MLflow is slow in writing points. The second
    point is always there, as a logarithmic axis has no place for step 0.
    """
    chosen = np.unique(np.rint(np.linspace(0, len(steps) - 1, min(len(steps), most))).astype(int))
    kept = values[chosen]
    flat = np.zeros(len(chosen), bool)
    flat[2:-1] = (kept[1:-2] == kept[2:-1]) & (kept[2:-1] == kept[3:])
    return zip(steps[chosen[~flat]].tolist(), kept[~flat].tolist(), strict=True)


def _rounded(value: float) -> float:
    """To the digits that single precision has: 0.9, not 0.8999999761581421. The store has the others."""
    return float(f"{value:.7g}")
