"""Sparsity on images: compared with autograd, two ways of training, and the paper's claims at small sizes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.tasks.conformance import CHECKS
from mislabel.tasks.images import image_training
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.images import Params, _network, _targets, _training_loss, task
from mislabel.tasks.pack import Frame, Pack
from mislabel.tasks.parameters import Value
from mislabel.tasks.task import Task

pytestmark = pytest.mark.long

SMALL = Params(
    width=12, samples=100, test_samples=50, steps=230, frames=3, learning_rate=0.05, drops="0.55, 2", drop=0.5,
    noise_rate=0.3, smoothing=0.1, precision="float64",
)  # fmt: skip
RESNET: dict[str, Value] = {
    "network": "resnet20", "depth": 1, "width": 4, "batch": 32, "samples": 100, "test_samples": 50, "loss": "softmax",
    "pixels": "standardized", "optimizer": "momentum", "weight_decay": 1e-3, "augmentation": "shifts_and_flips",
    "smoothing": 0.1, "drops": "1", "drop": 0.1,
}  # fmt: skip


def frames_of(settings: Sequence[Params], seeds: Sequence[int]) -> list[Frame]:
    pack, frames = Pack(task, Lanes(settings, seeds)), []
    while not pack.finished:
        frames += pack.advance(seconds=10)
    return frames


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_run_trains_like_autograd_on_one_image_at_a_time(loss: str) -> None:
    params, seed = replace(SMALL, loss=loss), 3
    lanes = Lanes([params], [seed])
    data, s = image_training.loaded(lanes), {name: tensor[0] for name, tensor in task.init(lanes).items()}
    layers = [s[name] for name in ("layer1.weight", "layer1.bias", "output.weight", "output.bias")]
    steps = range(params.steps)
    replaced = lanes.uniform("relabel", 1, steps=steps)[0, :, 0] < 0.3
    other = lanes.integers("relabel.label", 10, 1, steps=steps)[0, :, 0]
    for step in steps:
        if step % 100 == 0:
            epoch = step // 100
            order = lanes.uniform("order", 100, steps=range(epoch, epoch + 1))[0, 0].argsort()
        i = order[step % 100]
        label = int(other[step] if replaced[step] else data.train_y[i])
        target = torch.full((10,), 0.01, dtype=torch.float64)
        target[label] += 0.9
        leaves = [layer.requires_grad_() for layer in layers]
        f = torch.relu(data.train_x[i].flatten().double() / 255 @ leaves[0] + leaves[1]) @ leaves[2] + leaves[3]
        if loss == "logistic":
            lost = (target * torch.log(1 + torch.exp(-f)) + (1 - target) * torch.log(1 + torch.exp(f))).sum()
        else:
            lost = -(target * (f - f.exp().sum().log())).sum()
        rate = 0.05 * 0.5 ** ((step >= 55) + (step >= 200))
        moves = torch.autograd.grad(lost, leaves)
        layers = [(leaf - rate * move).detach() for leaf, move in zip(leaves, moves, strict=True)]
    w, b, a, c = layers
    end = frames_of([replace(params, noise_rate=0.1), params], [0, seed])[-1].metrics
    for name, x, y in (("train", data.train_x, data.train_y), ("test", data.test_x, data.test_y)):
        hidden = x.flatten(1).double() / 255 @ w + b
        wrong = ((torch.relu(hidden) @ a + c).argmax(dim=1) != y).double().mean().item()
        assert end[f"{name}_error"][1] == pytest.approx(wrong)
        share = end["active_share" if name == "train" else "test_active_share"]
        assert share[1] == pytest.approx((hidden > 0).double().mean().item())
    assert end["first_norm"][1] == pytest.approx(w.norm().item(), rel=1e-9)
    assert end["epoch"].tolist() == [2.3, 2.3]


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_blocks_of_single_images_train_like_general_steps(loss: str) -> None:
    lanes = Lanes([replace(SMALL, loss=loss), replace(SMALL, loss=loss, learning_rate=0.02, noise_rate=0.0)], [0, 1])
    s = task.init(lanes)
    found = task.advance(lanes, task.advance(lanes, s, 0, 128), 128, 230)
    expected = {name: tensor.clone() for name, tensor in s.items()}
    image_training.train(lanes, _network(lanes), expected, 0, 230, lambda *given: _training_loss(lanes, *given))
    for name in expected.keys() - {"epoch"}:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-9, atol=1e-12, msg=name)


def test_weight_decay_uses_the_general_steps() -> None:
    decayed, plain = frames_of([replace(SMALL, weight_decay=0.1), SMALL], [0, 0])[-1].metrics["first_norm"]
    assert decayed < 0.9 * plain


def test_only_the_first_layer_trains_if_asked_for() -> None:
    lanes = Lanes([replace(SMALL, trained="first")], [0])
    start = task.init(lanes)
    end = task.advance(lanes, start, 0, 64)
    for name, moved in (
        ("layer1.weight", True),
        ("layer1.bias", True),
        ("output.weight", False),
        ("output.bias", False),
    ):
        assert torch.equal(start[name], end[name]) is not moved, name
    assert [*task.conflicts(replace(SMALL, trained="first"))] == []
    for change in ({"batch": 2}, {"depth": 2}, {"weight_decay": 0.1}, {"network": "cnn"}):
        assert any(text.startswith("trained: ") for text in task.conflicts(replace(SMALL, trained="first", **change)))


def test_noise_and_smoothing_give_the_same_targets_on_average() -> None:
    y = torch.arange(10).repeat(400)[None, :, None]
    noisy, smooth = (
        _targets(Lanes([replace(SMALL, noise_rate=p, smoothing=q)], [0]), y, range(4000))[0, :, 0]
        for p, q in ((0.4, 0.0), (0.0, 0.4))
    )
    torch.testing.assert_close(smooth.sum(dim=1), torch.ones(4000).double())
    own = torch.eye(10, dtype=torch.float64).repeat(400, 1)
    torch.testing.assert_close(smooth, 0.6 * own + 0.04)
    assert abs((noisy * own).sum(dim=1).mean().item() - 0.64) < 0.03
    assert set(noisy.unique().tolist()) == {0.0, 1.0}


def test_a_smaller_last_batch_draws_its_own_labels() -> None:
    params = replace(SMALL, batch=32, noise_rate=1.0, smoothing=0.0)
    lanes = Lanes([params], [0])
    given: list[Tensor] = []
    for step, count in ((3, 4), (0, 32)):
        outputs = torch.zeros(1, count, 10, dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            loss = _training_loss(lanes, torch.arange(count)[None], step, outputs)
        (gradient,) = torch.autograd.grad(loss.sum(), [outputs])
        given.append(gradient[0].argmin(dim=1))
    drawn = lanes.integers("relabel.label", 10, 32, steps=range(4))[0]
    assert given[0].tolist() == drawn[3, :4].tolist()
    assert given[1].tolist() == drawn[0].tolist()


# The contract is checked with two-layer networks; here with batch norm and augmentation too.
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_residual_networks_keep_the_contract_too(check: Callable[[Task[Any]], None]) -> None:
    check(replace(task, small=RESNET, block=1))


def test_shifts_and_flips_change_what_is_trained_on() -> None:
    base = Params(**{**RESNET, "steps": 3, "frames": 2})  # type: ignore[arg-type]
    losses = [
        frames_of([replace(base, augmentation=kind)], [0])[-1].metrics["train_loss"][0]
        for kind in ("none", "shifts", "shifts_and_flips")
    ]
    assert len(set(losses)) == 3


def test_all_hidden_layers_are_seen_and_the_last_one_is_before_the_pooling() -> None:
    base = Params(**{**RESNET, "steps": 1, "frames": 2, "snapshots": 1})  # type: ignore[arg-type]
    end = frames_of([base], [0])[-1]
    assert end.arrays["layer_active_share"].shape == (1, 7)
    # 8×8 pixels become 2×2 after two strides, with four times the channels.
    assert end.arrays["neuron_firing"].shape == (1, 16 * 2 * 2)
    assert end.arrays["class_firing"].shape == (1, 16 * 2 * 2 * 10)
    assert end.arrays["layer_active_share"][0, -1] == pytest.approx(end.metrics["active_share"][0])
    np.testing.assert_allclose(
        end.arrays["class_firing"].reshape(64, 10).mean(axis=1), end.arrays["neuron_firing"][0], rtol=1e-5
    )


@pytest.mark.claims
def test_label_noise_makes_neurons_fire_rarely_and_for_one_class() -> None:
    params = Params(width=100, learning_rate=0.05, drops="every 10", steps=20 * 1437, frames=2)
    cells = [replace(params, noise_rate=p, smoothing=q) for p, q in ((0.0, 0.0), (0.1, 0.0), (0.0, 0.1))]
    end = frames_of([cell for cell in cells for _ in range(3)], [*range(3)] * 3)[-1].metrics
    clean, noisy, smooth = ({name: values[i : i + 3] for name, values in end.items()} for i in (0, 3, 6))
    assert (clean["train_error"] == 0).all()
    assert noisy["train_error"].max() < 0.03
    assert (noisy["active_share"] < clean["active_share"] - 0.2).all()
    assert (smooth["active_share"] < clean["active_share"] - 0.05).all()
    assert (noisy["class_neurons"] > clean["class_neurons"] + 10).all()


@pytest.mark.data("mnist")
def test_mnist_trains_at_the_papers_size() -> None:
    params = Params(data="mnist", steps=4096, frames=2, test_samples=1000, seen_samples=1000, noise_rate=0.1)
    start, end = frames_of([params], [0])
    assert end.metrics["test_error"][0] < 0.15
    assert end.metrics["active_share"][0] < start.metrics["active_share"][0] - 0.05


@pytest.mark.data("cifar10")
def test_a_residual_network_memorizes_a_few_real_images() -> None:
    settings = {**RESNET, "data": "cifar10", "width": 8, "augmentation": "none", "drops": ""}
    settings |= {"smoothing": 0.0, "noise_rate": 0.0, "samples": 40, "batch": 20, "learning_rate": 0.1, "steps": 120}
    frames = frames_of([task.settings({**settings, "frames": 2})], [0])
    first, last = (float(frame.metrics["train_error"][0]) for frame in (frames[0], frames[-1]))
    assert first > 0.7
    assert last < 0.3
    assert 0 < float(frames[-1].metrics["active_share"][0]) < 1
