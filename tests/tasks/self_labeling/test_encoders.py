"""Encoders give features and projections, and torchvision loads their backbones."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mislabel.tasks.data.torchvision_import import vision
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.encoders import FEATURES, HEAD, encoder, loadable
from mislabel.tasks.self_labeling.sane import Params, init, weights


def shape_of(**given: Any) -> Any:
    usual = {"network": "convnet", "depth": 2, "width": 3, "stem": "small", "autocast": "none", "compiled": False}
    return SimpleNamespace(**(usual | {"head_layers": 3, "head_width": 0, "embedding": 5} | given))


def test_a_pass_gives_features_and_their_projection() -> None:
    lanes = Lanes([Params()] * 2, range(2))
    f = encoder(shape_of(), (1, 8, 8))
    state = f.init(lanes)
    x = lanes.normal("x", 4, 1, 8, 8)
    seen = f.forward(state, x, training=True)
    assert seen.outputs.shape == (2, 4, 5)
    assert seen.hidden[FEATURES].shape == (2, 4, 6)
    for lane in range(2):
        h = seen.hidden[FEATURES][lane]
        for i in (1, 2, 3):
            h = (h.relu() if i > 1 else h) @ state[f"{HEAD}{i}.weight"][lane] + state[f"{HEAD}{i}.bias"][lane]
        torch.testing.assert_close(seen.outputs[lane], h)


def test_the_convnet_equals_torch_modules() -> None:
    lanes = Lanes([Params(precision="float64")], [0])
    f = encoder(shape_of(depth=3, width=4), (2, 9, 9))
    state = f.init(lanes)
    h: Tensor = lanes.normal("x", 5, 2, 9, 9)[0]
    for i in (1, 2, 3):
        h = functional.conv2d(h, state[f"conv{i}.weight"][0], stride=2, padding=1)
        h = functional.batch_norm(h, None, None, training=True).relu()
    found = f.forward(state, lanes.normal("x", 5, 2, 9, 9), training=True).hidden[FEATURES]
    torch.testing.assert_close(found[0], h.mean(dim=(2, 3)))


@pytest.mark.parametrize("network", ["resnet9", "resnet20", "resnet18"])
def test_small_resnets_end_with_features(network: str) -> None:
    f = encoder(shape_of(network=network, depth=0, width=0 if network == "resnet18" else 4), (1, 8, 8))
    lanes = Lanes([Params()], [0])
    seen = f.forward(f.init(lanes), lanes.normal("x", 2, 1, 8, 8), training=True)
    assert seen.hidden[FEATURES].shape == (1, 2, {"resnet9": 16, "resnet20": 16, "resnet18": 512}[network])
    assert not [name for name in f.backbone.weights if name.startswith(("output", "fc"))]


@pytest.mark.long
@pytest.mark.parametrize("network", ["resnet18", "resnet50"])
def test_torchvision_loads_a_backbone_with_imagenets_stem_and_gives_the_same_features(network: str) -> None:
    f = encoder(shape_of(network=network, depth=0, width=0, stem="imagenet"), (3, 32, 32))
    lanes = Lanes([Params()], [0])
    state = f.init(lanes)
    x = lanes.normal("x", 2, 3, 32, 32)
    state |= f.forward(state, x, training=True).buffers
    theirs: nn.Module = getattr(vision("models.resnet"), network)()
    held = {name: tensor[0] for name, tensor in loadable(f.backbone, state).items()}
    last = {name: tensor for name, tensor in theirs.state_dict().items() if name.startswith("fc.")}
    theirs.load_state_dict(held | last, strict=True)
    theirs.fc = nn.Identity()
    with torch.no_grad():
        torch.testing.assert_close(theirs.eval()(x[0]), f.features(state, x)[0], rtol=1e-4, atol=1e-4)


def test_each_run_has_its_own_backbone() -> None:
    small = Params(samples=40, test_samples=20, batch=8, depth=2, width=3, dictionary=16)
    lanes = Lanes([small] * 2, [4, 7])
    state = init(lanes)
    held = weights(lanes, state)
    assert torch.equal(held["conv1.weight"], state["conv1.weight"])
    assert not torch.equal(held["conv1.weight"][0], held["conv1.weight"][1])
    assert not [name for name in held if name.startswith(HEAD)]
