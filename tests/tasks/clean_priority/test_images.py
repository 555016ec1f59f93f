"""Clean-priority learning on images: measurements, training, and the paper's claims at small sizes."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from mislabel.tasks.clean_priority.images import Params, _network, _segments, task
from mislabel.tasks.images import image_training
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.pack import Frame, Pack

SMALL: dict[str, Any] = {"samples": 60, "test_samples": 20, "batch": 16, "depth": 1, "width": 8, "measured_samples": 0}
BINARY = Params(**SMALL, steps=12, frames=3, precision="float64", histogram_samples=4)
TEN = replace(BINARY, classes="")


def trained(params: Params, *seeds: int) -> list[Frame]:
    return Pack(task, Lanes([params] * len(seeds), list(seeds))).advance(seconds=math.inf)


@pytest.mark.parametrize("params", [BINARY, TEN], ids=["two classes", "ten classes"])
def test_means_of_segments_are_means_over_samples_and_add_up_to_the_training_set(params: Params) -> None:
    lanes = Lanes([params, replace(params, noise_rate=0.1)], [3, 4])
    state = task.advance(lanes, task.init(lanes), 0, 7)
    found, data, given = task.measure(lanes, state), image_training.loaded(lanes), _segments(lanes).given
    outputs = _network(lanes).forward(state, data.train_x.double() / 255).outputs
    if outputs.shape[2] == 1:
        outputs = torch.cat([torch.zeros_like(outputs), outputs], dim=2)  # the same two probabilities, by softmax
    loss = functional.cross_entropy(outputs.mT, given, reduction="none")
    error = (outputs.argmax(dim=2) != given).double()
    off = outputs.softmax(dim=2) - functional.one_hot(given, len(data.classes))
    residual = off[..., 1].abs() if len(data.classes) == 2 else off.norm(dim=2)
    noisy = given != data.train_y
    for name, values in (("loss", loss), ("error", error), ("residual", residual)):
        for lane in range(2):
            assert float(found[f"train_{name}"][lane]) == pytest.approx(float(values[lane].mean()))
            for word, chosen in (("clean", ~noisy[lane]), ("noisy", noisy[lane])):
                assert float(found[f"{word}_{name}"][lane]) == pytest.approx(float(values[lane][chosen].mean()))
                for class_ in range(len(data.classes)):
                    own = values[lane][chosen & (data.train_y == class_)]
                    measured = float(found[f"class_{word}_{name}"][lane, class_])
                    assert measured == pytest.approx(float(own.mean()), nan_ok=True)


def test_test_images_keep_their_true_labels() -> None:
    lanes = Lanes([BINARY], [0])
    state = task.advance(lanes, task.init(lanes), 0, 12)
    data, found = image_training.loaded(lanes), task.measure(lanes, state)
    h = _network(lanes).forward(state, data.test_x.double() / 255).outputs[0, :, 0]
    loss = functional.binary_cross_entropy_with_logits(h, data.test_y.double())
    assert float(found["test_error"]) == pytest.approx(float(((h > 0) != (data.test_y == 1)).double().mean()))
    assert float(found["test_loss"]) == pytest.approx(float(loss))


def test_with_outputs_of_one_half_gradients_are_opposite_in_the_ratio_of_the_noise() -> None:
    """With f = 1/2 everywhere and the same images in both segments, g_noise = -δ/(1-δ)·g_clean; here approximately."""
    silent = replace(BINARY, samples=280, init_scale=1e-3, noise_rate=0.25, width=64)
    lanes = Lanes([silent], [0])
    found = task.measure(lanes, task.init(lanes))
    assert float(found["mean_alpha"]) == pytest.approx(1 / 3, rel=0.1)
    assert math.degrees(float(found["mean_angle"])) > 165
    assert float(found["clean_residual"]) == pytest.approx(0.5, abs=1e-4)
    assert float(found["noisy_residual"]) == pytest.approx(0.5, abs=1e-4)


def test_alpha_and_angle_are_those_of_sums_over_classes() -> None:
    lanes = Lanes([BINARY], [5])
    state, network = task.init(lanes), _network(lanes)
    found, data, given = task.measure(lanes, state), image_training.loaded(lanes), _segments(lanes).given
    noisy, rows = (given != data.train_y)[0], []
    for chosen in (~noisy, noisy):
        weights = {name: tensor.clone().requires_grad_() for name, tensor in network.trained(state).items()}
        h = network.forward(weights, data.train_x[chosen].double() / 255).outputs[0, :, 0]
        loss = functional.binary_cross_entropy_with_logits(h, given[0, chosen].double(), reduction="sum")
        rows.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(weights.values()))]))
    assert float(found["alpha"]) == pytest.approx(float(rows[1].norm() / rows[0].norm()))
    cosine = rows[0] @ rows[1] / (rows[0].norm() * rows[1].norm())
    assert float(found["angle"]) == pytest.approx(float(cosine.arccos()))


@pytest.mark.parametrize("params", [BINARY, TEN], ids=["two classes", "ten classes"])
def test_full_alpha_is_that_of_the_gradients_of_the_loss(params: Params) -> None:
    lanes = Lanes([params], [5])
    state, network = task.init(lanes), _network(lanes)
    found, data, given = task.measure(lanes, state), image_training.loaded(lanes), _segments(lanes).given
    noisy, rows = (given != data.train_y)[0], []
    for chosen in (~noisy, noisy):
        weights = {name: tensor.clone().requires_grad_() for name, tensor in network.trained(state).items()}
        outputs = network.forward(weights, data.train_x[chosen].double() / 255).outputs[0]
        if outputs.shape[1] == 1:
            outputs = torch.cat([torch.zeros_like(outputs), outputs], dim=1)  # the same two probabilities, by softmax
        loss = functional.cross_entropy(outputs, given[0, chosen], reduction="sum")
        rows.append(torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(weights.values()))]))
    clean, wrong = rows
    assert float(found["full_alpha"]) == pytest.approx(float(wrong.norm() / clean.norm()))
    assert float(found["full_angle"]) == pytest.approx(float((clean @ wrong / (clean.norm() * wrong.norm())).arccos()))
    assert float(found["clean_gradient"]) == pytest.approx(float(clean.norm()) / 60)
    assert float(found["noisy_gradient"]) == pytest.approx(float(wrong.norm()) / 60)


def test_without_noise_there_is_no_noisy_segment() -> None:
    frame = trained(replace(BINARY, noise_rate=0.0), 0)[-1]
    absent = {"noisy_error", "noisy_loss", "noisy_residual", "alpha", "angle", "mean_alpha", "mean_angle"}
    absent |= {"full_alpha", "full_angle"}
    # A gradient of 0 has length 0 and no direction.
    absent -= {"alpha", "mean_alpha", "full_alpha"}
    assert {name for name, values in frame.metrics.items() if math.isnan(values[0])} == absent
    assert frame.metrics["alpha"][0] == 0
    assert not frame.diverged.any()


def test_with_only_wrong_labels_there_is_no_clean_segment() -> None:
    frame = trained(replace(BINARY, noise_rate=1.0), 0)[-1]
    absent = {"clean_error", "clean_loss", "clean_residual", "alpha", "angle", "mean_alpha", "mean_angle"}
    absent |= {"full_alpha", "full_angle"}
    assert {name for name, values in frame.metrics.items() if math.isnan(values[0])} == absent
    assert frame.step == 12
    assert not frame.diverged.any()


def test_a_step_uses_the_given_labels() -> None:
    params = replace(BINARY, batch=0, smoothing=0.2, learning_rate=0.3)
    lanes = Lanes([params], [1])
    state, network, data = task.init(lanes), _network(lanes), image_training.loaded(lanes)
    weights = {name: tensor.clone().requires_grad_() for name, tensor in network.trained(state).items()}
    h = network.forward(weights, data.train_x.double() / 255).outputs[0, :, 0]
    labels = 0.8 * _segments(lanes).given[0].double() + 0.1
    loss = functional.binary_cross_entropy_with_logits(h, labels)
    grads = torch.autograd.grad(loss, list(weights.values()))
    after = task.advance(lanes, state, 0, 1)
    for (name, before), grad in zip(weights.items(), grads, strict=True):
        torch.testing.assert_close(after[name], (before - 0.3 * grad).detach())


def test_labels_replaced_at_every_step_depend_on_the_run() -> None:
    calm, shaken = (trained(replace(BINARY, relabel_rate=rate, steps=11), 2)[-1].metrics for rate in (0.0, 1.0))
    assert calm["clean_loss"] != shaken["clean_loss"]
    again = trained(replace(BINARY, relabel_rate=1.0, steps=11), 2)[-1].metrics
    assert shaken["clean_loss"] == again["clean_loss"]


def test_arrays_are_measured_at_snapshots() -> None:
    frames = trained(replace(BINARY, snapshots=2), 0)
    assert [bool(frame.arrays) for frame in frames] == [True, False, True]
    for frame in frames[::2]:
        assert {name: values.shape[1] for name, values in frame.arrays.items()} == {
            **{name: 2 for name in frame.arrays if name.startswith("class_")},
            **{f"{name}_angles": 8 for name in ("clean", "noisy", "other")},
            "true_label": 60,
            "given_label": 60,
        }
    wrong = frames[0].arrays["true_label"] != frames[0].arrays["given_label"]
    assert wrong.sum() == 18


def test_epochs_are_counted() -> None:
    assert [float(frame.metrics["epoch"][0]) for frame in trained(BINARY, 0)] == [0, 1.5, 3]  # of 4 steps


@pytest.mark.data("mnist")
def test_initial_angles_on_mnist_are_as_in_figure_4() -> None:
    params = Params(data="mnist", width=256, depth=2, measured_samples=800, histogram_samples=20, snapshots=2)
    lanes = Lanes([params], [0])
    found = task.measure(lanes, task.init(lanes))
    assert float(found["alpha"]) == pytest.approx(3 / 7, rel=0.2)
    assert math.degrees(float(found["mean_angle"])) > 165
    assert (found["clean_angles"] < math.pi / 2).all()
    assert (found["noisy_angles"] > math.pi / 2).all()


@pytest.mark.claims
def test_clean_labels_are_learned_first_then_wrong_ones() -> None:
    params = Params(width=128, batch=32, steps=1000, frames=26, measured_samples=0)
    frames = trained(params, 0, 1)
    curves = {name: np.stack([frame.metrics[name] for frame in frames]).mean(axis=1) for name in task.scalars}
    turn = int(np.argmax(curves["noisy_residual"]))
    assert 0 < turn < 12
    assert curves["noisy_error"][turn] > curves["noisy_error"][0] + 0.2
    assert curves["clean_error"][turn] < 0.1
    assert curves["noisy_error"][-1] < curves["noisy_error"][turn] - 0.2
    assert curves["test_error"][turn] < 0.6 * curves["test_error"][-1]
    assert curves["alpha"][turn] > 1.5 * curves["alpha"][0]
