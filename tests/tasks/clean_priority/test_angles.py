"""Angles between derivatives, compared with derivatives by torch.func."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.analysis.theory import clean_priority as theory
from mislabel.tasks.clean_priority.angles import Params, _circle, _clusters, _passes, _products, _share_below, task
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Pack

TINY = Params(width=9, angles=5, cluster_points=3, precision="float64")


def measured(settings: list[Params], seeds: list[int]) -> dict[str, np.ndarray]:
    frame = Pack(task, Lanes(settings, seeds)).advance(seconds=math.inf)[-1]
    return {**frame.metrics, **frame.arrays}


def weights_of(params: Params, seed: int) -> dict[str, Tensor]:
    lanes, sizes = Lanes([params], [seed]), [2, *[params.width] * params.hidden_layers, 1]
    return {f"w{i}": lanes.normal(f"w{i}", sizes[i], sizes[i - 1])[0] for i in range(1, len(sizes))}


def output(params: Params, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """h(x) as in Equation 12."""
    *hidden, last = weights.values()
    for w in hidden:
        x = w @ x
        x = torch.relu(x) * (2 / params.width) ** 0.5 if params.activation == "relu" else x / params.width**0.5
    return (last @ x)[0]


def derivatives(params: Params, seed: int, inputs: Tensor) -> Tensor:
    """∇h at each input, as one vector."""
    weights = weights_of(params, seed)
    rows = torch.func.vmap(torch.func.grad(lambda w, x: output(params, w, x)), in_dims=(None, 0))(weights, inputs)
    return torch.cat([rows[name].flatten(1) for name in weights], dim=1)


def angle(one: Tensor, other: Tensor) -> float:
    # From half the chord, because arccos loses small angles.
    one, other = one / one.norm(), other / other.norm()
    return float(2 * torch.atan2((one - other).norm(), (one + other).norm()))


NETWORKS = [(activation, layers) for activation in ("relu", "linear") for layers in (1, 2, 4)]


@pytest.mark.parametrize(("activation", "layers"), NETWORKS)
def test_products_of_derivatives_are_those_of_torch_func(activation: str, layers: int) -> None:
    params = replace(TINY, activation=activation, hidden_layers=layers)
    lanes = Lanes([params] * 2, [3, 4])
    x = lanes.normal("inputs", 6, 2)
    found = _products(*_passes(lanes, x))
    for lane in range(2):
        rows = derivatives(params, lane + 3, x[lane])
        torch.testing.assert_close(found[lane], rows @ rows.T, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("activation", "layers"), NETWORKS)
def test_measurements_equal_the_slow_reference(activation: str, layers: int) -> None:
    params = replace(TINY, activation=activation, hidden_layers=layers, cluster_angle=1.0, spread=0.3)
    found = measured([replace(params, spread=0.1), params], [1, 2])
    lanes, n = Lanes([params], [2]), params.cluster_points
    circle, clusters = _circle(lanes), _clusters(lanes)[0]
    rows, points = derivatives(params, 2, circle), derivatives(params, 2, clusters)
    theta_d = [np.pi * i / (params.angles - 1) for i in range(params.angles)]
    theta_h = [angle(rows[0], row) for row in rows]
    wide = theory.gradient_angle(theta_d, layers, activation)
    within = [angle(points[i + c], points[j + c]) for c in (0, n) for i in range(n) for j in range(i + 1, n)]
    between = [angle(points[i], points[j]) for i in range(n) for j in range(n, 2 * n)]
    neighbours = [angle(one, other) for one, other in pairwise(rows)]
    features = circle
    for w in list(weights_of(params, 2).values())[:-1]:
        features = features @ w.T if activation == "linear" else torch.relu(features @ w.T)
    wide_features = theory.feature_angle(theta_d, layers) if activation == "relu" else np.array(theta_d)
    expected: dict[str, Any] = {
        "max_deviation": np.abs(theta_h - wide).max(),
        "mean_deviation": np.abs(theta_h - wide).mean(),
        "max_feature_deviation": np.abs([angle(features[0], row) for row in features] - wide_features).max(),
        "rising_share": np.mean([theta_h[1] > theta_h[0], theta_h[2] > theta_h[1]]),
        "neighbour_angle": np.mean(neighbours),
        "small_angle_slope": np.mean(1 - np.cos(neighbours) / np.cos(theta_d[1])) / theta_d[1],
        "within_angle": np.mean(within),
        "between_angle": np.mean(between),
        "separated_share": np.mean([low < high for low in within for high in between]),
        "theta_d": theta_d,
        "theta_h": theta_h,
        "theta_h_wide": wide,
        "within_angles": within,
        "between_angles": between,
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(found[name][1], value, rtol=1e-7, atol=1e-7, err_msg=name)


def test_clusters_lie_around_two_points_of_the_circle() -> None:
    params = Params(cluster_points=4000, cluster_angle=2.0, spread=0.2, precision="float64")
    one, other = _clusters(Lanes([params], [0]))[0].view(2, 4000, 2)
    means = torch.stack([one.mean(dim=0), other.mean(dim=0)])
    assert means.norm(dim=1).tolist() == pytest.approx([1, 1], abs=0.02)
    assert angle(means[0], means[1]) == pytest.approx(2.0, abs=0.02)
    assert one.std(dim=0).tolist() == pytest.approx([0.2, 0.2], rel=0.05)


def test_pairs_within_are_compared_with_all_pairs_between() -> None:
    low, high = torch.rand(3, 20).double(), torch.rand(3, 30).double() + 0.2
    expected = (low[:, :, None] < high[:, None]).double().mean(dim=(1, 2))
    torch.testing.assert_close(_share_below(low, high), expected)


def test_the_angle_between_equal_inputs_is_0_in_single_precision() -> None:
    found = measured([Params(width=64, hidden_layers=4)], [0])
    assert found["theta_h"][0, 0] < 1e-6


def test_scaling_the_inputs_changes_no_angle() -> None:
    lanes = Lanes([TINY], [0])
    x = lanes.normal("inputs", 6, 2)
    one, other = (_products(*_passes(lanes, scale * x)) for scale in (1.0, 3.0))
    torch.testing.assert_close(other, 9 * one)


@pytest.mark.claims
@pytest.mark.parametrize(("activation", "layers"), NETWORKS)
def test_angles_converge_to_the_closed_form_with_width(activation: str, layers: int) -> None:
    narrow, wide = (
        Params(activation=activation, hidden_layers=layers, width=width, angles=61, cluster_points=2)
        for width in (32, 512)
    )
    seeds = list(range(12))
    deviation = {params: measured([params] * len(seeds), seeds)["max_deviation"].mean() for params in (narrow, wide)}
    assert deviation[wide] < 0.15
    # The deviation falls as 1/√width, so 16 times the width leaves a quarter of it.
    assert deviation[wide] < 0.5 * deviation[narrow]


@pytest.mark.claims
def test_up_to_90_degrees_the_angle_increases_with_that_of_the_inputs() -> None:
    params = Params(hidden_layers=2, angles=37, cluster_points=2)
    found = measured([params] * 4, list(range(4)))
    assert (found["rising_share"] == 1).all()
    # Beyond 90° it need not: at 180° θ_h is smaller than its largest value.
    assert (found["theta_h"][:, -1] < found["theta_h"].max(axis=1)).all()


@pytest.mark.claims
def test_derivatives_are_closer_within_a_cluster_than_between_two() -> None:
    found = measured([Params(angles=3)] * 4, list(range(4)))
    assert (found["separated_share"] > 0.999).all()
    assert (found["within_angle"] < 0.3 * found["between_angle"]).all()
