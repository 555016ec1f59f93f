import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.data import images
from mislabel.tasks.data.images import DataError
from mislabel.tasks.images import image_training
from mislabel.tasks.images.build_network import NetworkParams, build
from mislabel.tasks.images.dense import DenseNetwork
from mislabel.tasks.images.image_training import ImageTraining
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes

pytestmark = pytest.mark.long


@dataclass(frozen=True, kw_only=True)
class Params(ImageTraining, NetworkParams):
    pass


NETWORKS: tuple[dict[str, Any], ...] = ({}, {"network": "cnn", "width": 4}, {"network": "resnet20", "depth": 1})
SMALL = {"classes": "0, 1", "samples": 50, "batch": 20, "depth": 2, "width": 7, "precision": "float64"}


def params_of(**settings: Any) -> Params:
    return Params(**{**SMALL, **settings})


def lanes_of(*settings: dict[str, Any], device: str = "cpu") -> Lanes[Params]:
    return Lanes([params_of(**each) for each in settings], range(len(settings)), torch.device(device))


def loss_of(lanes: Lanes[Params], seen: list[Tensor] | None = None) -> Callable[[Tensor, int, Tensor], Tensor]:
    y = image_training.loaded(lanes).train_y

    def loss(index: Tensor, step: int, outputs: Tensor) -> Tensor:
        if seen is not None:
            seen.append(index.clone())
        return functional.cross_entropy(outputs.mT, y[index], reduction="none").mean(dim=1)

    return loss


def networks(lanes: Lanes[Params]) -> tuple[Network, dict[str, Tensor]]:
    network = build(lanes.shape, image_training.loaded(lanes).size, outputs=2)
    return network, image_training.initial_state(lanes, network)


def trained(lanes: Lanes[Params], *stops: int, seen: list[Tensor] | None = None) -> dict[str, Tensor]:
    network, state = networks(lanes)
    for start, stop in zip((0, *stops), stops, strict=False):
        image_training.train(lanes, network, state, start, stop, loss_of(lanes, seen))
    return state


def trained_by_torch(lanes: Lanes[Params], lane: int, steps: int) -> dict[str, Tensor]:
    """The same by autograd, all pixels and torch's SGD, in the lane's order of images."""
    network, state = networks(lanes)
    one = {name: state[name][[lane]].clone().requires_grad_() for name in network.weights}
    params, p = lanes.params[lane], lanes.shape
    sgd = torch.optim.SGD(
        one.values(),
        lr=params.learning_rate,
        momentum=params.momentum if p.optimizer == "momentum" else 0.0,
        weight_decay=params.weight_decay,
    )
    data, loss = image_training.loaded(lanes), loss_of(lanes)
    for step in range(steps):
        index = image_training.chosen(lanes, state, step)[[lane]]
        x = image_training.scaled(lanes, data.train_x[index[0]])
        for group in sgd.param_groups:
            group["lr"] = image_training.rate_at(lanes, step / image_training.epoch_steps(lanes))[lane].item()
        sgd.zero_grad()
        loss(index, step, network.forward(one, x, training=True).outputs).sum().backward()
        sgd.step()
    return {name: tensor.detach()[0] for name, tensor in one.items()}


@pytest.mark.parametrize("pixels", ["unit", "standardized"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(
    "shape", [{}, {"parametrization": "ntk"}, {"network": "cnn", "width": 2}, {"batch": 0}], ids=str
)
def test_training_equals_torch(pixels: str, optimizer: str, decay: float, shape: dict[str, Any]) -> None:
    common = {"pixels": pixels, "optimizer": optimizer, "drops": "1, 2", **shape}
    lanes = lanes_of(
        {**common, "learning_rate": 0.2, "momentum": 0.5, "drop": 0.1},
        {**common, "learning_rate": 0.3, "weight_decay": decay},
    )
    state = trained(lanes, 3, 7)
    for lane in range(2):
        for name, expected in trained_by_torch(lanes, lane, 7).items():
            torch.testing.assert_close(state[name][lane], expected)


def test_hand_written_steps_leave_out_zero_pixels() -> None:
    lanes = lanes_of({})
    network, _ = networks(lanes)
    assert isinstance(network, DenseNetwork)
    before, after = networks(lanes)[1]["layer1.weight"], trained(lanes, 5)["layer1.weight"]
    dark = image_training.loaded(lanes).train_x.flatten(1).amax(dim=0) == 0
    assert 0 < dark.sum() < len(dark)
    assert torch.equal(after[:, dark], before[:, dark])
    assert (after[:, ~dark] != before[:, ~dark]).any(dim=2).all()


def test_training_in_two_parts_is_exactly_training_at_once() -> None:
    for settings in ({"optimizer": "momentum", "weight_decay": 0.1}, {"network": "cnn", "width": 2}):
        lanes = lanes_of(settings, {**settings, "learning_rate": 0.3})
        at_once, in_parts = trained(lanes, 8), trained(lanes, 2, 4, 5, 8)
        assert at_once.keys() == in_parts.keys()
        assert all(torch.equal(at_once[name], in_parts[name]) for name in at_once)


def test_every_epoch_has_each_image_once_in_a_new_order() -> None:
    seen: list[Tensor] = []
    lanes = lanes_of({}, {"learning_rate": 0.3})
    trained(lanes, 6, seen=seen)
    assert [index.shape[1] for index in seen] == [20, 20, 10] * 2  # the last batch has the rest
    first, second = torch.cat(seen[:3], dim=1), torch.cat(seen[3:], dim=1)
    orders = [first[0], first[1], second[0], second[1]]
    for order in orders:
        assert sorted(order.tolist()) == list(range(50))
    assert len({tuple(order.tolist()) for order in orders}) == 4


def test_full_batches_keep_the_order_of_the_images() -> None:
    seen: list[Tensor] = []
    lanes = lanes_of({"batch": 0}, {"batch": 0})
    assert image_training.epoch_steps(lanes) == 1
    trained(lanes, 2, seen=seen)
    assert all(index.tolist() == [list(range(50))] * 2 for index in seen)


def test_the_rate_drops() -> None:
    lanes = lanes_of({"drops": "1, 2.5", "drop": 0.5}, {"drops": "1, 2.5", "drop": 0.1})
    rates = [image_training.rate_at(lanes, epochs).tolist() for epochs in (0.0, 0.9, 1.0, 2.5)]
    assert rates == [pytest.approx(each) for each in ([0.1, 0.1], [0.1, 0.1], [0.05, 0.01], [0.025, 0.001])]
    every = lanes_of({"drops": "every 2"})
    assert [image_training.rate_at(every, epochs).item() for epochs in (1.9, 2.0, 4.0)] == [0.1, 0.05, 0.025]


def test_pixels_are_scaled() -> None:
    unit = lanes_of({})
    x = image_training.scaled(unit, image_training.loaded(unit).train_x)
    assert (x.min().item(), x.max().item()) == (0, 1)
    standardized = lanes_of({"pixels": "standardized"})
    x = image_training.scaled(standardized, image_training.loaded(standardized).train_x)
    assert x.mean().item() == pytest.approx(0, abs=1e-12)
    assert x.std(correction=0).item() == pytest.approx(1)
    assert image_training.loaded(standardized).train_x.dtype == torch.uint8


def test_training_images_that_are_standardized_are_on_the_device_once() -> None:
    lanes = lanes_of({"pixels": "standardized", "samples": 30, "test_samples": 10})
    images.forget()
    image_training.scaled(lanes, image_training.loaded(lanes).train_x)
    assert images.part.cache_info().currsize == 1


def test_training_uses_augmented_images() -> None:
    lanes = lanes_of({}, {})
    network, state = networks(lanes)
    before = {name: tensor.clone() for name, tensor in state.items()}
    shapes = []

    def black(x: Tensor, step: int) -> Tensor:
        shapes.append((step, tuple(x.shape), x.dtype))
        return torch.zeros_like(x)

    image_training.train(lanes, network, state, 0, 2, loss_of(lanes), black)
    assert shapes == [(step, (2, 20, 1, 8, 8), torch.uint8) for step in (0, 1)]
    assert torch.equal(state["layer1.weight"], before["layer1.weight"])  # black images have no gradient
    assert not torch.equal(state["output.bias"], before["output.bias"])


def test_a_run_trains_the_same_alone_and_in_a_pack() -> None:
    settings = [{"learning_rate": rate, "optimizer": "momentum"} for rate in (0.1, 0.2, 0.3)]
    lanes = lanes_of(*settings)
    together = trained(lanes, 5)
    for lane in range(3):
        alone = trained(lanes.select([lane]), 5)
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor[0], together[name][lane])


@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_bfloat16_is_close(network: dict[str, Any]) -> None:
    full = {"precision": "float32", **network}
    exact, half = trained(lanes_of(full, full), 5), trained(lanes_of(*[{**full, "autocast": "bfloat16"}] * 2), 5)
    start = networks(lanes_of(full, full))[1]
    for name, tensor in half.items():
        assert tensor.dtype == exact[name].dtype
        moved = (exact[name] - start[name]).double()
        if tensor.dtype == torch.float32 and moved.norm() > 1e-3:
            assert (tensor - exact[name]).double().norm() < 0.2 * moved.norm(), name
    assert any(not torch.equal(half[name], exact[name]) for name in half)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_networks_train_the_same() -> None:
    settings = [{"network": "cnn", "width": 4, "batch": 25, "learning_rate": rate} for rate in (0.1, 0.2)]
    plain, compiled = (
        trained(lanes_of(*[{**each, "compiled": on} for each in settings]), 2, 5) for on in (False, True)
    )
    assert plain.keys() == compiled.keys()
    for name, tensor in plain.items():
        torch.testing.assert_close(compiled[name], tensor)


def test_compiling_needs_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="compiled: "):
        trained(lanes_of({"compiled": True, "width": 3}), 1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_gpu_trains_the_same(network: dict[str, Any], lanes: int) -> None:
    near, far = (trained(lanes_of(*[network] * lanes, device=device), 2, 5) for device in ("cpu", "cuda"))
    for name, tensor in near.items():
        torch.testing.assert_close(far[name].cpu(), tensor)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("faster", [{"autocast": "bfloat16"}, {"compiled": True}], ids=str)
@pytest.mark.parametrize("network", NETWORKS, ids=str)
def test_a_gpu_trains_nearly_the_same_when_accelerated(
    network: dict[str, Any], faster: dict[str, Any], lanes: int
) -> None:
    plain = {"precision": "float32", **network}
    exact = trained(lanes_of(*[plain] * lanes, device="cuda"), 5)
    close = trained(lanes_of(*[{**plain, **faster}] * lanes, device="cuda"), 5)
    start = networks(lanes_of(*[plain] * lanes, device="cuda"))[1]
    for name in start:
        moved = (exact[name] - start[name]).double().norm()
        if exact[name].dtype == torch.float32 and moved > 1e-3:
            assert (close[name] - exact[name]).double().norm() < 0.2 * moved, name


@pytest.mark.parametrize("settings", [{"samples": 21, "steps": 2}, {"batch": 1}, {"samples": 1, "batch": 0}], ids=str)
def test_batch_norm_of_a_single_image_with_1x1_features_is_refused(settings: dict[str, Any]) -> None:
    deep = {"network": "resnet18", "depth": 0, "width": 0, **settings}
    with pytest.raises(DataError, match=r"batch: .*1×8×8.*resnet18"):
        image_training.data_of(params_of(**deep))
    assert image_training.data_of(params_of(**{**deep, "network": "resnet20"}))  # has 2×2 features
    assert image_training.data_of(params_of(**settings))


def test_a_network_that_is_too_deep_for_its_images_is_refused() -> None:
    assert image_training.data_of(params_of(network="cnn", depth=2))
    with pytest.raises(DataError, match=r"network: .*1×8×8.*cnn of depth 5"):
        image_training.data_of(params_of(network="cnn", depth=5))


def test_batch_norm_trains_if_no_step_has_a_single_image() -> None:
    deep = {"network": "resnet18", "depth": 0, "width": 0}
    for settings in ({"samples": 22}, {"samples": 21, "steps": 1}, {"samples": 21, "batch": 0}):
        assert image_training.data_of(params_of(**deep, **settings))


def test_impossible_settings_are_refused() -> None:
    assert list(image_training.conflicts(params_of(drops="100, 150"))) == []
    for drops in ("soon", "every 0", "every now"):
        (text,) = image_training.conflicts(params_of(drops=drops))
        assert text.startswith(f"drops: {drops!r}")
    with pytest.raises(DataError, match=r"batch: 51 .* 50 "):
        image_training.data_of(params_of(batch=51))
    with pytest.raises(DataError, match=r"'11'.*digits"):
        image_training.data_of(params_of(classes="0, 11"))
    with pytest.raises(DataError, match=r"2,500 .*class 0.*digits"):
        image_training.data_of(params_of(samples=5000))
    with pytest.raises(DataError, match=r"classes: .*7.*digits"):
        image_training.data_of(params_of(classes="7", samples=0, batch=256))
    (checksum,) = image_training.data_of(params_of()).values()
    assert checksum.startswith("sha256:")
