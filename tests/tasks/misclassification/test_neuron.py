"""One neuron under label noise, compared with a plain loop over samples and the paper's norms."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.gaussian import gaussian_inputs
from mislabel.tasks.misclassification.neuron import Params, task
from mislabel.tasks.pack import Frame, Pack

SETTINGS: dict[str, Any] = {"dim": 5, "steps": 150, "frames": 5, "snapshots": 5, "test_samples": 40}
HINGE = Params(
    **SETTINGS, loss="hinge", learning_rate=0.05, hinge_offset=0.4, bias=True, noise_rate=0.5, precision="float64"
)
LOGISTIC = Params(**SETTINGS, loss="logistic", learning_rate=0.1, smoothing=0.2, noise_rate=0.3, precision="float64")
PURE = Params(**SETTINGS, loss="hinge", learning_rate=0.02, precision="float64")


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run, one sample at a time, in numpy."""

    def __init__(self, params: Params, seed: int) -> None:
        lanes, steps = Lanes([params], [seed]), range(params.steps)
        self.params = params
        self.x = gaussian_inputs(lanes, "x", steps, ending=params.bias)[0].numpy()
        self.test_x = gaussian_inputs(lanes, "test", range(params.test_samples), ending=params.bias)[0].numpy()
        self.flips = lanes.uniform("flip", steps=steps)[0].numpy() < params.noise_rate / 2
        self.w = params.init_scale * np.sqrt(3) * (2 * lanes.uniform("w", params.dim + params.bias)[0].numpy() - 1)

    def slope(self, f: float, y: float) -> float:
        """The derivative of the loss on the label y."""
        if self.params.loss == "logistic":
            return float(-y / (1 + np.exp(y * f)))
        return -y if y * f < self.params.hinge_offset else 0.0

    def loss(self, f: float, y: float) -> float:
        if self.params.loss == "logistic":
            return float(np.log(1 + np.exp(-y * f)))
        return max(0.0, self.params.hinge_offset - y * f)

    def train(self, step: int) -> None:
        x, f = self.x[step], float(self.w @ self.x[step])
        y = np.sign(x[0]) * (-1 if self.flips[step] else 1)
        half = self.params.smoothing / 2
        self.w = self.w - self.params.learning_rate * ((1 - half) * self.slope(f, y) + half * self.slope(f, -y)) * x

    def metrics(self) -> dict[str, Any]:
        p, f, y = self.params, self.test_x @ self.w, np.sign(self.test_x[:, 0])
        right = (1 + (1 - p.noise_rate) * (1 - p.smoothing)) / 2
        losses = np.array([[self.loss(f_n, y_n), self.loss(f_n, -y_n)] for f_n, y_n in zip(f, y, strict=True)])
        norm = np.sqrt((self.w[: p.dim] ** 2).sum())
        return {
            "weight_norm": norm,
            "bias_weight": self.w[p.dim] if p.bias else 0.0,
            "relative_level": norm / (p.dim * p.learning_rate) ** (1 if p.loss == "hinge" else 0.5),
            "noisy_loss": (right * losses[:, 0] + (1 - right) * losses[:, 1]).mean(),
            "test_loss": losses[:, 0].mean(),
            "test_error": (f * y <= 0).mean(),
            "positive_share": (f > 0).mean(),
            "weights": self.w[: p.dim],
        }


@pytest.mark.parametrize("params", [HINGE, LOGISTIC, PURE], ids=["hinge with bias", "smoothed logistic", "pure noise"])
def test_blocks_of_steps_train_like_one_sample_at_a_time(params: Params) -> None:
    seeds = [3, 4]
    frames = frames_of([params] * 2, seeds)
    for lane, seed in enumerate(seeds):
        plain, step = Plain(params, seed), 0
        for frame in frames:
            while step < frame.step:
                plain.train(step)
                step += 1
            found = {**frame.metrics, **frame.arrays}
            assert found.keys() == plain.metrics().keys()
            for name, value in plain.metrics().items():
                np.testing.assert_allclose(found[name][lane], value, rtol=1e-9, atol=1e-12, err_msg=f"{name} at {step}")


def test_a_step_follows_the_gradient_of_the_loss() -> None:
    lanes, plain = Lanes([LOGISTIC], [0]), Plain(LOGISTIC, 0)
    state = task.init(lanes)
    w, x = state["w"][0].clone().requires_grad_(), torch.from_numpy(plain.x[0])
    y = torch.sign(x[0]) * (-1 if plain.flips[0] else 1)
    loss = 0.9 * torch.log(1 + torch.exp(-y * (w @ x))) + 0.1 * torch.log(1 + torch.exp(y * (w @ x)))
    (gradient,) = torch.autograd.grad(loss, w)
    after = task.advance(lanes, state, 0, 1)["w"][0]
    torch.testing.assert_close(after, (w - LOGISTIC.learning_rate * gradient).detach(), rtol=1e-12, atol=1e-14)


def test_single_precision_follows_double_precision() -> None:
    for params in (replace(HINGE, noise_rate=1.0), LOGISTIC):
        single, double = (frames_of([replace(params, precision=p)], [0])[-1] for p in ("float32", "float64"))
        for name in ("weight_norm", "noisy_loss"):
            np.testing.assert_allclose(single.metrics[name], double.metrics[name], rtol=1e-3)


def levels(loss: str, dim: int, learning_rate: float) -> np.ndarray:
    """Each seed's norm, averaged over the last 10/h of 25/h steps, divided by d·h or √(d·h)."""
    params = Params(
        loss=loss, dim=dim, learning_rate=learning_rate, steps=int(25 / learning_rate), init_scale=0.5,
        frames=51, test_samples=1,
    )  # fmt: skip
    frames = frames_of([params] * 16, range(16))
    found: np.ndarray = np.stack([frame.metrics["relative_level"] for frame in frames[-20:]]).mean(axis=0)
    return found


@pytest.mark.claims
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_large_norm_falls_at_a_constant_rate(loss: str) -> None:
    params = Params(loss=loss, dim=20, learning_rate=0.001, steps=4000, init_scale=4.0, frames=5, test_samples=1)
    norms = np.stack([frame.metrics["weight_norm"] for frame in frames_of([params] * 8, range(8))])
    falls = -np.diff(norms, axis=0).mean(axis=1)  # in 1000 steps of 0.001
    np.testing.assert_allclose(falls, 1 / np.sqrt(2 * np.pi), rtol=0.06)


@pytest.mark.claims
@pytest.mark.parametrize(("dim", "learning_rate"), [(20, 0.005), (20, 0.01), (40, 0.005)])
def test_the_norm_levels_off_in_proportion_to_dimension_and_rate(dim: int, learning_rate: float) -> None:
    for loss, wanted in (("hinge", np.sqrt(2 * np.pi) / 4), ("logistic", np.sqrt(1 / 2))):
        found = levels(loss, dim, learning_rate)
        low, high = stats.t.interval(0.99, len(found) - 1, found.mean(), stats.sem(found))
        assert 0.9 * wanted < low < high < 1.1 * wanted, (loss, found)
