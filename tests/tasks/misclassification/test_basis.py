"""Standard basis inputs, compared with a plain loop over samples and Theorems 3 and 4."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.basis import Params, conflicts, task
from mislabel.tasks.pack import Frame, Pack

SETTINGS: dict[str, Any] = {
    "dim": 4, "width": 6, "steps": 120, "frames": 5, "snapshots": 5, "precision": "float64",
}  # fmt: skip
PURE = Params(**SETTINGS, learning_rate=0.1)
SMOOTHED = Params(**SETTINGS, learning_rate=0.07, noise_rate=0.4, smoothing=0.3, hinge_offset=0.2, init_scale=2.0)
LOGISTIC = Params(**SETTINGS, learning_rate=0.3, noise_rate=0.2, loss="logistic")


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


class Plain:
    """One run on full input vectors, one sample at a time, in numpy."""

    def __init__(self, params: Params, seed: int) -> None:
        lanes, steps = Lanes([params], [seed]), range(params.steps)
        d, m = params.dim, params.width
        self.params = params
        self.w = params.init_scale * (2 * lanes.uniform("w", d, m)[0].numpy().T - 1)  # m d
        self.v = np.array([1.0] * (m // 2) + [-1.0] * (m // 2))
        self.y = lanes.sign("label", d)[0].numpy()
        self.chosen = lanes.integers("input", d, steps=steps)[0].numpy()
        self.flips = lanes.uniform("flip", steps=steps)[0].numpy() < params.noise_rate / 2

    def output(self, x: np.ndarray) -> float:
        return float(self.v @ np.maximum(0, self.w @ x))

    def slope(self, f: float, y: float) -> float:
        if self.params.loss == "logistic":
            return float(-y / (1 + np.exp(y * f)))
        return -y if y * f < self.params.hinge_offset else 0.0

    def loss(self, f: float, y: float) -> float:
        if self.params.loss == "logistic":
            return float(np.log(1 + np.exp(-y * f)))
        return max(0.0, self.params.hinge_offset - y * f)

    def train(self, step: int) -> None:
        chosen, half = self.chosen[step], self.params.smoothing / 2
        x = np.eye(self.params.dim)[chosen]
        y = self.y[chosen] * (-1 if self.flips[step] else 1)
        f = self.output(x)
        slope = (1 - half) * self.slope(f, y) + half * self.slope(f, -y)
        self.w = self.w - self.params.learning_rate * slope * np.outer(self.v * (self.w @ x > 0), x)

    def metrics(self) -> dict[str, Any]:
        p = self.params
        outputs = np.array([self.output(x) for x in np.eye(p.dim)])
        fires = self.w > 0
        right = (1 + (1 - p.noise_rate) * (1 - p.smoothing)) / 2
        losses = [
            right * self.loss(f, y) + (1 - right) * self.loss(f, -y) for f, y in zip(outputs, self.y, strict=True)
        ]
        return {
            "max_output": np.abs(outputs).max(),
            "mean_output": np.abs(outputs).mean(),
            "output_bound": p.width * p.learning_rate,
            "bounded_share": (np.abs(outputs) < p.width * p.learning_rate).mean(),
            "active_neurons": fires.sum(axis=0).mean(),
            "active_share": fires.mean(),
            "min_active_neurons": fires.sum(axis=0).min(),
            "max_active_neurons": fires.sum(axis=0).max(),
            "dead_neurons": (~fires.any(axis=1)).sum(),
            "first_norm": np.sqrt((self.w**2).sum()),
            "noisy_loss": np.mean(losses),
            "train_error": (outputs * self.y <= 0).mean(),
            "input_active_neurons": fires.sum(axis=0),
            "input_output": outputs,
            "neuron_norm": np.sqrt((self.w**2).sum(axis=1)),
            "neuron_firing": fires.mean(axis=1),
        }


@pytest.mark.parametrize("params", [PURE, SMOOTHED, LOGISTIC], ids=["pure noise", "smoothed", "logistic"])
def test_a_run_trains_like_a_network_on_full_inputs(params: Params) -> None:
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


def test_an_odd_number_of_neurons_is_refused() -> None:
    assert list(conflicts(Params())) == []
    assert list(conflicts(Params(width=7))) == ["width: 7 neurons can't be split into two equal halves; make it even"]


def last(**settings: Any) -> dict[str, np.ndarray]:
    """The final metrics of eight runs; in double precision, because multiples of h may be equal."""
    params = Params(**{"dim": 10, "width": 200, "frames": 2, "precision": "float64", **settings})
    return dict(frames_of([params] * 8, range(8))[-1].metrics)


@pytest.mark.claims
@pytest.mark.parametrize("learning_rate", [0.002, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("init_scale", [0.2, 3.0])
def test_every_output_falls_below_width_times_rate(learning_rate: float, init_scale: float) -> None:
    metrics = last(learning_rate=learning_rate, init_scale=init_scale, steps=12_000)
    assert (metrics["max_output"] < metrics["output_bound"]).all()


@pytest.mark.claims
@pytest.mark.parametrize("learning_rate", [1.0, 3.0])
def test_at_rates_of_one_and_more_no_neuron_fires_on_any_input(learning_rate: float) -> None:
    metrics = last(learning_rate=learning_rate, steps=500)
    assert (metrics["active_neurons"] == 0).all()
    assert (metrics["dead_neurons"] == 200).all()
    assert (metrics["first_norm"] > 0).all()


@pytest.mark.claims
@pytest.mark.parametrize("width", [200, 1000])
def test_at_rates_up_to_one_over_k_about_half_of_the_neurons_stay_active(width: int) -> None:
    for learning_rate in (2 / width, 0.5 / width):
        metrics = last(width=width, learning_rate=learning_rate, steps=4000)
        # Half of the 2k neurons fire initially; the proof allows a loss of 3·k^0.6 in each half.
        assert (metrics["min_active_neurons"] > width / 2 - 2 * 3 * (width / 2) ** 0.6).all()
        assert metrics["active_share"].mean() == pytest.approx(0.5, abs=0.03)
