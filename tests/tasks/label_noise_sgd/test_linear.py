"""Label-noise SGD on the linear network, compared with a plain loop over samples."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from mislabel.tasks.label_noise_sgd.linear import Params, _data, _neurons, task
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.training import measured_steps

SETTINGS: dict[str, Any] = {"samples": 12, "dim": 5, "precision": "float64", "frames": 12, "snapshots": 12}
NARROW = Params(width=4, steps=700, step_size=0.03, sigma=0.5, **SETTINGS)
WIDE = Params(width=20, steps=700, step_size=0.05, sigma=2.0, target_norm=0.7, init_scale=0.8, **SETTINGS)
SMALL = Params(width=8, steps=700, step_size=0.05, sigma=0.1, target_norm=0.7, init_scale=0.05, **SETTINGS)
EVENTS = ("escape_step", "full_escape_step", "all_small_step", "phase_two_step")


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run, one sample at a time, in numpy: the network as the paper writes it."""

    def __init__(self, params: Params, seed: int) -> None:
        lanes = Lanes([params], [seed])
        n, d, m, steps = params.samples, params.dim, params.width, range(params.steps)
        self.params = params
        self.x = lanes.normal("x", n, d)[0].numpy()
        direction = lanes.normal("target", d)[0].numpy()
        self.target = params.target_norm * direction / np.linalg.norm(direction)
        self.a = params.init_scale * lanes.normal("a", m, 1)[0, :, 0].numpy() / np.sqrt(m)
        self.w = params.init_scale * lanes.normal("w", m, d)[0].numpy() / np.sqrt(d)
        self.start = self.w.copy()
        self.chosen = lanes.integers("sample", n, steps=steps)[0].numpy()
        self.noise = params.sigma * lanes.sign("noise", steps=steps)[0].numpy()
        self.events = dict.fromkeys(EVENTS, np.nan)

    def residual(self, step: int) -> tuple[np.ndarray, float]:
        x = self.x[self.chosen[step]]
        return x, float(self.a @ self.w @ x - self.target @ x - self.noise[step])

    def train(self, step: int) -> None:
        x, residual = self.residual(step)
        rate = self.params.step_size * residual
        self.w, self.a = self.w - rate * np.outer(self.a, x), self.a - rate * self.w @ x
        self.note(step + 1)

    def note(self, step: int) -> None:
        every = 16
        while 32 * every <= step:
            every *= 2
        if step % every:
            return
        metrics, small = self.metrics(), np.sqrt(self.params.step_size)
        happens = (
            metrics["max_distance"] > 1 / np.sqrt(self.params.width),
            metrics["escaped_share"] == 1,
            max(metrics["max_norm"], metrics["max_output_weight"]) <= small,
            metrics["mean_alignment"] > 0.5,
        )
        for name, now in zip(EVENTS, happens, strict=True):
            if now and np.isnan(self.events[name]):
                self.events[name] = step

    def diminishing_share(self) -> float:
        """The next step is taken with each training point and each sign of the noise."""
        p, falls = self.params, []
        for x in self.x:
            for noise in (-p.sigma, p.sigma):
                residual = float(self.a @ self.w @ x - self.target @ x - noise)
                move, drift = -p.step_size * residual * self.w @ x, -p.step_size * residual * np.outer(self.a, x)
                change = ((self.w + drift) ** 2).sum(1) - (self.w**2).sum(1)  # Equation 41 with T = 1
                falls.append(change + self.a**2 - (self.a + move) ** 2 <= -((p.step_size * p.sigma / 4) ** 2))
        return float(np.mean(falls, axis=0).min())

    def metrics(self) -> dict[str, Any]:
        p, theta = self.params, self.w.T @ self.a
        norm = np.array([np.linalg.norm(neuron) for neuron in self.w])
        alignment = np.abs(self.w @ self.target) / norm / np.linalg.norm(self.target)
        distance = np.array([np.linalg.norm(now - then) for now, then in zip(self.w, self.start, strict=True)])
        escaped = distance > 1 / np.sqrt(p.width)
        bound = 384 * np.sqrt(np.log(p.width)) / (p.sigma**2 * p.step_size**2 * np.sqrt(p.width)) if p.sigma else np.nan
        return {
            "train_loss": np.mean([(theta @ x - self.target @ x) ** 2 / 2 for x in self.x]),
            "test_loss": np.sum((theta - self.target) ** 2) / 2,
            "target_distance": np.linalg.norm(theta - self.target),
            "mean_norm": norm.mean(),
            "max_norm": norm.max(),
            "mean_alignment": alignment.mean(),
            "mean_output_weight": np.abs(self.a).mean(),
            "max_output_weight": np.abs(self.a).max(),
            "max_distance": distance.max(),
            "lazy": float(not escaped.any()),
            "escaped_share": escaped.mean(),
            "theory_escape_step": bound,
            "min_diminishing_share": self.diminishing_share(),
            "neuron_norm": norm,
            "neuron_alignment": alignment,
            "neuron_output_weight": self.a,
            **self.events,
        }


@pytest.mark.parametrize("params", [NARROW, WIDE, SMALL], ids=["fewer neurons than inputs", "more", "small weights"])
def test_blocks_of_rotated_neurons_train_like_one_sample_at_a_time(params: Params) -> None:
    seeds = [3, 4]
    frames = frames_of([params] * 2, seeds)
    assert [frame.step for frame in frames] == measured_steps(params)
    for lane, seed in enumerate(seeds):
        plain, step = Plain(params, seed), 0
        for frame in frames:
            while step < frame.step:
                plain.train(step)
                step += 1
            expected = plain.metrics()
            found = {**frame.metrics, **frame.arrays}
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(found[name][lane], value, rtol=1e-9, atol=1e-12, err_msg=f"{name} at {step}")


def test_every_event_happens_in_one_of_the_settings_above() -> None:
    last = [frames_of([params] * 2, [3, 4])[-1].metrics for params in (NARROW, WIDE, SMALL)]
    assert [name for name in EVENTS if np.isnan([metrics[name] for metrics in last]).all()] == []


def test_a_step_follows_the_gradient_of_half_the_squared_residual() -> None:
    lanes = Lanes([WIDE], [0])
    state = task.init(lanes)
    a, w = (tensor[0].clone().requires_grad_() for tensor in _neurons(_data(lanes), state))
    plain = Plain(WIDE, 0)
    x = torch.from_numpy(plain.x[plain.chosen[0]])
    label = torch.from_numpy(plain.target) @ x + plain.noise[0]
    ((a @ w @ x - label).square() / 2).backward()
    after_a, after_w = _neurons(_data(lanes), task.advance(lanes, state, 0, 1))
    assert a.grad is not None
    assert w.grad is not None
    torch.testing.assert_close(after_a[0], (a - WIDE.step_size * a.grad).detach(), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(after_w[0], (w - WIDE.step_size * w.grad).detach(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("params", [NARROW, WIDE], ids=["narrow", "wide"])
def test_the_norms_of_the_two_layers_satisfy_the_papers_identity(params: Params) -> None:
    lanes = Lanes([params], [5])
    data, state, plain = _data(lanes), task.init(lanes), Plain(params, 5)
    for step in range(64):
        a, w = (tensor[0].numpy() for tensor in _neurons(data, state))
        x = plain.x[plain.chosen[step]]
        residual = a @ w @ x - plain.target @ x - plain.noise[step]
        state = task.advance(lanes, state, step, step + 1)
        after_a, after_w = (tensor[0].numpy() for tensor in _neurons(data, state))
        change = (after_w**2).sum(1) - after_a**2 - ((w**2).sum(1) - a**2)
        expected = -((params.step_size * residual) ** 2) * ((w @ x) ** 2 - a**2 * (x @ x))
        np.testing.assert_allclose(change, expected, rtol=1e-7, atol=1e-13)


def test_single_precision_follows_double_precision() -> None:
    single, double = (
        frames_of([Params(samples=50, dim=10, width=30, step_size=0.01, steps=2000, precision=precision)], [0])[-1]
        for precision in ("float32", "float64")
    )
    for name in ("train_loss", "mean_norm", "mean_alignment", "max_distance"):
        np.testing.assert_allclose(single.metrics[name], double.metrics[name], rtol=1e-3)


def test_a_step_size_that_is_too_large_diverges() -> None:
    small: dict[str, Any] = {"samples": 20, "dim": 10, "width": 20, "steps": 500}
    frames = frames_of([Params(**small, step_size=1.0), Params(**small, step_size=0.01)], [0, 0])
    assert [frame.labels[frame.diverged].tolist() for frame in frames if frame.diverged.any()] == [[0]]
    assert frames[-1].labels.tolist() == [1]


def last_means(sigma: float, step_size: float, steps: int) -> dict[str, np.ndarray]:
    params = Params(
        samples=100, dim=10, width=20, steps=steps, frames=8, sigma=sigma, step_size=step_size, precision="float32"
    )
    frames = frames_of([params] * 8, range(8))
    return {name: np.stack([frame.metrics[name] for frame in frames]) for name in frames[0].metrics}


@pytest.mark.claims
def test_with_label_noise_norms_fall_and_then_neurons_align() -> None:
    curves = last_means(sigma=0.5, step_size=0.05, steps=40_000)
    norm, alignment = curves["mean_norm"].mean(1), curves["mean_alignment"].mean(1)
    assert norm[-1] < 0.25 * norm[0]
    assert alignment[0] < 0.4
    assert alignment[-1] > 0.9
    # Phase I comes first: the norm has halved before the alignment reaches one half.
    assert np.argmax(norm < norm[0] / 2) < np.argmax(alignment > (1 + alignment[0]) / 2)
    assert (curves["escape_step"][-1] < curves["phase_two_step"][-1]).all()
    assert (curves["full_escape_step"][-1] < curves["theory_escape_step"][-1]).all()


@pytest.mark.claims
def test_without_label_noise_neurons_stay_near_initialization() -> None:
    curves = last_means(sigma=0.0, step_size=0.05, steps=10_000)
    assert (curves["train_loss"][-1] < 1e-10).all()
    assert (curves["mean_norm"][-1] > 0.9 * curves["mean_norm"][0]).all()
    assert (np.abs(curves["mean_alignment"][-1] - curves["mean_alignment"][0]) < 0.05).all()
    assert np.isnan(curves["full_escape_step"][-1]).all()
    assert np.isnan(curves["phase_two_step"][-1]).all()


@pytest.mark.claims
def test_more_noise_and_larger_steps_escape_earlier() -> None:
    def escape(sigma: float, step_size: float) -> float:
        return float(last_means(sigma, step_size, steps=20_000)["full_escape_step"][-1].mean())

    assert escape(1.0, 0.02) < escape(0.5, 0.02)
    assert escape(0.5, 0.05) < escape(0.5, 0.02)
