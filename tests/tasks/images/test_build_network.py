from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mislabel.tasks.images.architectures import KINDS
from mislabel.tasks.images.build_network import build, has_batch_norm, network_conflicts
from mislabel.tasks.images.derivatives import along, gradients
from mislabel.tasks.images.layered import LayeredNetwork
from mislabel.tasks.images.network import Result
from mislabel.tasks.lanes import Lanes
from tests.tasks.images.small import (
    SMALL,
    Params,
    batch,
    lanes_of,
    loss,
    small,
    some_direction,
    trained,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("kind", SMALL)
def test_a_network_learns_the_same_alone_and_in_a_pack(kind: str) -> None:
    network, lanes, state = small(kind)
    x, rate = batch(kind, lanes_of(kind), 6), torch.tensor([0.01, 0.02, 0.05], dtype=torch.float64)[: len(lanes)]
    together = trained(network, state, x, rate)
    for lane in range(len(lanes)):
        own = network.init(lanes.select([lane]))
        for name, tensor in own.items():
            assert torch.equal(tensor[0], state[name][lane])
        alone = trained(network, own, x[lane : lane + 1], rate[lane : lane + 1])
        for name, tensor in alone.items():
            torch.testing.assert_close(tensor[0], together[name][lane], rtol=1e-8, atol=1e-10)
            assert network.buffers or not torch.equal(tensor[0], state[name][lane])


@pytest.mark.parametrize("kind", SMALL)
def test_lanes_may_share_images(kind: str) -> None:
    network, _, state = small(kind)
    x = batch(kind, 6)
    shared = network.forward(state, x, watch=True)
    each = network.forward(state, x.expand(lanes_of(kind), *x.shape), watch=True)
    torch.testing.assert_close(shared.outputs, each.outputs)
    assert shared.outputs.shape == (lanes_of(kind), 6, 4)
    assert shared.hidden.keys() == each.hidden.keys()
    for name, hidden in shared.hidden.items():
        assert hidden.shape[:2] == (lanes_of(kind), 6)
        torch.testing.assert_close(hidden, each.hidden[name])


@pytest.mark.parametrize("kind", ["cnn", "resnet20", "wide_resnet"])
def test_processing_lanes_in_parts_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, _, state = small(kind)
    x = batch(kind, 3, 5)
    whole = network.forward(state, x, training=True, watch=True)
    monkeypatch.setattr("mislabel.tasks.images.layered._SHARED_NUMBERS", 1)
    parts = network.forward(state, x, training=True, watch=True)
    torch.testing.assert_close(parts.outputs, whole.outputs)
    for name in whole.hidden:
        torch.testing.assert_close(parts.hidden[name], whole.hidden[name])
    assert parts.buffers.keys() == whole.buffers.keys()
    for name in whole.buffers:
        torch.testing.assert_close(parts.buffers[name], whole.buffers[name])


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("kind", ["cnn", "resnet20", "wide_resnet"])
def test_processing_batches_in_parts_changes_nothing(kind: str, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    network, _, state = small(kind)
    x = batch(kind, 7) if shared else batch(kind, 3, 7)

    def looked_at() -> list[Tensor]:
        seen = network.forward(state, x, watch=True)
        grads, after = gradients(network, state, x, loss)
        change = along(network, state, some_direction(network, state), x)[1]
        return [seen.outputs, *seen.hidden.values(), change, *grads.values(), *after.buffers.values()]

    whole = looked_at()
    sizes: list[int] = []
    plain = LayeredNetwork._pass

    def counted(self: LayeredNetwork, own: dict[str, Tensor], x: Tensor, lanes: int, *how: bool) -> Result:
        sizes.append(x.shape[-4])
        return plain(self, own, x, lanes, *how)

    monkeypatch.setattr("mislabel.tasks.images.layered._PART_NUMBERS", 1)
    monkeypatch.setattr(LayeredNetwork, "_pass", counted)
    parts = looked_at()
    # In training, one pass of the three, batch norm mixes the images of a batch.
    assert sizes == ([1] * 7 + [7] + [1] * 7 if kind == "resnet20" else [1] * 21)
    for part, one in zip(parts, whole, strict=True):
        torch.testing.assert_close(part, one)


def test_numbers_of_weights_are_those_of_the_papers() -> None:
    def size(kind: str, inputs: tuple[int, int, int], outputs: int = 10) -> int:
        return build(Params(network=kind), inputs, outputs).size

    assert size("fc", (1, 28, 28), 1) == 784 * 512 + 512 + 512 * 512 + 512 + 512 + 1
    assert size("cnn", (1, 28, 28)) == 320 + 18_496 + (64 * 12 * 12 + 1) * 64 + 650
    assert size("resnet9", (3, 32, 32)) == 2_449_418
    assert size("resnet20", (3, 32, 32)) == 269_722
    assert size("resnet18", (3, 32, 32)) == 11_173_962
    assert size("resnet50", (3, 32, 32)) == 23_520_842


def as_torch(w: Tensor) -> Tensor:
    """In torch's dense layers the output axis comes first."""
    return w.T if w.dim() == 2 else w


class BasicBlock(nn.Module):
    """A block of ResNet-20 as in the paper, with shortcuts that subsample and pad."""

    def __init__(self, inputs: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride, self.more = stride, channels - inputs

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
        x = functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.more // 2, self.more // 2))
        return (h + x).relu()


def reference_fc() -> nn.Module:
    hidden = [part for inputs in (16, 7, 7) for part in (nn.Linear(inputs, 7), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(7, 4))


def reference_cnn() -> nn.Module:
    convolutions = nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 6, 3), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(6 * 4, 6), nn.ReLU(), nn.Linear(6, 4))


def reference_resnet20() -> nn.Module:
    stem = nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU()
    blocks = BasicBlock(4, 4, 1), BasicBlock(4, 8, 2), BasicBlock(8, 16, 2)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4))


@pytest.mark.parametrize(
    ("kind", "reference"), [("fc", reference_fc), ("cnn", reference_cnn), ("resnet20", reference_resnet20)]
)
def test_outputs_gradients_and_buffers_are_those_of_torch_modules(
    kind: str, reference: Callable[[], nn.Module]
) -> None:
    network, _, state = small(kind)
    x = batch(kind, 3, 6)
    grads, seen = gradients(network, state, x, loss)
    for lane in range(3):
        module = reference().double()
        named = list(module.named_parameters())
        with torch.no_grad():
            for (_, parameter), name in zip(named, network.weights, strict=True):
                parameter.copy_(as_torch(state[name][lane]))
        outputs = module(x[lane])
        torch.testing.assert_close(outputs, seen.outputs[lane])
        loss(outputs[None]).sum().backward()
        for (_, parameter), name in zip(named, network.weights, strict=True):
            torch.testing.assert_close(parameter.grad, as_torch(grads[name][lane]))
        statistics = [buffer for name, buffer in module.named_buffers() if "running" in name]
        for buffer, name in zip(statistics, network.buffers, strict=True):
            torch.testing.assert_close(buffer, seen.buffers[name][lane])
        after = {**state, **seen.buffers}
        torch.testing.assert_close(module.eval()(x[lane]), network.forward(after, x).outputs[lane])


@pytest.mark.parametrize(("pixels", "last"), [(8, 1), (16, 2), (32, 2)])
def test_resnet9_equals_a_plain_implementation(pixels: int, last: int) -> None:
    lanes = Lanes([Params(network="resnet9", width=2, init="torch", precision="float64")], [0])
    network = build(lanes.shape, (3, pixels, pixels), 4)
    state, x = network.init(lanes), lanes.normal("x", 6, 3, pixels, pixels)

    def block(h: Tensor, name: str, pool: bool = False) -> Tensor:
        s = {key.removeprefix(f"{name}."): tensor[0] for key, tensor in state.items() if key.startswith(f"{name}.")}
        h = functional.conv2d(h, s["conv.weight"], s["conv.bias"], padding=1)
        mean, variance = h.mean(dim=(0, 2, 3), keepdim=True), h.var(dim=(0, 2, 3), keepdim=True, correction=0)
        h = (h - mean) / (variance + 1e-5).sqrt()
        h = h * s["norm.weight"][:, None, None] + s["norm.bias"][:, None, None]
        h = h * (1 + h.exp()).log().tanh()
        return functional.max_pool2d(h, 2) if pool else h

    h = block(block(x[0], "conv1"), "conv2", pool=True)
    h = h + block(block(h, "res1.1.1"), "res1.1.2")
    h = block(block(h, "conv3", pool=True), "conv4", pool=True)
    h = h + block(block(h, "res2.1.1"), "res2.1.2")
    expected = functional.max_pool2d(h, last).flatten(1) @ state["output.weight"][0] + state["output.bias"][0]
    torch.testing.assert_close(network.forward(state, x, training=True).outputs[0], expected)


def test_torchvisions_resnet_equals_torchvision() -> None:
    from mislabel.tasks.data.torchvision_import import vision

    network, _, state = small("resnet18", 1)
    module = vision("models.resnet").resnet18(num_classes=4)
    module.conv1 = nn.Conv2d(1, 64, 3, padding=1, bias=False)
    module.maxpool = nn.Identity()
    module.double()
    missing, unexpected = module.load_state_dict({name: tensor[0] for name, tensor in state.items()}, strict=False)
    assert not unexpected
    assert all(name.endswith("num_batches_tracked") for name in missing)
    x = batch("resnet18", 1, 4)
    torch.testing.assert_close(module(x[0]), network.forward(state, x, training=True).outputs[0])


@pytest.mark.parametrize("kind", ["resnet9", "resnet20", "resnet18"])
def test_running_statistics_change_only_in_training_and_are_used_in_evaluation(kind: str) -> None:
    network, _, state = small(kind)
    before = {name: tensor.clone() for name, tensor in state.items()}
    x = batch(kind, lanes_of(kind), 6)
    seen = network.forward(state, x, training=True)
    assert seen.buffers.keys() == network.buffers.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in state.items())
    assert all(not torch.equal(seen.buffers[name], state[name]) for name in network.buffers)
    assert not network.forward(state, x).buffers
    after = {**state, **seen.buffers}
    one = network.forward(after, x[:, :1]).outputs
    torch.testing.assert_close(network.forward(after, x).outputs[:, :1], one)


def test_initial_weights_have_the_declared_variance() -> None:
    for init, deviation in (("he", 2 / 784), ("lecun", 1 / 784), ("torch", 1 / (3 * 784))):
        lanes = Lanes([Params(init=init, init_scale=scale) for scale in (1.0, 0.5)], [0, 1])
        state = build(lanes.shape, (1, 28, 28), 10).init(lanes)
        for lane, scale in enumerate((1.0, 0.5)):
            w = state["layer1.weight"][lane]
            assert float(w.var()) == pytest.approx(scale**2 * deviation, rel=0.02)
            assert abs(float(w.mean())) < 5 * (deviation / w.numel()) ** 0.5
    assert float(w.abs().max()) <= 0.5 / 28
    assert float(state["layer1.bias"].abs().max()) > 0


def test_ntk_weights_start_with_variance_one_and_the_same_function() -> None:
    for kind in ("fc", "cnn", "wide_resnet"):
        standard, _, state = small(kind)
        ntk, _, ntk_state = small(kind, parametrization="ntk")
        x = batch(kind, 3, 5)
        torch.testing.assert_close(standard.forward(state, x).outputs, ntk.forward(ntk_state, x).outputs)
    lanes = Lanes([Params(network="wide_resnet", width=2, parametrization="ntk")], [0])
    network = build(lanes.shape, (3, 32, 32), 10)
    for name, w in network.init(lanes).items():
        if name.endswith("weight"):
            assert float(w.var()) == pytest.approx(1, abs=6 / w.numel() ** 0.5)


def test_ntk_outputs_have_the_variance_of_theory_at_the_start() -> None:
    """With gain √2 in hidden layers, E f² = ‖x‖²/d for every width."""
    lanes = Lanes([Params(depth=3, width=64, parametrization="ntk")] * 300, range(300))
    network = build(lanes.shape, (1, 4, 4), 1)
    x = torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    f = network.forward(network.init(lanes), x).outputs
    assert float(f.square().mean()) == pytest.approx(float(x.square().mean()), rel=0.25)


def test_hidden_activations_are_watched() -> None:
    network, _, state = small("fc")
    x = batch("fc", 3, 50)
    seen = network.forward(state, x, watch=True)
    assert list(seen.hidden) == ["hidden1", "hidden2", "hidden3"]
    first = torch.einsum("lbd,ldm->lbm", x.flatten(2), state["layer1.weight"])
    torch.testing.assert_close(seen.active_shares()["hidden1"], (first > 0).double().mean(dim=(1, 2)))
    assert not network.forward(state, x).hidden
    convolutions, _, kernels = small("cnn", 1)
    image = batch("cnn", 1, 5)
    watched = convolutions.forward(kernels, image, watch=True).hidden
    first = functional.conv2d(image[0], kernels["conv1.weight"][0], kernels["conv1.bias"][0]).relu()
    second = functional.conv2d(first, kernels["conv2.weight"][0], kernels["conv2.bias"][0]).relu()
    torch.testing.assert_close(watched["hidden1"][0], first)
    torch.testing.assert_close(watched["hidden2"][0], second)  # before the pool
    resnet = build(Params(network="resnet20"), (3, 32, 32), 10)
    start = resnet.init(Lanes([Params()], [0]))
    last = resnet.forward(start, torch.zeros(1, 3, 32, 32), watch=True).hidden["stage3.3"]
    assert last[0, 0].numel() == 4096  # neurons of the penultimate layer, as the paper counts them


def test_the_first_layers_norm_is_measured() -> None:
    network, _, state = small("wide_resnet")
    torch.testing.assert_close(network.first_norm(state), state["stem.weight"].square().sum(dim=(1, 2, 3, 4)).sqrt())


def test_conflicting_parameters_are_reported() -> None:
    assert list(network_conflicts(Params())) == []
    assert len(list(network_conflicts(Params(network="resnet18", width=3, parametrization="ntk")))) == 2
    (text,) = network_conflicts(Params(network="resnet50", init="torch"))
    assert text.startswith("init: resnet50")


@pytest.mark.parametrize("kind", [*KINDS, "resnet18"])
def test_kinds_say_whether_they_have_batch_norm(kind: str) -> None:
    assert has_batch_norm(kind) == bool(build(Params(network=kind), (3, 32, 32), 10).buffers)
