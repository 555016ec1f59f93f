"""Networks and their linearization, compared with explicit Jacobians, closed forms and a plain loop."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from mislabel.tasks.images import image_training
from mislabel.tasks.label_noise_sgd.lazy_rich import METRICS, TRAJECTORIES, Params, _network, _targets, task
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack

pytestmark = pytest.mark.long

ALL = ", ".join(TRAJECTORIES)
FC = Params(
    network="fc", depth=1, width=12, classes="0, 1", samples=6, test_samples=4, probes=5, learning_rate=0.3, sigma=0.7,
    steps=20, frames=5, precision="float64", trained=ALL,
)  # fmt: skip
SMALL: dict[str, Params] = {
    "one output": FC,
    "three outputs": Params(**{**vars(FC), "classes": "3, 5, 8", "depth": 2, "width": 7}),
    "wide_resnet": Params(**{**vars(FC), "network": "wide_resnet", "width": 0, "samples": 4, "probes": 3, "steps": 8}),
    "cnn": Params(**{**vars(FC), "network": "cnn", "depth": 0, "width": 2, "learning_rate": 0.05}),
}


def changed(params: Params, **more: Any) -> Params:
    return Params(**{**vars(params), **more})


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


def trained(lanes: Lanes[Params], steps: int) -> dict[str, Tensor]:
    return dict(task.advance(lanes, task.init(lanes), 0, steps))


def weights_of(state: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): w for key, w in state.items() if key.startswith(f"{name}.")}


class Explicit:
    """The Jacobian of one run's network: a row for each output of each image, images first."""

    def __init__(self, params: Params, seed: int) -> None:
        self.lanes = Lanes([params], [seed])
        self.network, data = _network(self.lanes), image_training.loaded(self.lanes)
        self.start = self.network.init(self.lanes)
        self.x, self.test_x = (image_training.scaled(self.lanes, x) for x in (data.train_x, data.test_x))
        self.y = _targets(self.lanes, "train").flatten()

    def outputs(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        return self.network.forward(weights, x).outputs[0].flatten()

    def jacobian(self, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
        found = torch.func.jacrev(lambda w: self.outputs(w, x))(dict(weights))
        return torch.cat([part.flatten(1) for part in found.values()], dim=1)

    def flat(self, weights: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([weights[name].flatten() for name in self.network.weights])


@pytest.mark.parametrize("kind", SMALL)
def test_the_linearization_follows_the_closed_form_of_kernel_gradient_descent(kind: str) -> None:
    params, steps = SMALL[kind], SMALL[kind].steps
    run = Explicit(params, seed=3)
    jacobian, f = run.jacobian(run.start, run.x), run.outputs(run.start, run.x)
    decay = torch.eye(len(f)) - params.learning_rate * (jacobian @ jacobian.T) / params.samples
    expected = run.y + torch.linalg.matrix_power(decay, steps) @ (f - run.y)
    weights = weights_of(trained(run.lanes, steps), "linear")
    moved = run.flat(weights) - run.flat(run.start)
    torch.testing.assert_close(f + jacobian @ moved, expected, rtol=1e-10, atol=1e-11)
    rounded = jacobian.T @ torch.linalg.lstsq(jacobian.T, moved[:, None]).solution[:, 0]
    torch.testing.assert_close(moved, rounded, rtol=1e-7, atol=1e-9)  # it moves only along the gradients of images
    last = {name: float(values[0]) for name, values in frames_of([params], [3])[-1].metrics.items()}
    assert last["linear_train_loss"] == pytest.approx(float((expected - run.y).square().sum() / 2 / params.samples))
    test_y = _targets(run.lanes, "test").flatten()
    tested = run.outputs(run.start, run.test_x) + run.jacobian(run.start, run.test_x) @ moved
    assert last["linear_test_loss"] == pytest.approx(float((tested - test_y).square().sum() / 2 / params.test_samples))
    assert last["linear_distance"] == pytest.approx(float(moved.norm() / run.flat(run.start).norm()))


@pytest.mark.parametrize("kind", SMALL)
def test_gaps_and_kernel_changes_equal_those_from_jacobians(kind: str) -> None:
    params = SMALL[kind]
    run = Explicit(params, seed=5)
    state = trained(run.lanes, params.steps)
    last = {name: float(values[0]) for name, values in task.measure(run.lanes, state).items()}
    probes, outputs = run.x[: params.probes], len(run.y) // params.samples

    def kernel(weights: Mapping[str, Tensor]) -> Tensor:
        rows = run.jacobian(weights, probes).unflatten(0, (params.probes, outputs))
        return torch.einsum("ikd,jkd->ij", rows, rows)

    for x, part in ((run.x, "train"), (run.test_x, "test")):
        jacobian, f = run.jacobian(run.start, x), run.outputs(run.start, x)

        def said(name: str, x: Tensor = x, jacobian: Tensor = jacobian, f: Tensor = f) -> Tensor:
            weights = weights_of(state, name)
            if not name.endswith("linear"):
                return run.outputs(weights, x)
            return f + jacobian @ (run.flat(weights) - run.flat(run.start))

        for name, reference, metric in (
            *((name, "linear", name) for name in ("plain", "noisy", "noisy_linear")),
            ("noisy", "noisy_linear", "control"),
        ):
            gap = (said(name) - said(reference)).norm() / said(reference).norm()
            assert last[f"{metric}_{part}_gap"] == pytest.approx(float(gap), rel=1e-8)
    for name in ("plain", "noisy"):
        before, after = kernel(run.start), kernel(weights_of(state, name))
        assert last[f"{name}_kernel_change"] == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-8)
        assert last[f"{name}_kernel_change"] > 1e-3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("name", ["plain", "noisy"])
def test_training_equals_a_plain_loop(name: str, optimizer: str) -> None:
    params = changed(FC, optimizer=optimizer, weight_decay=0.01, momentum=0.5, drops="10", drop=0.5)
    lanes = Lanes([params], [1])
    data = image_training.loaded(lanes)
    x = data.train_x.double() / 255
    x = ((x - x.mean()) / x.std(correction=0)).flatten(1)
    y = torch.where(data.train_y == 1, 1.0, -1.0).double()
    state = task.init(lanes)
    w, b, a, c = (
        state[f"{name}.{own}"][0].clone().requires_grad_()
        for own in ("layer1.weight", "layer1.bias", "output.weight", "output.bias")
    )
    assert w.shape == (64, 12)
    noise = 0.7 * lanes.sign("noise", 6, 1, steps=range(params.steps))[0, :, :, 0]  # t n
    mu = params.momentum if optimizer == "momentum" else 0.0
    sgd = torch.optim.SGD([w, b, a, c], params.learning_rate, momentum=mu, weight_decay=0.01)
    for step in range(params.steps):
        sgd.param_groups[0]["lr"] = params.learning_rate * (0.5 if step >= 10 else 1.0)
        f = ((x @ w * math.sqrt(2 / 64) + b).relu() @ a / math.sqrt(12) + c)[:, 0]
        sgd.zero_grad()
        target = y + noise[step] if name == "noisy" else y
        ((f - target).square().sum() / 6 / 2).backward()
        sgd.step()
    found = weights_of(trained(lanes, params.steps), name)
    torch.testing.assert_close(found["layer1.weight"][0], w.detach())
    torch.testing.assert_close(found["output.weight"][0], a.detach())
    torch.testing.assert_close(found["output.bias"][0], c.detach())
    last = frames_of([params], [1])[-1].metrics
    first = state[f"{name}.layer1.weight"].norm()
    assert last[f"{name}_first_norm"][0] == pytest.approx(float(w.detach().norm()))
    assert last[f"{name}_first_norm_ratio"][0] == pytest.approx(float(w.detach().norm() / first))


@pytest.mark.parametrize("kind", SMALL)
def test_without_noise_the_noisy_trajectories_are_the_plain_ones(kind: str) -> None:
    state = trained(Lanes([changed(SMALL[kind], sigma=0.0, precision="float32")] * 2, [0, 1]), 6)
    for noisy, plain in (("noisy", "plain"), ("noisy_linear", "linear")):
        other = weights_of(state, plain)
        assert all(torch.equal(w, other[name]) for name, w in weights_of(state, noisy).items())
    some = trained(Lanes([SMALL[kind]], [0]), 6)
    assert not torch.equal(some["noisy.output.weight"], some["plain.output.weight"])


def test_the_noise_of_an_image_does_not_depend_on_the_order_of_the_batch() -> None:
    whole = trained(Lanes([FC] * 2, [0, 1]), 20)
    batch = trained(Lanes([changed(FC, batch=6)] * 2, [0, 1]), 20)
    assert not torch.equal(batch["order"][0].sort().values, batch["order"][0])
    for name, w in whole.items():
        torch.testing.assert_close(batch[name], w, rtol=1e-9, atol=1e-10)
    few = trained(Lanes([changed(FC, batch=4)] * 2, [0, 1]), 20)
    assert all(few[name].isfinite().all() for name in whole)
    assert not torch.allclose(few["linear.output.weight"], whole["linear.output.weight"])


def test_trajectories_that_are_not_trained_are_absent_and_change_no_other() -> None:
    everything = frames_of([FC], [2])[-1].metrics
    some = frames_of([changed(FC, trained="noisy, plain")], [2])[-1].metrics
    assert some.keys() == everything.keys() == METRICS.keys()
    for name, values in some.items():
        if name.startswith(("linear", "noisy_linear", "control")) or name.endswith("_gap"):
            assert math.isnan(values[0])
        elif name != "farthest":
            assert values[0] == everything[name][0]
    assert some["farthest"][0] == max(some["plain_distance"][0], some["noisy_distance"][0])


def test_errors_are_shares_of_images_classified_wrongly() -> None:
    for kind in ("one output", "three outputs"):
        run = Explicit(changed(SMALL[kind], test_samples=9), seed=4)
        state = trained(run.lanes, 10)
        said = run.outputs(weights_of(state, "noisy"), run.test_x).unflatten(0, (9, -1))
        y = image_training.loaded(run.lanes).test_y.tolist()
        wrong = 0
        for row, label in zip(said.tolist(), y, strict=True):
            guess = int(row[0] > 0) if len(row) == 1 else row.index(max(row))
            wrong += guess != label
        assert float(task.measure(run.lanes, state)["noisy_test_error"]) == pytest.approx(wrong / 9)


def test_batch_norm_half_precision_and_unknown_trajectories_are_refused() -> None:
    assert list(task.conflicts(FC)) == []
    for inexact in ({"autocast": "bfloat16"}, {"compiled": True}):
        [said] = task.conflicts(changed(FC, **inexact))
        assert "leave them off" in said
    for network in ("resnet9", "resnet20", "resnet18"):
        [said] = task.conflicts(changed(FC, network=network, depth=0, width=0, parametrization="standard"))
        assert said.startswith(f"network: {network} has batch norm")
    assert list(task.conflicts(changed(FC, network="cnn", depth=20))) == []  # only the images are too small
    for words in ("plain, plain", "plain, lazy", ""):
        [said] = task.conflicts(changed(FC, trained=words))
        assert said.startswith("trained: ")


@pytest.mark.claims
def test_wider_networks_stay_closer_to_their_linearization() -> None:
    def gap(width: int) -> tuple[float, float]:
        params = changed(FC, width=width, steps=60, frames=2, samples=10, test_samples=20, trained="plain, linear")
        last = frames_of([params] * 8, range(8))[-1].metrics
        return float(last["plain_train_gap"].mean()), float(last["plain_kernel_change"].mean())

    gaps, changes = zip(*(gap(width) for width in (16, 64, 256, 1024)), strict=True)
    for wide, narrow in ((gaps[1:], gaps[:-1]), (changes[1:], changes[:-1])):
        assert all(a < 0.75 * b for a, b in zip(wide, narrow, strict=True))
    assert gaps[-1] < 0.05
