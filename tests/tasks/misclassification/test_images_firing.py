"""Firing by class, compared with counts image by image."""

from dataclasses import replace

import pytest
import torch

from mislabel.tasks.images.build_network import build
from mislabel.tasks.images.image_training import loaded
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.images import Params, associated, balanced, evaluate


@pytest.mark.parametrize(
    ("firing", "is_associated"),
    [
        ([0.8, 0.4, 0.1], True),  # exactly twice as often
        ([0.1, 0.39, 0.8], True),
        ([0.8, 0.41, 0.1], False),
        ([0.5, 0.5, 0.0], False),
        ([0.01, 0.0, 0.0], True),  # rarely, but only for one class
        ([0.0, 0.0, 0.0], False),  # a dead neuron is associated with no class
        ([1.0, 1.0, 1.0], False),
    ],
)
def test_neurons_that_fire_twice_as_often_for_one_class_are_associated(
    firing: list[float], is_associated: bool
) -> None:
    assert associated(torch.tensor([firing])).tolist() == [is_associated]


def test_the_first_images_of_each_class_are_taken_equally_many_of_each() -> None:
    y = torch.tensor([0, 0, 1, 0, 2, 1, 1, 2, 0])
    assert balanced(y, 6, 3).tolist() == [0, 1, 2, 4, 5, 7]
    assert balanced(y, 3, 3).tolist() == [0, 2, 4]
    assert balanced(y, 0, 3).tolist() == list(range(9))
    assert balanced(y, 100, 3).tolist() == list(range(9)), "classes that have fewer give all they have"


@pytest.mark.long
@pytest.mark.parametrize("network", ["fc", "resnet20"])
def test_firing_equals_a_count_image_by_image(network: str) -> None:
    # More images than are evaluated at once.
    usual = Params(depth=1, width=4, samples=270, pixels="standardized", precision="float64")
    params = replace(usual, network=network, loss="softmax")
    lanes = Lanes([params] * 2, [0, 1])
    data = loaded(lanes)
    net, x, y = build(params, data.size, 10), data.train_x, data.train_y
    s = net.init(lanes)
    found = evaluate(lanes, s, x, y)
    pixels = x.double()
    pixels = (pixels - pixels.mean()) / pixels.std(correction=0)
    for lane in range(2):
        own = {name: tensor[lane : lane + 1] for name, tensor in s.items()}
        counts, wrong, lost, layers = None, 0, 0.0, []
        for image, label in zip(pixels, y.tolist(), strict=True):
            seen = net.forward(own, image[None], watch=True)
            layers.append([(h > 0).double().mean().item() for h in seen.hidden.values()])
            fires = (list(seen.hidden.values())[-1].flatten() > 0).double()
            counts = torch.zeros(len(fires), 10, dtype=torch.float64) if counts is None else counts
            counts[:, label] += fires
            wrong += int(seen.outputs.argmax()) != label
            lost += -seen.outputs[0, 0].log_softmax(dim=0)[label].item()
        assert counts is not None
        torch.testing.assert_close(found.firing[lane], counts / 27)
        torch.testing.assert_close(found.active[lane], counts.sum(dim=1) / 270)
        torch.testing.assert_close(found.layers[lane], torch.tensor(layers).double().mean(dim=0))
        assert found.error[lane].item() == pytest.approx(wrong / 270)
        assert found.loss[lane].item() == pytest.approx(lost / 270)
        assert (found.active[lane] == 0).sum().item() == sum(not row.any() for row in counts)
        twice = 0
        for row in counts.tolist():
            best = max(row)
            others = list(row)
            others.remove(best)
            twice += best > 0 and best >= 2 * max(others)
        assert associated(found.firing[lane]).sum().item() == twice


def test_with_nan_outputs_the_error_is_nan() -> None:
    lanes = Lanes([Params(width=4, samples=20)], [0])
    data = loaded(lanes)
    net = build(lanes.shape, data.size, 10)
    s = {name: torch.full_like(tensor, torch.nan) for name, tensor in net.init(lanes).items()}
    found = evaluate(lanes, s, data.train_x, data.train_y)
    assert found.error.isnan().all()


def test_a_class_without_images_is_left_out_of_the_comparison() -> None:
    lanes, fewer = (Lanes([Params(width=30, samples=99, classes=classes)], [0]) for classes in ("0, 1, 2", "0, 1"))
    data = loaded(lanes)
    # The hidden layers are the same.
    s, s_fewer = (build(own.shape, data.size, outputs).init(own) for own, outputs in ((lanes, 3), (fewer, 2)))
    of_two = data.train_y < 2
    x, y = data.train_x[of_two], data.train_y[of_two]
    found, right = evaluate(lanes, s, x, y), evaluate(fewer, s_fewer, x, y)
    assert associated(right.firing).any()
    assert torch.equal(associated(found.firing), associated(right.firing))
    assert torch.equal(found.firing, torch.nn.functional.pad(right.firing, (0, 1)))
