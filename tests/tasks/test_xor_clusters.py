"""XOR clusters, compared with one run trained by autograd and measured point by point."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.xor_clusters import CAPTURED, GRID, REACH, Params, _data, _inputs, _make_data, conflicts, task

LOW = Params(samples=24, dim=6, width=10, test_samples=20, steps=30, step_size=0.3, precision="float64", frames=8)
HIGH = Params(samples=16, dim=60, width=20, test_samples=20, steps=500, step_size=2.0, precision="float64", frames=8)

ARRAYS = [name for name, metric in task.metrics.items() if metric.per]


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run with gradients by autograd."""

    def __init__(self, params: Params, seed: int) -> None:
        p, lanes = params, Lanes([params], [seed])
        self.params = p
        self.x, self.clean, self.given = self.points(lanes, "train", p.samples)
        self.test_x, self.test_clean, self.test_given = self.points(lanes, "test", p.test_samples)
        self.a = torch.tensor([1.0] * (p.width // 2) + [-1.0] * (p.width // 2), dtype=torch.float64) / p.width**0.5
        self.w = lanes.normal("w", p.width, p.dim)[0] * p.init_scale / (p.width * p.dim) ** 0.5
        self.start = self.w.clone()
        self.early = 1 + int(np.ceil(1 / (4 * p.step_size)))
        self.events = dict.fromkeys(["interpolation_step", *(name for name in task.metrics if "early" in name)], np.nan)
        self.note(0)

    @staticmethod
    def points(lanes: Lanes[Params], name: str, count: int) -> tuple[Tensor, Tensor, Tensor]:
        p = lanes.params[0]
        x = lanes.normal(name, p.dim, steps=range(count))[0] * (1 / p.dim**p.spread) ** 0.5
        clean, given = torch.ones(count, dtype=torch.float64), torch.ones(count, dtype=torch.float64)
        size = count // 4
        for i in range(count):
            cluster = i // size
            x[i, cluster // 2] += 1 if cluster % 2 == 0 else -1
            clean[i] = 1 if cluster < 2 else -1
            given[i] = -clean[i] if i % size < round(p.noise_rate * size) else clean[i]
        return x, clean, given

    def outputs(self, w: Tensor, x: Tensor) -> Tensor:
        f: Tensor = torch.relu(x @ w.T) @ self.a
        return f

    def train(self, step: int) -> None:
        w = self.w.clone().requires_grad_()
        torch.log(1 + torch.exp(-self.given * self.outputs(w, self.x))).mean().backward()
        assert w.grad is not None
        self.w = self.w - self.params.step_size * w.grad
        self.note(step + 1)

    def note(self, step: int) -> None:
        metrics = self.accuracies()
        if metrics["train_accuracy"] == 1 and np.isnan(self.events["interpolation_step"]):
            self.events["interpolation_step"] = step
        if step == self.early:
            self.events |= {f"early_{name}": metrics[name] for name in metrics if f"early_{name}" in self.events}

    def accuracies(self) -> dict[str, float]:
        right = self.given * self.outputs(self.w, self.x) > 0
        noisy, test = self.given != self.clean, self.outputs(self.w, self.test_x)
        return {
            "train_accuracy": right.double().mean().item(),
            "clean_accuracy": right[~noisy].double().mean().item(),
            "noisy_accuracy": right[noisy].double().mean().item(),
            "test_accuracy": (self.test_given * test > 0).double().mean().item(),
            "clean_test_accuracy": (self.test_clean * test > 0).double().mean().item(),
        }

    def plane(self) -> np.ndarray:
        places = np.linspace(-REACH, REACH, GRID)
        points = torch.zeros(GRID**2, self.params.dim, dtype=torch.float64)
        points[:, :2] = torch.tensor([(u, v) for u in places for v in places])
        outputs: np.ndarray = (torch.relu(points @ self.w.T) @ self.a).detach().numpy()
        return outputs

    def metrics(self) -> dict[str, Any]:
        p, margins = self.params, self.given * self.outputs(self.w, self.x)
        cosines = self.w[:, :2] / self.w.norm(dim=1, keepdim=True)
        own = torch.tensor([cosines[j, 0 if self.a[j] > 0 else 1] for j in range(p.width)])
        features, features_at_start = torch.relu(self.x @ self.w.T), torch.relu(self.x @ self.start.T)
        seen = features_at_start.norm(dim=1) > 0
        change = ((features - features_at_start).norm(dim=1) / features_at_start.norm(dim=1))[seen]
        linear = torch.linalg.pinv(self.x) @ self.given
        return {
            "train_loss": torch.log(1 + torch.exp(-margins)).mean().item(),
            "margin": margins.min().item(),
            "clean_margin": margins[self.given == self.clean].min().item(),
            "noisy_margin": margins[self.given != self.clean].max().item(),
            **self.accuracies(),
            "linear_test_accuracy": (self.test_given * (self.test_x @ linear) > 0).double().mean().item(),
            "weight_norm": self.w.square().sum().sqrt().item(),
            "smallest_neuron_norm": self.w.norm(dim=1).min().item() * p.width**0.5,
            "largest_neuron_norm": self.w.norm(dim=1).max().item() * p.width**0.5,
            "correlated_share": float(
                np.mean([abs(w[0].item()) >= p.init_scale / (p.width * p.dim) ** 0.5 / 20 for w in self.w])
            ),
            "cluster_radius": self.radius(),
            "mean_correlation": own.abs().mean().item(),
            "captured_share": (own.abs() > CAPTURED).double().mean().item(),
            **self.conditions(),
            "min_feature_change": change.min().item(),
            "mean_feature_change": change.mean().item(),
            "first_correlation": cosines[:, 0].numpy(),
            "second_correlation": cosines[:, 1].numpy(),
            "plane_output": self.plane(),
            "first_coordinate": self.x[:, 0].numpy(),
            "second_coordinate": self.x[:, 1].numpy(),
            "given_label": self.given.numpy(),
            **self.events,
        }

    def radius(self) -> float:
        p, largest = self.params, 0.0
        for i in range(p.samples):
            around = self.x[i].clone()
            cluster = i // (p.samples // 4)
            around[cluster // 2] -= 1 if cluster % 2 == 0 else -1
            largest = max(largest, around.square().sum().item() / (p.dim * p.dim**-p.spread))
        return largest

    def conditions(self) -> dict[str, float]:
        p, size = self.params, self.params.samples // 4
        aligned, orthogonal, edges, chosen, sizes = [], [], [], [], [0, 0, 0, 0]
        for j in range(p.width):
            own = 0 if self.a[j] > 0 else 1
            correlation = (self.start[j, own] / self.start[j].norm()).item()
            if abs(correlation) <= 1 / (30 * p.dim**0.5):
                continue
            mine, opposite = (2 * own, 2 * own + 1) if correlation > 0 else (2 * own + 1, 2 * own)
            fires = [bool(self.x[i] @ self.w[j] > 0) for i in range(p.samples)]
            mine_fire = fires[mine * size : (mine + 1) * size]
            opposite_fire = fires[opposite * size : (opposite + 1) * size]
            aligned.append(all(mine_fire) and not any(opposite_fire))
            orthogonal.append(abs(self.w[j, 1 - own].item()) <= 3 * p.step_size * abs(self.a[j].item()))
            clean = [fires[i] and bool(self.given[i] == self.clean[i]) for i in range(p.samples)]
            counts = [sum(clean[cluster * size : (cluster + 1) * size]) for cluster in (mine, opposite)]
            edges.append((counts[0] - counts[1]) / p.samples)
            chosen.append(j)
            sizes[mine] += 1
        margins = self.given * (torch.relu(self.x @ self.w[chosen].T) @ self.a[chosen])
        return {
            "alignment_share": float(np.mean(aligned)),
            "orthogonality_share": float(np.mean(orthogonal)),
            "candidate_share": min(sizes) / (p.width / 4),
            "smallest_edge": min(edges),
            "subnetwork_clean_margin": margins[self.given == self.clean].min().item(),
            "subnetwork_noisy_margin": margins[self.given != self.clean].max().item(),
        }


@pytest.mark.long
@pytest.mark.parametrize("params", [LOW, HIGH], ids=["more points than dimensions", "more dimensions than points"])
def test_a_run_equals_the_slow_reference(params: Params) -> None:
    seeds = [1, 2]
    frames = frames_of([params] * 2, seeds)
    measured = {}
    for lane, seed in enumerate(seeds):
        plain, step = Plain(params, seed), 0
        for frame in frames:
            while step < frame.step:
                plain.train(step)
                step += 1
            expected = plain.metrics()
            measured = {**frame.metrics, **frame.arrays}
            for name in measured.keys() & expected.keys():
                np.testing.assert_allclose(
                    measured[name][lane], expected[name], rtol=1e-8, atol=1e-10, err_msg=f"{name} at step {step}"
                )
        assert expected.keys() - set(ARRAYS) == measured.keys()
    assert np.isfinite(frames[-1].metrics["early_clean_accuracy"]).all()


def test_the_reference_interpolates_where_there_are_more_dimensions_than_points() -> None:
    first = frames_of([HIGH] * 2, [1, 2])[-1].metrics["interpolation_step"]
    assert (first > 0).all()
    assert (first < HIGH.steps).all()


def test_single_neurons_are_measured_at_snapshots() -> None:
    last = frames_of([Params(**{**vars(LOW), "snapshots": 1})], [1])[-1]
    plain = Plain(LOW, 1)
    for step in range(LOW.steps):
        plain.train(step)
    for name in ARRAYS:
        np.testing.assert_allclose(last.arrays[name][0], plain.metrics()[name], rtol=1e-8)


@pytest.mark.parametrize("params", [LOW, HIGH], ids=["low", "high"])
def test_training_on_the_gram_matrix_equals_training_on_the_weights(params: Params) -> None:
    results = []
    for on_gram in (False, True):
        lanes = Lanes([params] * 3, range(3))
        lanes.once("data", partial(_make_data, lanes, on_gram))
        assert (_data(lanes).train.base is not None) == on_gram
        results.append(task.measure(lanes, task.advance(lanes, task.init(lanes), 0, params.steps)))
    for name, on_weights in results[0].items():
        torch.testing.assert_close(results[1][name], on_weights, rtol=1e-8, atol=1e-10, equal_nan=True, msg=name)


def test_the_smaller_matrix_is_trained() -> None:
    low, high = Lanes([LOW], [0]), Lanes([HIGH], [0])
    assert task.init(low)["c"].shape == (1, LOW.width, LOW.dim)
    assert task.init(high)["c"].shape == (1, HIGH.width, HIGH.samples)


@pytest.mark.parametrize(("rate", "flipped"), [(0.0, 0), (0.15, 3), (0.16, 3), (0.5, 10)])
def test_the_same_number_of_labels_is_flipped_in_each_cluster(rate: float, flipped: int) -> None:
    train = _data(Lanes([Params(samples=80, test_samples=4, noise_rate=rate)], [0])).train
    wrong = (train.given != train.clean).view(4, 20).sum(dim=1)
    assert wrong.tolist() == [flipped] * 4
    assert train.clean.view(4, 20)[:, 0].tolist() == [1, 1, -1, -1]


def test_the_settings_of_figure_1_are_expressed_by_spread_and_init_scale() -> None:
    params = Params(samples=4000, dim=2, width=500, test_samples=4, spread=np.log2(50), init_scale=0.25)
    lanes = Lanes([params], [0])
    around = _inputs(lanes, "train", 4000, range(4000))[0, :1000] - torch.tensor([1.0, 0.0])
    assert around.square().mean().item() == pytest.approx(1 / 50, rel=0.1)
    assert _data(lanes).start.square().mean().item() == pytest.approx(1 / (32 * 500), rel=0.15)


def test_without_flipped_points_there_is_no_noisy_margin() -> None:
    measured = frames_of([Params(**{**vars(LOW), "noise_rate": 0.0})], [1])[-1].metrics
    assert np.isnan(measured["noisy_margin"]).all()
    assert np.isnan(measured["subnetwork_noisy_margin"]).all()
    np.testing.assert_allclose(measured["clean_margin"], measured["margin"])


def test_early_values_are_those_at_each_lanes_own_stopping_step() -> None:
    def params(step_size: float, steps: int) -> Params:
        return Params(samples=40, dim=6, width=20, test_samples=40, steps=steps, frames=20, step_size=step_size)

    # T = 1 + 1/(4·step_size): 3.5 is rounded up, 6 is 6 although 0.05 is not exact, and 26 is never reached.
    early_steps = {0.1: 4, 0.05: 6, 0.01: 26}
    last = frames_of([params(step_size, 20) for step_size in early_steps], [0, 0, 0])[-1]
    for lane, (step_size, early_step) in enumerate(early_steps.items()):
        stopped = frames_of([params(step_size, early_step)], [0])[-1]
        for name in ("clean_accuracy", "noisy_accuracy", "test_accuracy", "clean_test_accuracy"):
            expected = stopped.metrics[name][0] if early_step <= 20 else np.nan
            np.testing.assert_equal(last.metrics[f"early_{name}"][lane], expected)
            np.testing.assert_equal(stopped.metrics[f"early_{name}"][0], stopped.metrics[name][0])


@pytest.mark.parametrize("clusters", ["gaussian", "laplace", "uniform"])
def test_every_cluster_distribution_has_the_declared_mean_and_variance(clusters: str) -> None:
    lanes = Lanes([Params(dim=50, spread=1.0, clusters=clusters)], [0])
    x = _inputs(lanes, "train", 4000, range(4000))[0].view(4, 1000, 50)
    means = torch.zeros(4, 50)
    means[[0, 1, 2, 3], [0, 0, 1, 1]] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    torch.testing.assert_close(x.mean(dim=1), means, rtol=0, atol=5 / np.sqrt(50 * 1000))
    assert (x - means[:, None]).square().mean().item() == pytest.approx(1 / 50, rel=0.02)
    kurtosis = (x - means[:, None]).pow(4).mean().item() * 50**2
    assert kurtosis == pytest.approx({"gaussian": 3, "laplace": 6, "uniform": 1.8}[clusters], rel=0.1)


def test_points_drawn_in_parts_are_the_same() -> None:
    lanes = Lanes([Params(dim=3)], [0])
    whole = _inputs(lanes, "test", 40, range(40))
    torch.testing.assert_close(
        torch.cat([_inputs(lanes, "test", 40, range(i, i + 8)) for i in range(0, 40, 8)], 1), whole
    )


def test_sizes_that_cannot_be_split_are_refused() -> None:
    assert list(conflicts(Params())) == []
    assert list(conflicts(Params(samples=10, test_samples=6, width=7))) == [
        "samples: 10 points can't be split into four equal clusters; make it a multiple of 4",
        "test_samples: 6 points can't be split into four equal clusters; make it a multiple of 4",
        "width: 7 neurons can't be split into two equal halves; make it even",
    ]


def claim(seeds: int = 8, **settings: Any) -> list[dict[str, np.ndarray]]:
    params = Params(**{"samples": 200, "dim": 50, "width": 100, "test_samples": 2000, "frames": 4, **settings})
    return [dict(frame.metrics) for frame in frames_of([params] * seeds, range(seeds))]


@pytest.mark.claims
@pytest.mark.parametrize("clusters", ["gaussian", "laplace", "uniform"])
def test_at_step_T_every_clean_point_is_right_and_every_noisy_point_is_wrong(clusters: str) -> None:
    last = claim(steps=4, clusters=clusters)[-1]
    assert (last["early_clean_accuracy"] == 1).all()
    assert (last["early_noisy_accuracy"] == 0).all()
    np.testing.assert_allclose(last["early_test_accuracy"], 0.85, atol=0.01)


@pytest.mark.claims
def test_a_linear_classifier_is_at_chance() -> None:
    accuracy = claim(steps=1, seeds=32)[-1]["linear_test_accuracy"]
    assert accuracy.mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.claims
def test_after_one_step_from_small_weights_most_neurons_are_correlated_with_a_mean() -> None:
    before, after = claim(steps=1, init_scale=0.001)
    assert (before["captured_share"] < 0.05).all()
    assert (after["captured_share"] > 0.5).all()
    assert (after["alignment_share"] > 0.75).all()
    assert (after["orthogonality_share"] == 1).all()


@pytest.mark.claims
def test_smaller_initial_weights_mean_larger_changes_of_the_features() -> None:
    changes = [claim(steps=4, init_scale=scale)[-1]["min_feature_change"].mean() for scale in (0.1, 0.01, 0.001)]
    assert changes[1] > 5 * changes[0]
    assert changes[2] > 5 * changes[1]


@pytest.mark.claims
def test_overfitting_lowers_accuracy_only_in_low_dimension() -> None:
    few: dict[str, Any] = {"samples": 80, "steps": 4000, "step_size": 1.0, "frames": 12, "seeds": 4}
    low, high = claim(dim=8, **few), claim(dim=400, **few)
    accuracy = np.array([frame["test_accuracy"].mean() for frame in low])
    assert accuracy[-1] < accuracy.max() - 0.04
    assert (low[-1]["noisy_accuracy"] > 0.3).all()
    assert (high[-1]["interpolation_step"] < 4000).all()
    np.testing.assert_allclose(high[-1]["test_accuracy"], 0.85, atol=0.005)
