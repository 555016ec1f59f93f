"""Points of curves in MLflow: few, and only finite ones."""

import math

import numpy as np
import pytest

from mislabel.analysis.mlflow_view.points import Curves, final_points, growing_points


def curve(values: list[float]) -> Curves:
    return {"loss": (np.arange(len(values)), np.array(values))}


def test_values_that_are_not_finite_are_not_written() -> None:
    points = list(final_points(curve([8.0, np.nan, np.inf, 2.0, 1.0]), (1000, 3000), 4, most=50))
    assert [(p.metric, p.value, p.time, p.step) for p in points] == [("loss", 8.0, 1000, 0), ("loss", 2.0, 2500, 3)]
    growing = list(growing_points(curve([8.0, np.nan, np.inf, 2.0]), (1000, 3000), most=50))
    assert [(p.value, p.step) for p in growing] == [(8.0, 0), (2.0, 3)]


def test_only_the_ends_of_a_flat_stretch_are_written() -> None:
    values = [0.5, 0.7, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    points = [(p.step, p.value) for p in final_points(curve(values), (0, 9), 9, most=50)]
    assert points == [(0, 0.5), (1, 0.7), (2, 0.9), (3, 1.0)]


@pytest.mark.parametrize("most", [2, 7, 50])
def test_a_growing_curve_keeps_its_points_and_has_few(most: int) -> None:
    values = np.random.default_rng(0).normal(size=500).tolist()
    seen: dict[int, float] = {}
    for length in range(1, 500):
        points = list(growing_points(curve(values[:length]), (0, 1), most))
        assert len(points) <= most
        for point in points:
            assert seen.setdefault(point.step, point.value) == pytest.approx(values[point.step])
    assert len(seen) <= most * (1 + math.ceil(math.log2(500 / most)) / 2)
    assert max(seen) >= 250
