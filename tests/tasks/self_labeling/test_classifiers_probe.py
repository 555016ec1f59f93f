"""Linear probes, compared with torch's layer and optimizer, one lane at a time."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from mislabel.tasks import corruption
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.classifiers import probe_classes
from mislabel.tasks.self_labeling.classifiers import trained_probe as trained
from mislabel.tasks.training import Training


def lanes_of(*seeds: int) -> Lanes[Training]:
    return Lanes([Training(precision="float64")] * len(seeds), seeds)


def features(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def clusters(lanes: int, each: int, classes: int = 4, dim: int = 6, spread: float = 0.1) -> tuple[Tensor, Tensor]:
    y = torch.arange(each * classes) % classes
    return torch.eye(dim, dtype=torch.float64)[y] + spread * features(lanes, len(y), dim), y


def accuracy(probe: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return (probe_classes(probe, x) == y).double().mean(dim=1)


def test_a_probe_equals_torchs_layer_trained_by_torchs_adam() -> None:
    lanes = lanes_of(3, 4)
    x, y = features(2, 50, 5), torch.arange(100).reshape(2, 50) % 3
    probe = trained(lanes, "probe", x, y, 3, epochs=4, batch=16, rate=0.01)
    start = 0.01 * lanes.normal("probe.w", 5, 3)
    for lane in range(2):
        layer = nn.Linear(5, 3, dtype=torch.float64)
        with torch.no_grad():
            layer.weight.copy_(start[lane].T)
            layer.bias.zero_()
        adam = torch.optim.Adam(layer.parameters(), lr=0.01)
        for epoch in range(4):
            order = lanes.uniform("probe.order", 50, steps=range(epoch, epoch + 1))[lane, 0].argsort()
            for first in range(0, 50, 16):
                index = order[first : first + 16]
                adam.zero_grad()
                functional.cross_entropy(layer(x[lane, index]), y[lane, index]).backward()
                adam.step()
        torch.testing.assert_close(probe[lane, :-1], layer.weight.detach().T)
        torch.testing.assert_close(probe[lane, -1], layer.bias.detach())


def test_separable_features_are_classified() -> None:
    x, y = clusters(2, each=30)
    test_x, test_y = clusters(2, each=20, spread=0.05)
    probe = trained(lanes_of(0, 1), "probe", x, y, 4, epochs=60, batch=20)
    assert accuracy(probe, test_x, test_y).tolist() == [1, 1]


def test_random_labels_give_chance_accuracy() -> None:
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(0, 4, (2, 400), generator=generator)
    test_y = torch.randint(0, 4, (2, 4000), generator=generator)
    x, test_x = features(2, 4400, 6).split([400, 4000], dim=1)
    found = accuracy(trained(lanes_of(0, 1), "probe", x, y, 4, epochs=20), test_x, test_y)
    assert (found - 0.25).abs().max() < 5 * (0.25 * 0.75 / 4000) ** 0.5


def test_accuracy_by_hand() -> None:
    x, y = clusters(1, each=3, spread=0.0)
    probe = trained(lanes_of(0), "probe", x, y, 4, epochs=100, batch=12)
    assert accuracy(probe, x, y).tolist() == [1]
    swapped = torch.where(y < 2, 1 - y, y)
    assert accuracy(probe, x, swapped).tolist() == [0.5]


def test_each_lane_has_its_own_wrong_labels_and_test_labels_are_true() -> None:
    lanes = lanes_of(0, 1, 2)
    x, y = clusters(3, each=50)
    rate = torch.tensor([0.0, 0.4, 1.0], dtype=torch.float64)
    given = corruption.symmetric(lanes, y, 4, rate)
    np.testing.assert_allclose((given != y).double().mean(dim=1), rate)
    found = accuracy(trained(lanes, "probe", x, given, 4, epochs=40, batch=50), x, y)
    assert found.tolist() == [1, 1, 0]  # most of a class wrong, and none


def test_the_probe_of_a_run_is_the_same_alone_and_in_a_pack() -> None:
    x, y = features(3, 40, 5), torch.arange(40) % 3
    packed = trained(lanes_of(4, 5, 6), "probe", x, y, 3, epochs=3, batch=7)
    for lane, seed in enumerate((4, 5, 6)):
        alone = trained(lanes_of(seed), "probe", x[lane : lane + 1], y, 3, epochs=3, batch=7)
        torch.testing.assert_close(alone[0], packed[lane])
    other = trained(lanes_of(4), "other", x[:1], y, 3, epochs=3, batch=7)
    assert not torch.allclose(other[0], packed[0])


@pytest.mark.parametrize("epochs", [0, 1])
def test_without_epochs_the_probe_stays_at_initialization(epochs: int) -> None:
    lanes = lanes_of(0)
    probe = trained(lanes, "probe", features(1, 20, 5), torch.arange(20) % 2, 2, epochs=epochs)
    assert torch.equal(probe[:, :-1], 0.01 * lanes.normal("probe.w", 5, 2)) is (epochs == 0)
