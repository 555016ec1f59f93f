"""The hypercube boundary, compared with one run by autograd, the paper's ideal network and Figure 1."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.hypercube import Params, _data, task
from mislabel.tasks.misclassification.two_layers import evaluate
from mislabel.tasks.pack import Frame, Pack

SMALL = Params(
    dim=3, width=12, samples=6, test_samples=30, steps=1024, frames=5, learning_rate=0.1, noise_rate=0.1,
    smoothing=0.05, precision="float64",
)  # fmt: skip


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run with biases in both layers, with gradients by autograd, one sample at a time."""

    def __init__(self, params: Params, seed: int) -> None:
        p, lanes, steps = params, Lanes([params], [seed]), range(params.steps)
        self.params = p
        self.x, self.y = self.points(lanes, "train", p.samples)
        self.test_x, self.test_y = self.points(lanes, "test", p.test_samples)
        self.chosen = lanes.integers("sample", p.samples, steps=steps)[0]
        self.flips = lanes.uniform("flip", steps=steps)[0] < p.noise_rate / 2
        self.w, self.a = (
            (3**0.5 * (2 * lanes.uniform(name, *size)[0] - 1)).requires_grad_()
            for name, size in (("w", (p.dim, p.width)), ("a", (p.width,)))
        )
        self.b, self.c = (torch.zeros(size, dtype=torch.float64, requires_grad=True) for size in ((p.width,), ()))
        self.events = dict.fromkeys(
            ["interpolation_step", "interpolation_test_error", "interpolation_active_neurons"], np.nan
        )

    @staticmethod
    def points(lanes: Lanes[Params], name: str, count: int) -> tuple[Tensor, Tensor]:
        p = lanes.params[0]
        x = 2 * lanes.uniform(name, count, p.dim)[0] - 1
        faces, sides = lanes.integers(f"{name}.face", p.dim, count, 1)[0], lanes.sign(f"{name}.side", count, 1)[0]
        labels = lanes.sign(f"{name}.label", count)[0]
        for i in range(count):
            x[i, faces[i, 0]] = sides[i, 0]
            x[i] *= 1 if labels[i] > 0 else 1 - p.epsilon
        return x, labels

    def output(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.w + self.b) @ self.a + self.c

    def loss(self, x: Tensor, y: Tensor, wrong: float) -> Tensor:
        margin = y * self.output(x)
        return ((1 - wrong) * torch.log(1 + torch.exp(-margin)) + wrong * torch.log(1 + torch.exp(margin))).mean()

    def train(self, step: int) -> None:
        leaves, i = [self.w, self.a, self.b, self.c], self.chosen[step]
        y = self.y[i] * (-1 if self.flips[step] else 1)
        gradients = torch.autograd.grad(self.loss(self.x[i], y, self.params.smoothing / 2), leaves)
        for leaf, gradient in zip(leaves, gradients, strict=True):
            leaf.data -= self.params.learning_rate * gradient
        if (step + 1) % 16 == 0 and np.isnan(self.events["interpolation_step"]):
            metrics = self.metrics()
            if metrics["train_error"] == 0:
                self.events["interpolation_step"] = step + 1
                self.events["interpolation_test_error"] = metrics["test_error"]
                self.events["interpolation_active_neurons"] = metrics["active_neurons"]

    @torch.no_grad()
    def metrics(self) -> dict[str, Any]:
        p = self.params
        fires, test_fires = ((x @ self.w + self.b > 0).double() for x in (self.x, self.test_x))
        wrong = (1 - (1 - p.noise_rate) * (1 - p.smoothing)) / 2
        return {
            "train_error": (self.output(self.x) * self.y <= 0).double().mean().item(),
            "test_error": (self.output(self.test_x) * self.test_y <= 0).double().mean().item(),
            "train_loss": self.loss(self.x, self.y, 0).item(),
            "noisy_loss": self.loss(self.x, self.y, wrong).item(),
            "test_loss": self.loss(self.test_x, self.test_y, 0).item(),
            "active_neurons": fires.sum(dim=1).mean().item(),
            "active_share": fires.mean().item(),
            "test_active_neurons": test_fires.sum(dim=1).mean().item(),
            "dead_neurons": (test_fires.sum(dim=0) == 0).sum().item(),
            "first_norm": self.w.norm().item(),
            "output_norm": self.a.norm().item(),
            "bias_norm": self.b.norm().item(),
            "mean_bias": self.b.mean().item(),
            "max_bias": self.b.max().item(),
            "output_bias": self.c.item(),
            **self.events,
        }


@pytest.mark.long
def test_a_run_trains_like_autograd_on_one_sample_at_a_time() -> None:
    seeds = [2, 5]
    frames = frames_of([SMALL] * 2, seeds)
    for lane, seed in enumerate(seeds):
        plain, step = Plain(SMALL, seed), 0
        for frame in frames:
            while step < frame.step:
                plain.train(step)
                step += 1
            expected = plain.metrics()
            assert frame.metrics.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(
                    frame.metrics[name][lane], value, rtol=1e-7, atol=1e-9, err_msg=f"{name} at {step}"
                )
    assert np.isfinite(frames[-1].metrics["interpolation_step"]).any()


def test_points_lie_on_the_boundary_that_their_label_names() -> None:
    settings = [Params(dim=5, samples=2000, epsilon=epsilon) for epsilon in (0.3, 0.6)]
    data = _data(Lanes(settings, [0, 1]))
    for lane, params in enumerate(settings):
        x, y = data.x[lane, :, :5], data.y[lane]
        size = x.abs().amax(dim=1)
        torch.testing.assert_close(size, torch.where(y > 0, 1.0, 1 - params.epsilon))
        assert y.mean().abs().item() < 0.1
        faces = torch.bincount(x.abs().argmax(dim=1), minlength=5) / 2000
        torch.testing.assert_close(faces, torch.full((5,), 0.2), rtol=0, atol=0.04)
        assert ((x / size[:, None]).mean(dim=0).abs() < 0.07).all()
    assert (data.x[:, :, 5] == 1).all()


def test_the_papers_ideal_network_has_no_error_and_is_sparse() -> None:
    d, epsilon = 30, 0.3
    lanes = Lanes([Params(dim=d, width=2 * d, samples=400, epsilon=epsilon)], [0])
    data, eye = _data(lanes), torch.eye(d)
    biases = torch.full((1, 2 * d), -(1 - epsilon / 2))
    # The text has an output bias of -0.5 and d·ε active neurons; -ε/4 is right, and 1 + (d - 1)·ε/2 are active.
    ideal = {
        "w": torch.cat([torch.cat([eye, -eye], dim=1), biases])[None],
        "a": torch.ones(1, 2 * d),
        "c": torch.full((1,), -epsilon / 4),
    }
    assert evaluate(ideal, data.test_x).error(data.test_y).item() == 0
    outside = data.y[0] > 0
    active = evaluate(ideal, data.x[:, outside]).firing.sum().item()
    assert active == pytest.approx(1 + (d - 1) * epsilon / 2, rel=0.1)
    assert evaluate(ideal, data.x[:, ~outside]).firing.sum().item() == 0


def test_interpolation_metrics_equal_those_of_a_run_that_stops_there() -> None:
    params = replace(SMALL, dim=8, width=32, samples=32, steps=2048, noise_rate=0.0, precision="float32")
    end = frames_of([params] * 2, [0, 1])[-1].metrics
    for lane in range(2):
        step = int(end["interpolation_step"][lane])
        stopped = frames_of([replace(params, steps=step)] * 2, [0, 1])[-1].metrics
        assert stopped["train_error"][lane] == 0
        assert stopped["test_error"][lane] == end["interpolation_test_error"][lane]
        assert stopped["active_neurons"][lane] == end["interpolation_active_neurons"][lane]


def test_a_rate_that_is_too_large_diverges_alone_and_does_not_interpolate() -> None:
    params = replace(SMALL, dim=20, width=80, samples=80, precision="float32")
    frames = frames_of([replace(params, learning_rate=50.0), params], [0, 0])
    ends = [frame for frame in frames if frame.diverged.any()]
    assert [frame.labels[frame.diverged].tolist() for frame in ends] == [[0]]
    assert np.isnan(ends[0].metrics["interpolation_step"][0])
    assert frames[-1].labels.tolist() == [1]


def interval(values: np.ndarray) -> tuple[float, float]:
    low, high = stats.t.interval(0.99, len(values) - 1, values.mean(), stats.sem(values))
    return float(low), float(high)


@pytest.mark.claims
def test_label_noise_makes_the_network_sparser_and_lowers_its_test_error() -> None:
    params = Params(dim=16, width=64, samples=64, learning_rate=1 / 16, steps=30_000, frames=2, test_samples=500)
    end = frames_of([replace(params, noise_rate=rate) for rate in (0.0, 0.2) for _ in range(8)], [*range(8)] * 2)[-1]
    without, noisy = ({name: values[half] for name, values in end.metrics.items()} for half in (slice(8), slice(8, 16)))
    assert (without["train_error"] == 0).all()
    assert interval(noisy["train_error"])[1] < 0.05
    assert interval(noisy["active_share"])[1] < 0.25
    assert interval(without["active_share"])[0] > 0.4
    assert interval(without["test_error"] - noisy["test_error"])[0] > 0.05
    assert (noisy["interpolation_step"] > without["interpolation_step"]).all()
    assert interval((without["interpolation_active_neurons"] - noisy["interpolation_active_neurons"]) / 64)[0] > 0.05


@pytest.mark.claims
def test_without_biases_label_noise_does_not_help() -> None:
    params = Params(dim=16, width=64, samples=64, learning_rate=1 / 16, steps=10_000, frames=2, biases="none")
    end = frames_of([replace(params, noise_rate=rate) for rate in (0.0, 0.2) for _ in range(8)], [*range(8)] * 2)[-1]
    # Both cubes have the same directions, and without biases the sign of the output depends only on the direction.
    np.testing.assert_allclose(end.metrics["test_error"], 0.5, atol=0.07)
