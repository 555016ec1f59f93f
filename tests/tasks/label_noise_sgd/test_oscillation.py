"""Oscillation of the second layer, compared with a loop over neurons and inputs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from mislabel.analysis.theory import label_noise_sgd as theory
from mislabel.tasks.label_noise_sgd.oscillation import BLOCK, Params, _data, _expected_square_norm, _signs, task
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack

SETTINGS: dict[str, Any] = {"precision": "float64", "frames": 12, "snapshots": 12}
FEW = Params(samples=7, dim=3, width=5, steps=700, step_size=0.05, **SETTINGS)
LIMIT = Params(samples=0, dim=4, width=40, steps=301, step_size=0.1, target_norm=1.0, init_scale=0.7, **SETTINGS)


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run, one step at a time, on the original inputs: Equations 5 and 6 as printed."""

    def __init__(self, params: Params, seed: int) -> None:
        lanes = Lanes([params], [seed])
        self.params, n, d, m = params, params.samples, params.dim, params.width
        x = lanes.normal("x", d, steps=range(n))[0].numpy() if n else np.sqrt(d) * np.eye(d)
        direction = lanes.normal("target", 1, d)[0, 0].numpy()
        self.x, self.target = x, params.target_norm * direction / np.linalg.norm(direction)
        self.w = params.init_scale * lanes.normal("w", m, d)[0].numpy() / np.sqrt(d)
        words = lanes.integers("signs", 2**32, -(-m // 32), steps=range(params.steps // 2 + 2))[0].tolist()
        self.signs = [[2 * (row[i // 32] >> i % 32 & 1) - 1 for i in range(m)] for row in words]
        even = lanes.uniform("even", m)[0].tolist()
        self.a = np.array([self.jumped(0, i) if even[i] < 0.5 else 0 for i in range(m)])
        self.small_step = np.nan

    def jumped(self, step: int, neuron: int) -> float:
        return float(self.signs[step // 2][neuron] * self.params.step_size**0.25)

    def train(self, step: int) -> None:
        p = self.params
        residuals = self.x @ self.w.T @ self.a - self.x @ self.target
        gradient = np.mean([residual * x for residual, x in zip(residuals, self.x, strict=True)], axis=0)
        self.w = np.array([w - p.step_size * a * gradient for w, a in zip(self.w, self.a, strict=True)])
        self.a = np.array([0 if a else self.jumped(step + 1, i) for i, a in enumerate(self.a)])
        small = (self.w**2).sum() / p.width <= np.sqrt(p.step_size)
        if (step + 1) % BLOCK == 0 and small and np.isnan(self.small_step):
            self.small_step = step + 1

    def metrics(self) -> dict[str, Any]:
        norm = np.array([np.linalg.norm(w) for w in self.w])
        missing = self.w.T @ self.a - self.target
        return {
            "mean_square_norm": np.mean(norm**2),
            "mean_norm": norm.mean(),
            "max_norm": norm.max(),
            "train_loss": np.mean((self.x @ missing) ** 2) / 2,
            "target_distance": np.linalg.norm(missing),
            "small_step": self.small_step,
            "theory_small_step": theory.small_norm_step(self.params.step_size),
            "lemma_small_step": theory.small_norm_bound(self.params.step_size),
            "neuron_norm": norm,
        }


@pytest.mark.parametrize("params", [FEW, LIMIT], ids=["few inputs", "infinitely many"])
def test_pairs_of_steps_train_like_one_step_at_a_time(params: Params) -> None:
    seeds = [3, 4]
    frames = frames_of([params] * 2, seeds)
    assert any(frame.step % 2 for frame in frames)
    for lane, seed in enumerate(seeds):
        plain, step = Plain(params, seed), 0
        for frame in frames:
            while step < frame.step:
                plain.train(step)
                step += 1
            found, expected = {**frame.metrics, **frame.arrays}, plain.metrics()
            assert found.keys() - expected.keys() == {"expected_square_norm"}
            for name, value in expected.items():
                np.testing.assert_allclose(found[name][lane], value, rtol=1e-8, atol=1e-10, err_msg=f"{name} at {step}")
    assert np.isfinite(frames[-1].metrics["small_step"]).all()


def test_output_weights_are_the_chain_of_equation_6() -> None:
    plain, jump = Plain(FEW, 0), FEW.step_size**0.25
    for step in range(50):
        before = plain.a.copy()
        plain.train(step)
        np.testing.assert_array_equal(plain.a == 0, before != 0)
        assert set(np.round(np.abs(plain.a), 12)) <= {0.0, round(jump, 12)}
    lanes = Lanes([replace(FEW, width=100)] * 50, range(50))
    signs, even = _signs(lanes, range(20)), _data(lanes).jumps[:, 0] > 0
    assert signs.unique().tolist() == [-1, 1]
    assert abs(signs.mean().item()) < 4 / signs.numel() ** 0.5
    assert abs(even.double().mean().item() - 0.5) < 2 / even.numel() ** 0.5
    # Neurons beyond the first 32 have different signs, and so have other steps.
    flat = signs.flatten(0, 1)
    correlations = flat.T @ flat / len(flat) - torch.eye(100)
    assert correlations.abs().max() < 6 / len(flat) ** 0.5
    assert (signs[:, 0] != signs[:, 1]).any(dim=1).all()


@pytest.mark.parametrize("params", [FEW, LIMIT], ids=["few inputs", "infinitely many"])
def test_the_expected_square_norm_is_the_mean_over_all_signs(params: Params) -> None:
    lanes = Lanes([replace(params, width=3, dim=2)], [1])
    data = _data(lanes)
    h, target = data.variance[0].numpy(), data.target[0].numpy()
    # All paths of four steps: each neuron moves at two of them, so there are 2⁶ combinations of signs.
    total, rate = 0.0, params.step_size
    for choice in range(2**6):
        w = data.start[0].numpy()
        for step in range(4):
            signs = np.array([2 * (choice >> (3 * (step // 2) + i) & 1) - 1 for i in range(3)])
            a = signs * data.jumps[0, step % 2].numpy()
            w = w - rate * np.outer(a, h * (a @ w - target))
        total += (w**2).sum() / 3
    found = _expected_square_norm(data, lanes["step_size"], 4).item()
    assert found == pytest.approx(total / 2**6, rel=1e-12)


def test_the_expected_square_norm_is_the_closed_form_of_theory() -> None:
    data = _data(Lanes([LIMIT], [0]))
    counts = (data.jumps[0] > 0).sum(dim=1)
    for step in (0, 1, 2, 31, 300):
        expected = 0.0
        for parity, active in enumerate(counts.tolist()):
            start = data.start[0][data.jumps[0, parity] > 0].square().sum(dim=1).mean().item()
            steps = (step + 1 - parity) // 2
            mean = theory.expected_square_norm(steps, LIMIT.step_size, active, LIMIT.target_norm, start)
            expected += float(mean) * active / LIMIT.width
        found = _expected_square_norm(data, torch.tensor([LIMIT.step_size], dtype=torch.float64), step).item()
        assert found == pytest.approx(expected, rel=1e-10)


def test_directions_that_the_inputs_do_not_span_are_not_trained() -> None:
    params = replace(FEW, samples=1, steps=40)
    lanes = Lanes([params], [0])
    data, last = _data(lanes), frames_of([params], [0])[-1].metrics
    assert (data.variance[0] < 1e-12).sum() == params.dim - 1
    assert np.isfinite(last["expected_square_norm"]).all()
    rest = data.start[0][:, :-1].square().sum().item() / params.width
    assert last["mean_square_norm"][0] > rest
    assert last["expected_square_norm"][0] > rest


@pytest.mark.claims
@pytest.mark.parametrize("step_size", [0.1, 0.03, 0.01])
def test_the_mean_square_norm_falls_below_the_level_within_the_lemmas_steps(step_size: float) -> None:
    bound, seeds = round(step_size**-2), range(64)
    params = Params(steps=bound, width=round(step_size**-0.5), step_size=step_size, frames=30, spacing="linear")
    frames = frames_of([params] * len(seeds), seeds)
    mean = np.array([frame.metrics["mean_square_norm"].mean() for frame in frames])
    assert mean[-1] < step_size**0.5
    # It happens about when the closed form predicts, and the norm stays below.
    below = np.array([frame.step for frame in frames]) > 1.3 * theory.small_norm_step(step_size)
    assert (mean[below] < step_size**0.5).all()
    assert (mean[[frame.step < 0.7 * theory.small_norm_step(step_size) for frame in frames]] > step_size**0.5).all()


@pytest.mark.claims
def test_runs_follow_their_expectation() -> None:
    seeds = range(400)
    params = Params(steps=1000, width=6, step_size=0.03, target_norm=1.0, frames=8, precision="float64")
    for frame in frames_of([params] * len(seeds), seeds)[1:]:
        excess = frame.metrics["mean_square_norm"] / frame.metrics["expected_square_norm"] - 1
        assert abs(excess.mean()) < 4 * excess.std() / len(seeds) ** 0.5
