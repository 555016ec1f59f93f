"""SANE, compared with Algorithm 1 written for one run with torch's layers, losses and SGD."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mislabel.sweeps.checks.reader import checked_spec
from mislabel.sweeps.run.launch import prepare, run_inline
from mislabel.sweeps.spec.document import Document
from mislabel.sweeps.store.store import Store
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.self_labeling.batches import Batches
from mislabel.tasks.self_labeling.mixup import beta, partners
from mislabel.tasks.self_labeling.sane import Params, _encoder, _losses, task
from tests.bowls import CPU, MACHINE, runs_of

pytestmark = pytest.mark.long

SMALL = Params(
    samples=60, test_samples=20, batch=8, depth=2, width=4, embedding=6, dictionary=20, steps=12, precision="float64",
    m1=0.5, m2=4.0, iota=0.1, weight_decay=0.01, learning_rate=0.2,
)  # fmt: skip


class Plain:
    """One run, step by step, as in the paper's Algorithm 1."""

    def __init__(self, params: Params, seed: int) -> None:
        self.p, self.lanes = params, Lanes([params], [seed])
        self.batches = Batches(self.lanes)
        state = task.init(self.lanes)
        self.f, self.g = (self.module(state, prefix) for prefix in ("", "target."))
        self.queue = [(key, -1) for key in state["keys"][0]]
        self.velocity = [torch.zeros_like(w) for w in self.f.parameters()]

    def module(self, state: Mapping[str, Tensor], prefix: str) -> nn.Sequential:
        p = self.p
        net = nn.Sequential(
            nn.Conv2d(1, p.width, 3, 2, 1, bias=False), nn.BatchNorm2d(p.width), nn.ReLU(),
            nn.Conv2d(p.width, 2 * p.width, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * p.width), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(2 * p.width, 2 * p.width), nn.ReLU(), nn.Linear(2 * p.width, 2 * p.width), nn.ReLU(),
            nn.Linear(2 * p.width, p.embedding),
        ).double()  # fmt: skip
        names = {0: "conv1", 1: "norm1", 3: "conv2", 4: "norm2", 8: "head.1", 10: "head.2", 12: "head.3"}
        with torch.no_grad():
            for place, name in names.items():
                for own, tensor in net[place].named_parameters():
                    held = state[f"{prefix}{name}.{own}"][0]
                    tensor.copy_(held.mT if place >= 8 and own == "weight" else held)
        return net

    def step(self, t: int) -> dict[str, float]:
        p, lanes = self.p, self.lanes
        index = self.batches.at(t)
        c = self.batches.images(index)
        x = self.batches.views.weak(lanes, "query", c, t)[0]
        x_tilde = self.batches.views.weak(lanes, "positive", c, t)[0]
        positives = functional.normalize(self.g(x_tilde)).detach()
        keys = [*positives, *(key for key, _ in self.queue)]
        plain = self.contrast(x, keys, np.eye(p.batch, len(keys)), statistics=True)
        labels = self.refined(positives, keys, t)
        size = self.batches.views.size
        other = x_tilde
        if p.mixup_views == "strong":
            other = self.batches.views.strong(lanes, f"crop{size}", c, t)[0]
        share = beta(lanes, f"crop{size}.share", lanes["kappa"], p.batch, t)[0]
        k = partners(lanes, f"crop{size}.partner", p.batch, t)[0]
        x_prime = torch.stack([share[i] * x[i] + (1 - share[i]) * other[k[i]] for i in range(p.batch)])
        y_prime = np.stack(
            [float(share[i]) * labels[i] + (1 - float(share[i])) * labels[int(k[i])] for i in range(p.batch)]
        )
        mixed = self.contrast(x_prime, keys, y_prime, statistics=False)
        loss = (1 - p.mixup_weight) * plain + p.mixup_weight * mixed
        grads = torch.autograd.grad(loss, list(self.f.parameters()))
        rate = p.learning_rate * (1 + math.cos(math.pi * t / p.steps)) / 2
        with torch.no_grad():
            for w, v, grad in zip(self.f.parameters(), self.velocity, grads, strict=True):
                v.copy_(p.momentum * v + grad + p.weight_decay * w)
                w.sub_(rate * v)
            for xi, w in zip(self.g.parameters(), self.f.parameters(), strict=True):
                xi.copy_((1 - p.iota) * xi + p.iota * w)
        new = list(zip(positives, index[0].tolist(), strict=True))
        self.queue = (self.queue + new)[-p.dictionary :]
        return {"loss": loss.item(), "contrast_loss": plain.item(), "mixup_loss": mixed.item()}

    def contrast(self, x: Tensor, keys: Sequence[Tensor], labels: np.ndarray, statistics: bool) -> Tensor:
        for norm in (self.f[1], self.f[4]):
            assert isinstance(norm, nn.BatchNorm2d)
            norm.momentum = 0.1 if statistics else 0.0
        z = functional.normalize(self.f(x))
        total = torch.zeros((), dtype=torch.float64)
        for i, query in enumerate(z):
            sigma = torch.stack([torch.exp(query @ key / self.p.tau) for key in keys])
            total = total - (torch.from_numpy(labels[i]) * (sigma / sigma.sum()).log()).sum()
        return total / len(z)

    def refined(self, positives: Tensor, keys: Sequence[Tensor], t: int) -> np.ndarray:
        p, rows = self.p, []
        mu = p.m2 - (p.m2 - p.m1) * (math.cos(math.pi * t / p.steps) + 1) / 2
        for i, positive in enumerate(positives):
            sigma = np.array([math.exp(float(positive @ key) / p.tau) ** (1 / p.tau_prime) for key in keys])
            y, without = np.eye(len(keys))[i], sigma * (1 - np.eye(len(keys))[i])
            estimate, others = sigma / sigma.sum(), without / without.sum()
            z = 1 + mu * estimate.max() + mu * others.max()
            alpha, beta_t = mu * estimate.max() / z, mu * others.max() / z
            rows.append((1 - alpha - beta_t) * y + alpha * estimate + beta_t * others)
        return np.stack(rows)


def frames_of(*settings: Params) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, [3] * len(settings))), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


@torch.no_grad()
def trained(params: Params, steps: int, seed: int = 3) -> dict[str, Tensor]:
    lanes = Lanes([params], [seed])
    return dict(task.advance(lanes, task.init(lanes), 0, steps))


@pytest.mark.parametrize("mixup_views", ["same", "strong"])
def test_every_step_equals_algorithm_1(mixup_views: str) -> None:
    params = replace(SMALL, mixup_views=mixup_views, frames=SMALL.steps + 1)
    plain, lanes = Plain(params, 5), Lanes([params], [5])
    state = task.init(lanes)
    for t in range(10):  # more than an epoch, and more keys than the dictionary has
        with torch.no_grad():
            measured = task.measure(lanes, state)
            state = task.advance(lanes, state, t, t + 1)
        for name, value in plain.step(t).items():
            assert measured[name].item() == pytest.approx(value, rel=1e-9), f"{name} at step {t}"
    torch.testing.assert_close(state["conv2.weight"][0], plain.f.state_dict()["3.weight"])
    torch.testing.assert_close(state["target.conv2.weight"][0], plain.g.state_dict()["3.weight"])
    torch.testing.assert_close(state["norm2.running_var"][0], plain.f.state_dict()["4.running_var"])
    assert sorted(state["key_samples"][0].tolist()) == sorted(sample for _, sample in plain.queue)


def test_with_lambda_0_a_run_equals_moco_step_for_step() -> None:
    moco = trained(replace(SMALL, refinery="none", mixup="none"), 9)
    alone = trained(replace(SMALL, mixup_weight=0.0), 9)
    assert moco.keys() == alone.keys()
    assert all(torch.equal(moco[name], alone[name]) for name in moco)
    beside = Lanes([replace(SMALL, mixup_weight=weight) for weight in (0.0, 0.5)], [3, 3])
    with torch.no_grad():
        packed = task.advance(beside, task.init(beside), 0, 9)
    for name, tensor in moco.items():
        torch.testing.assert_close(packed[name][:1], tensor)
    assert not torch.equal(packed["conv1.weight"][1], moco["conv1.weight"][0])


def test_no_gradient_flows_into_labels_keys_or_the_momentum_encoder() -> None:
    lanes = Lanes([SMALL], [0])
    f, batches = _encoder(lanes), Batches(lanes)
    state = {
        name: tensor.requires_grad_() if tensor.is_floating_point() else tensor
        for name, tensor in task.init(lanes).items()
        if name not in f.buffers
    }
    buffers = {name: tensor for name, tensor in task.init(lanes).items() if name in f.buffers}
    losses = _losses(lanes, f, state | buffers, batches, batches.at(0), 0)
    assert not losses.positives.requires_grad
    assert not losses.refined.labels.requires_grad
    losses.total.sum().backward()
    reached = {name for name, tensor in state.items() if tensor.grad is not None and tensor.grad.any()}
    assert reached <= set(f.weights)
    assert {"conv1.weight", "head.3.weight"} <= reached


@pytest.mark.parametrize(
    "given",
    [
        {"mixup": "vanilla"},
        {"mixup": "vanilla", "mixup_views": "strong"},
        {"mixup": "none"},
        {"mixup": "none", "mixup_views": "strong"},
        {"mixup_views": "weak", "crops": "8, 6, 5"},
        {"refinery": "p"},
        {"refinery": "q", "mixup": "none", "mixup_views": "weak"},
        {"decay_shape": "drops", "drops": "1", "optimizer": "sgd"},
        {"view_size": 6},
        {"batch": 0, "dictionary": 7},
        {"pixels": "unit", "augmentation": "imagenet", "smallest_crop": 0.5},
    ],
    ids=str,
)
def test_every_variant_trains_and_differs_from_the_default(given: dict[str, str | int | float]) -> None:
    varied = task.settings({**{name: getattr(SMALL, name) for name in task.parameters}, **given})
    assert not list(task.conflicts(varied))
    one, other = trained(SMALL, 3), trained(varied, 3)
    assert all(bool(tensor.isfinite().all()) for tensor in other.values())
    assert not torch.equal(one["conv1.weight"], other["conv1.weight"])


def test_half_precision_trains_nearly_the_same() -> None:
    params = replace(SMALL, precision="float32")
    exact, half = trained(params, 3), trained(replace(params, autocast="bfloat16"), 3)
    assert not torch.equal(exact["conv1.weight"], half["conv1.weight"])
    torch.testing.assert_close(exact["conv1.weight"], half["conv1.weight"], rtol=0.05, atol=0.05)
    assert {tensor.dtype for tensor in half.values()} == {torch.float32, torch.int64}


def test_the_loss_of_several_crops_is_their_mean() -> None:
    params = replace(SMALL, mixup_views="weak")
    losses = {}
    for crops in ("8", "6", "8, 6"):
        lanes = Lanes([replace(params, crops=crops)], [0])
        losses[crops] = task.measure(lanes, task.init(lanes))["mixup_loss"].item()
    # A crop's draws depend on its size, so it is the same alone and among others.
    assert losses["8, 6"] == pytest.approx((losses["8"] + losses["6"]) / 2)


def test_images_that_stay_off_the_device_train_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    on_device = frames_of(replace(SMALL, steps=2, frames=2, probe_epochs=1))
    monkeypatch.setattr("mislabel.tasks.self_labeling.batches._ON_DEVICE", 0)
    elsewhere = frames_of(replace(SMALL, steps=2, frames=2, probe_epochs=1))
    for one, other in zip(on_device, elsewhere, strict=True):
        assert all(np.array_equal(one.metrics[name], other.metrics[name], equal_nan=True) for name in one.metrics)


def test_an_epoch_has_each_image_once_without_an_incomplete_batch() -> None:
    batches = Batches(Lanes([SMALL] * 2, [0, 1]))
    first = torch.cat([batches.at(step) for step in range(7)], dim=1)
    assert first.shape == (2, 56)  # of 60
    assert all(len(set(row)) == 56 for row in first.tolist())
    assert not torch.equal(first[0], first[1])
    again = torch.cat([batches.at(step) for step in range(7, 14)], dim=1)
    assert not torch.equal(first, again)
    assert torch.equal(Batches(Lanes([SMALL] * 2, [0, 1])).at(9), batches.at(9))


def test_conflicting_settings_are_refused() -> None:
    def said(params: Params) -> str:
        return "; ".join(task.conflicts(params))

    assert not said(SMALL)
    assert "leave them at 0" in said(replace(SMALL, network="resnet18"))
    assert "leave it at small" in said(replace(SMALL, stem="imagenet"))
    assert "is not a list of sizes" in said(replace(SMALL, crops="8, large", mixup_views="weak"))
    assert "is not a list of sizes" in said(replace(SMALL, crops="0", mixup_views="weak"))
    assert "make mixup_views weak or strong" in said(replace(SMALL, crops="8"))


@torch.no_grad()
def test_controls_leave_the_positive_as_much_of_the_label_as_the_refinery() -> None:
    state, step = trained(SMALL, 6), 6
    found = {}
    for kind in ("both", "classes", "uniform"):
        lanes = Lanes([replace(SMALL, refinery=kind)], [3])
        batches = Batches(lanes)
        index = batches.at(step)
        found[kind] = _losses(lanes, _encoder(lanes), state, batches, index, step).refined.labels[0]
    own = found["both"].diagonal()
    assert (own < 0.99).all()
    torch.testing.assert_close(found["uniform"].diagonal(), own)
    torch.testing.assert_close(found["uniform"].amin(dim=1), (1 - own) / (found["both"].shape[1] - 1))
    classes = batches.data.train_y
    for i, label in enumerate(found["classes"]):
        keys = torch.cat([index[0], state["key_samples"][0]])
        same = torch.tensor([k >= 0 and classes[k] == classes[index[0, i]] for k in keys.tolist()])
        assert label[~same].sum() == 0
        assert label.sum().item() == pytest.approx(1)
        if same.sum() > 1:
            assert label[i].item() == pytest.approx(own[i].item())


@pytest.mark.claims
def test_training_improves_features_and_refined_labels_are_closer_to_ideal_than_one_hot_labels() -> None:
    params = Params(
        batch=64, depth=2, width=16, embedding=32, dictionary=256, smallest_crop=0.4, learning_rate=0.1, steps=250,
        frames=2, probe="never", neighbours=20,
    )  # fmt: skip
    first, last = frames_of(params)
    assert (last.metrics["knn_accuracy"] > first.metrics["knn_accuracy"]).all()
    assert (last.metrics["label_distance"] < last.metrics["one_hot_distance"]).all()
    assert (last.metrics["label_others_class_mass"] > 0.13).all()  # chance is a tenth


@pytest.mark.data("cifar10")
def test_random_features_classify_real_images_in_colour_above_chance() -> None:
    params = Params(data="cifar10", samples=2000, test_samples=500, view_size=16, width=8, batch=32, steps=2, frames=2)
    frames = frames_of(replace(params, probe_epochs=5, dictionary=64))
    assert [frame.step for frame in frames] == [0, 2]
    assert float(frames[0].metrics["knn_accuracy"][0]) > 0.2  # of ten classes
    assert float(frames[1].metrics["probe_accuracy"][0]) > 0.15
    assert not any(frame.diverged.any() for frame in frames)


def test_runs_are_stopped_when_knn_accuracy_no_longer_improves(store: Store) -> None:
    parameters = {**task.small, "steps": 40, "frames": 11, "learning_rate": 1e-6, "probe": "never"}
    content = {
        "name": "stopped", "task": task.name, "metric": {"name": "knn_accuracy", "goal": "maximize"}, "seeds": 2,
        "parameters": parameters,
        "early_terminate": {"type": "patience", "min_steps": 8, "patience": 8, "min_gain": 0.2},
    }  # fmt: skip
    launch = prepare(*checked_spec(Document("test", content)), store).start(MACHINE)
    run_inline(launch.driver, launch.files, CPU, lambda: None)
    runs = runs_of(launch.files)
    assert set(runs["status"]) == {"stopped"}
    assert set(runs["step"]) == {8}
