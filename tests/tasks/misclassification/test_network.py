"""Two-layer networks under label noise, compared with one run by autograd; Figures 3 and 4."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.gaussian import gaussian_inputs
from mislabel.tasks.misclassification.network import Params, task
from mislabel.tasks.pack import Frame, Pack

SETTINGS: dict[str, Any] = {
    "dim": 4, "width": 6, "steps": 75, "frames": 5, "snapshots": 5, "test_samples": 40, "precision": "float64",
}  # fmt: skip
BIASED = Params(**SETTINGS, learning_rate=0.1, noise_rate=0.4, smoothing=0.2, bias_scale=0.5)
HINGE = Params(**SETTINGS, learning_rate=0.05, noise_rate=1.0, loss="hinge", biases="none", init_scale=0.5)
FIRST = Params(
    **SETTINGS, learning_rate=0.2, noise_rate=0.1, hinge_offset=0.5, loss="hinge", biases="hidden", trained="first"
)


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run with gradients by autograd, one sample at a time."""

    def __init__(self, params: Params, seed: int) -> None:
        p, lanes, steps = params, Lanes([params], [seed]), range(params.steps)
        self.params = p
        self.x = gaussian_inputs(lanes, "x", steps, ending=False)[0]
        self.test_x = gaussian_inputs(lanes, "test", range(p.test_samples), ending=False)[0]
        self.flips = lanes.uniform("flip", steps=steps)[0] < p.noise_rate / 2

        def start(name: str, scale: float, *size: int) -> Tensor:
            return (scale * 3**0.5 * (2 * lanes.uniform(name, *size)[0] - 1)).requires_grad_()

        self.w = start("w", p.init_scale, p.dim, p.width)
        self.a = start("a", p.output_scale, p.width)
        self.b = start("b", p.bias_scale if p.biases != "none" else 0.0, p.width)
        self.c = start("c", p.bias_scale if p.biases == "both" else 0.0)

    def hidden(self, x: Tensor) -> Tensor:
        return self.w.T @ x + self.b

    def output(self, x: Tensor) -> Tensor:
        return self.a @ torch.relu(self.hidden(x)) + self.c

    def loss(self, x: Tensor, y: Tensor, wrong: float) -> Tensor:
        """The loss if the label is -y with probability `wrong`."""
        f, edge = self.output(x), self.params.hinge_offset
        if self.params.loss == "logistic":
            return (1 - wrong) * torch.log(1 + torch.exp(-y * f)) + wrong * torch.log(1 + torch.exp(y * f))
        return (1 - wrong) * torch.relu(edge - y * f) + wrong * torch.relu(edge + y * f)

    def train(self, step: int) -> None:
        p, x = self.params, self.x[step]
        trained = [self.w]
        if p.biases != "none":
            trained.append(self.b)
        if p.trained == "both":
            trained.append(self.a)
            if p.biases == "both":
                trained.append(self.c)
        y = torch.sign(x[0]) * (-1 if self.flips[step] else 1)
        for leaf, gradient in zip(trained, torch.autograd.grad(self.loss(x, y, p.smoothing / 2), trained), strict=True):
            leaf.data -= p.learning_rate * gradient

    @torch.no_grad()
    def metrics(self) -> dict[str, Any]:
        p = self.params
        labels = torch.sign(self.test_x[:, 0])
        f = torch.stack([self.output(x) for x in self.test_x])
        fires = torch.stack([self.hidden(x) > 0 for x in self.test_x]).double()
        wrong = (1 - (1 - p.noise_rate) * (1 - p.smoothing)) / 2
        points = list(zip(self.test_x, labels, strict=True))
        return {
            "noisy_loss": torch.stack([self.loss(x, y, wrong) for x, y in points]).mean(),
            "test_loss": torch.stack([self.loss(x, y, 0) for x, y in points]).mean(),
            "test_error": (f * labels <= 0).double().mean(),
            "mean_output": f.abs().mean(),
            "active_neurons": fires.sum(dim=1).mean(),
            "active_share": fires.mean(),
            "dead_neurons": (fires.sum(dim=0) == 0).sum(),
            "first_norm": self.w.square().sum().sqrt(),
            "output_norm": self.a.square().sum().sqrt(),
            "bias_norm": self.b.square().sum().sqrt(),
            "mean_bias": self.b.mean(),
            "max_bias": self.b.max(),
            "output_bias": self.c,
            "neuron_norm": self.w.square().sum(dim=0).sqrt(),
            "neuron_bias": self.b,
            "neuron_output_weight": self.a,
            "neuron_firing": fires.mean(dim=0),
        }


@pytest.mark.parametrize("params", [BIASED, HINGE, FIRST], ids=["biases", "hinge without biases", "first layer"])
def test_a_run_trains_like_autograd_on_one_sample_at_a_time(params: Params) -> None:
    seeds = [3, 4]
    frames = frames_of([params] * 2, seeds)
    for lane, seed in enumerate(seeds):
        plain, step = Plain(params, seed), 0
        for frame in frames:
            while step < frame.step:
                plain.train(step)
                step += 1
            found, expected = {**frame.metrics, **frame.arrays}, plain.metrics()
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(
                    found[name][lane], value.detach().numpy(), rtol=1e-8, atol=1e-11, err_msg=f"{name} at {step}"
                )


def test_single_precision_follows_double_precision() -> None:
    settings = [Params(dim=10, width=20, learning_rate=0.01, steps=300, precision=p) for p in ("float32", "float64")]
    single, double = (frames_of([params], [0])[-1] for params in settings)
    for name in ("noisy_loss", "first_norm", "output_norm", "mean_bias"):
        np.testing.assert_allclose(single.metrics[name], double.metrics[name], rtol=1e-3)


def test_a_rate_that_is_too_large_diverges_alone() -> None:
    small: dict[str, Any] = {"dim": 10, "width": 20, "steps": 300, "test_samples": 20}
    frames = frames_of([Params(**small, learning_rate=50.0), Params(**small, learning_rate=0.01)], [0, 0])
    assert [frame.labels[frame.diverged].tolist() for frame in frames if frame.diverged.any()] == [[0]]
    assert frames[-1].labels.tolist() == [1]


def withered(**settings: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Metrics of eight small networks before and after pure label noise."""
    params = Params(**{"dim": 6, "width": 24, "learning_rate": 1 / 6, "frames": 2, **settings})
    first, last = frames_of([params] * 8, range(8))
    return dict(first.metrics), dict(last.metrics)


def interval(values: np.ndarray) -> tuple[float, float]:
    low, high = stats.t.interval(0.99, len(values) - 1, values.mean(), stats.sem(values))
    return float(low), float(high)


@pytest.mark.claims
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_without_biases_weights_decay_and_neurons_keep_firing(loss: str) -> None:
    before, after = withered(loss=loss, biases="none", learning_rate=1 / 12, steps=40_000)
    for name in ("first_norm", "output_norm"):
        assert interval(after[name] / before[name])[1] < 0.1, name
    assert interval(after["mean_output"] / before["mean_output"])[1] < 0.02
    np.testing.assert_allclose(after["active_share"], 0.5, atol=0.1)


@pytest.mark.claims
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_with_biases_weights_stay_and_neurons_stop_firing(loss: str) -> None:
    before, after = withered(loss=loss, biases="both", steps=30_000)
    assert interval(after["first_norm"] / before["first_norm"])[0] > 0.15
    assert interval(after["max_bias"])[1] < -0.5
    assert interval(after["active_share"])[1] < 0.01
    assert (before["active_share"] > 0.45).all()


@pytest.mark.claims
def test_weights_vanish_faster_with_the_hinge_than_with_cross_entropy() -> None:
    hinge, logistic = (
        withered(loss=loss, biases="none", learning_rate=1 / 36, steps=60_000)[1]["first_norm"]
        for loss in ("hinge", "logistic")
    )
    assert interval(hinge)[1] < 0.1 * interval(logistic)[0]
