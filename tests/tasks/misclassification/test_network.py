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
from mislabel.tasks.misclassification.network import Params, conflicts, task
from mislabel.tasks.pack import Frame, Pack

SETTINGS: dict[str, Any] = {
    "dim": 4, "width": 6, "steps": 75, "frames": 5, "snapshots": 5, "test_samples": 40, "precision": "float64",
}  # fmt: skip
BIASED = Params(**SETTINGS, learning_rate=0.1, noise_rate=0.4, smoothing=0.2, bias_scale=0.5)
HINGE = Params(**SETTINGS, learning_rate=0.05, noise_rate=1.0, loss="hinge", biases="none", init_scale=0.5)
FIRST = Params(
    **SETTINGS, learning_rate=0.2, noise_rate=0.1, hinge_offset=0.5, loss="hinge", biases="hidden", trained="first"
)

DEEP = Params(**SETTINGS, learning_rate=0.02, noise_rate=0.8, biases="none", depth=4, loss="logistic", init_scale=0.7)


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
        self.v = start("v", p.init_scale, p.depth - 2, p.width, p.width)

    def hidden(self, x: Tensor) -> Tensor:
        """The preactivations of the last hidden layer."""
        h = self.w.T @ x + self.b
        for layer in self.v:
            h = layer.T @ torch.relu(h)
        return h

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
        if p.depth > 2:
            trained.append(self.v)
        if p.trained == "both":
            trained.append(self.a)
            if p.biases == "both":
                trained.append(self.c)
        y = torch.sign(x[0]) * (-1 if self.flips[step] else 1)
        for leaf, gradient in zip(trained, torch.autograd.grad(self.loss(x, y, p.smoothing / 2), trained), strict=True):
            leaf.data -= p.learning_rate * gradient

    def norms(self) -> Tensor:
        """The norm of each layer, the first one with its biases."""
        first = torch.cat([self.w.flatten(), self.b])
        return torch.stack([part.norm() for part in (first, *self.v, self.a)]).detach()

    def shrinks(self, x: Tensor) -> bool:
        """Whether a step on x with the wrong label lowers the norm of every layer, all of which are trained."""
        layers, before = [self.w, self.b, self.v, self.a], self.norms()
        with torch.enable_grad():
            loss = self.loss(x, -torch.sign(self.output(x)).detach(), 0)
            gradients = torch.autograd.grad(loss, layers, allow_unused=True)
        kept = [layer.data.clone() for layer in layers]
        for layer, gradient in zip(layers, gradients, strict=True):
            if gradient is not None and not (layer is self.b and self.params.biases == "none"):
                layer.data -= self.params.learning_rate * gradient
        after = self.norms()
        for layer, value in zip(layers, kept, strict=True):
            layer.data = value
        return bool((after < before).all())

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
            "shrinking_share": torch.tensor([float(self.shrinks(x)) for x in self.test_x[f != 0]]).double().mean(),
            "layer_norm": self.norms(),
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


@pytest.mark.long
@pytest.mark.parametrize("params", [BIASED, HINGE, FIRST, DEEP], ids=["biases", "hinge", "first layer", "deep"])
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


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_a_small_step_with_a_wrong_label_lowers_the_norm_of_every_layer(depth: int) -> None:
    """Theorem 1. A large step does not."""
    shared: dict[str, Any] = {"dim": 6, "width": 12, "depth": depth, "biases": "none", "steps": 1, "frames": 2}
    small, large = (
        frames_of([Params(**shared, learning_rate=rate, precision="float64")] * 8, range(8))[0].metrics
        for rate in (1e-7, 10.0)
    )
    assert (small["shrinking_share"] > 0.99).all()
    assert (large["shrinking_share"] < 0.5).all()


def test_deep_networks_with_biases_are_refused() -> None:
    assert list(conflicts(Params())) == []
    (message,) = conflicts(Params(depth=3))
    assert message == "biases: a network with 3 layers can't have biases here; set biases to none"
    assert len(list(conflicts(Params(depth=3, trained="first")))) == 2
