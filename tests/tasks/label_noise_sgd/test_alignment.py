"""Phase II alone, compared with the network as the paper writes it, input by input."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest
import torch

from mislabel.analysis.theory import label_noise_sgd as theory
from mislabel.tasks.label_noise_sgd.alignment import ALIGNED, BLOCK, Params, _data, _neurons, task
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack

SETTINGS: dict[str, Any] = {"precision": "float64", "frames": 12, "snapshots": 12}
NARROW = Params(samples=9, dim=5, width=4, steps=1300, step_size=0.02, target_norm=0.9, init_scale=0.2, **SETTINGS)
WIDE = Params(samples=0, dim=4, width=30, steps=450, step_size=0.05, target_norm=0.6, **SETTINGS)
ALREADY = Params(samples=0, dim=6, width=5, start="aligned", steps=200, step_size=0.1, target_norm=0.5, **SETTINGS)
NOTED = ("printed_alignment", "growth_alignment", "converged_alignment", "converged_distance")


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run on the original inputs, with gradients by autograd."""

    def __init__(self, params: Params, seed: int) -> None:
        lanes = Lanes([params], [seed])
        self.params, n, d, m = params, params.samples, params.dim, params.width
        x = lanes.normal("x", d, steps=range(n))[0] if n else d**0.5 * torch.eye(d, dtype=torch.float64)
        direction = lanes.normal("target", 1, d)[0, 0]
        self.x, self.target = x, params.target_norm * direction / direction.norm()
        size = params.init_scale * params.step_size**0.5
        self.a = lanes.sign("a", m, 1)[0, :, 0] * size
        w = lanes.normal("w", m, d)[0]
        self.w = w / w.norm(dim=1, keepdim=True) * size
        if params.start == "aligned":
            self.w = self.a[:, None] * direction / direction.norm()
        eta, norm = params.step_size, params.target_norm
        growth = float(theory.alignment_steps(eta, norm)) if params.start == "random" else 0.0
        self.times = {
            "printed_step": float(theory.printed_alignment_steps(eta, norm)),
            "growth_step": growth,
            "convergence_step": growth + float(theory.convergence_steps(eta, norm)),
        }
        self.noted = dict.fromkeys(["aligned_step", *NOTED], np.nan)
        self.note(0)

    def train(self, step: int) -> None:
        a, w = self.a.clone().requires_grad_(), self.w.clone().requires_grad_()
        ((self.x @ w.T @ a - self.x @ self.target) ** 2 / 2).mean().backward()
        assert a.grad is not None
        assert w.grad is not None
        self.a, self.w = self.a - self.params.step_size * a.grad, self.w - self.params.step_size * w.grad
        self.note(step + 1)

    def note(self, step: int) -> None:
        metrics, every = self.measured(), BLOCK
        while 16 * every <= step:
            every *= 2
        if step % every == 0 and metrics["mean_alignment"] > ALIGNED and np.isnan(self.noted["aligned_step"]):
            self.noted["aligned_step"] = step
        times = {name: ceil(time) for name, time in self.times.items()}
        for name, metric, time in (
            ("printed_alignment", "mean_alignment", "printed_step"),
            ("growth_alignment", "min_alignment", "growth_step"),
            ("converged_alignment", "large_alignment", "convergence_step"),
            ("converged_distance", "target_distance", "convergence_step"),
        ):
            if step == times[time]:
                self.noted[name] = metrics[metric]

    def measured(self) -> dict[str, Any]:
        norm = self.w.norm(dim=1).numpy()
        cosine = np.abs((self.w @ self.target).numpy()) / norm / self.target.norm().item()
        large = norm >= self.params.step_size**0.5
        missing = self.w.T @ self.a - self.target
        return {
            "train_loss": ((self.x @ missing) ** 2).mean().item() / 2,
            "target_distance": missing.norm().item(),
            "mean_alignment": cosine.mean(),
            "min_alignment": cosine.min(),
            "large_alignment": cosine[large].min() if large.any() else np.nan,
            "mean_norm": norm.mean(),
            "max_norm": norm.max(),
            "mean_output_weight": self.a.abs().mean().item(),
            "neuron_norm": norm,
            "neuron_alignment": cosine,
            "neuron_output_weight": self.a.numpy(),
        }


@pytest.mark.long
@pytest.mark.parametrize("params", [NARROW, WIDE, ALREADY], ids=["narrow", "wide", "aligned"])
def test_a_run_equals_the_slow_reference(params: Params) -> None:
    seeds = [3, 4]
    frames = frames_of([params] * 2, seeds)
    for lane, seed in enumerate(seeds):
        plain, step = Plain(params, seed), 0
        for frame in frames:
            while step < frame.step:
                plain.train(step)
                step += 1
            found = {**frame.metrics, **frame.arrays}
            expected = {**plain.measured(), **plain.times, **plain.noted}
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(found[name][lane], value, rtol=1e-7, atol=1e-9, err_msg=f"{name} at {step}")
    last = frames[-1].metrics
    assert [name for name in NOTED if np.isnan(last[name]).any()] == []


def test_neurons_start_where_phase_two_begins() -> None:
    lanes = Lanes([replace(WIDE, init_scale=scale) for scale in (1.0, 0.1)], [0, 0])
    a, w = _neurons(_data(lanes), task.init(lanes))
    size = torch.tensor([1.0, 0.1], dtype=torch.float64)[:, None] * WIDE.step_size**0.5
    torch.testing.assert_close(a.abs(), size.expand_as(a))
    torch.testing.assert_close(w.norm(dim=2), size.expand_as(a))


@pytest.mark.parametrize("params", [NARROW, WIDE], ids=["narrow", "wide"])
def test_the_norms_of_the_two_layers_satisfy_the_papers_identity(params: Params) -> None:
    lanes = Lanes([params], [5])
    data, state = _data(lanes), task.init(lanes)
    for step in range(0, 300, 30):
        a, w = (tensor[0].numpy() for tensor in _neurons(data, state))
        after = task.advance(lanes, state, step, step + 1)
        after_a, after_w = (tensor[0].numpy() for tensor in _neurons(data, after))
        gradient = data.variance[0].numpy() * (a @ w - data.target[0].numpy())
        change = (after_w**2).sum(1) - after_a**2 - ((w**2).sum(1) - a**2)
        expected = -(params.step_size**2) * ((w @ gradient) ** 2 - a**2 * (gradient @ gradient))
        np.testing.assert_allclose(change, expected, rtol=1e-6, atol=1e-13)
        state = task.advance(lanes, state, step, step + 30)


def test_neurons_that_start_aligned_stay_aligned() -> None:
    for frame in frames_of([ALREADY], [0]):
        assert frame.metrics["min_alignment"][0] == pytest.approx(1)


def last_of(step_size: float, seeds: int = 16, **settings: Any) -> dict[str, np.ndarray]:
    width = settings.pop("width", round(step_size**-0.5))
    steps = ceil(theory.alignment_steps(step_size, 0.5) + theory.convergence_steps(step_size, 0.5))
    params = Params(steps=steps, width=width, step_size=step_size, target_norm=0.5, frames=4, **settings)
    return dict(frames_of([params] * seeds, range(seeds))[-1].metrics)


@pytest.mark.claims
def test_neurons_are_aligned_at_T2_over_eta_but_not_at_T2() -> None:
    for step_size in (0.1, 0.03, 0.01, 0.003):
        last = last_of(step_size)
        order = np.sqrt(step_size) * np.log(1 / step_size)
        assert last["growth_alignment"].mean() > 1 - 0.5 * order
        assert (last["printed_alignment"] < 0.5).all()


@pytest.mark.claims
def test_alignment_rises_to_one_from_small_weights() -> None:
    last = last_of(0.01, init_scale=0.1)
    assert (last["min_alignment"] > 0.99).all()
    assert (last["aligned_step"] < last["growth_step"]).all()


@pytest.mark.claims
def test_components_orthogonal_to_the_target_stay() -> None:
    for width, init_scale in ((10, 1.0), (10, 0.3), (40, 0.5)):
        found = last_of(0.01, width=width, init_scale=init_scale)["mean_alignment"].mean()
        assert found == pytest.approx(float(theory.final_alignment(0.01, width, 0.5, init_scale)), abs=0.03)


@pytest.mark.claims
@pytest.mark.parametrize("start", ["random", "aligned"])
def test_the_network_converges_to_the_target_in_the_lemmas_time(start: str) -> None:
    for step_size in (0.1, 0.03, 0.01):
        last = last_of(step_size, start=start)
        assert (last["converged_distance"] < step_size * np.log(1 / step_size)).all()
        if start == "aligned":
            assert (last["converged_alignment"] > 0.999).all()
