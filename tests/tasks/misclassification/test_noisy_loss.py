"""Losses on noisy and smoothed labels, compared with autograd and the mean over the noise."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.neuron import Params
from mislabel.tasks.misclassification.noisy_loss import label_chances, loss_of, mean_chances, pull_of, strengths

HINGE = Params(loss="hinge", learning_rate=0.3, hinge_offset=0.0, precision="float64")
OFFSET = replace(HINGE, hinge_offset=0.7)
LOGISTIC = replace(HINGE, loss="logistic")


def plain_loss(params: Params, f: Tensor, y: float) -> Tensor:
    if params.loss == "logistic":
        return torch.log(1 + torch.exp(-y * f))
    return torch.clamp(params.hinge_offset - y * f, min=0)


@pytest.mark.parametrize("params", [HINGE, OFFSET, LOGISTIC], ids=["hinge", "hinge with offset", "logistic"])
@pytest.mark.parametrize("chance", [0.0, 0.2, 0.5, 1.0])
def test_the_pull_is_the_learning_rate_times_minus_the_derivative(params: Params, chance: float) -> None:
    lanes = Lanes([params], [0])
    for value in (-3.0, -0.7, -0.4, 0.0, 1e-9, 0.4, 0.7, 3.0):
        f = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
        loss = chance * plain_loss(params, f, 1) + (1 - chance) * plain_loss(params, f, -1)
        (derivative,) = torch.autograd.grad(loss.sum(), f)
        chances = torch.full_like(f, chance)
        torch.testing.assert_close(loss_of(lanes, f, chances), loss[0])
        up, down = strengths(lanes, chances.detach())
        if abs(value) != params.hinge_offset or params.loss == "logistic":  # except at kinks, see below
            pull = pull_of(lanes)(f.detach()[:, 0], up[0], down[0])
            torch.testing.assert_close(pull, -params.learning_rate * derivative[0])


def test_a_hinge_without_offset_does_not_pull_on_an_output_of_zero() -> None:
    lanes = Lanes([HINGE], [0])
    zero, up, down = torch.zeros(1, dtype=torch.float64), torch.full((1,), 0.3), torch.full((1,), -0.3)
    assert pull_of(lanes)(zero, up.double(), down.double()).item() == 0


def test_a_replaced_label_is_wrong_half_of_the_time() -> None:
    rates, steps = (0.0, 0.2, 1.0), range(40_000)
    lanes = Lanes([replace(HINGE, noise_rate=rate) for rate in rates], [0, 1, 2])
    y = lanes.sign("label", steps=steps)
    chances = label_chances(lanes, y, steps)
    assert set(chances.unique().tolist()) == {0.0, 1.0}
    wrong = (chances != (1 + y) / 2).double().mean(dim=1)
    torch.testing.assert_close(wrong, torch.tensor([0.0, 0.1, 0.5]).double(), rtol=0, atol=0.01)


def test_smoothing_is_label_noise_in_expectation() -> None:
    steps = range(40_000)
    noisy, smooth = replace(LOGISTIC, noise_rate=0.3), replace(LOGISTIC, noise_rate=0.0, smoothing=0.3)
    lanes = Lanes([noisy, smooth], [0, 0])
    y = lanes.sign("label", steps=steps)
    chances = label_chances(lanes, y, steps)
    assert chances[1].unique().tolist() == pytest.approx([0.15, 0.85])
    for side in (-1, 1):
        mean = chances[0][y[0] == side].mean().item()
        assert mean == pytest.approx(0.5 + 0.35 * side, abs=0.01)
        assert chances[1][y[1] == side].mean().item() == pytest.approx(0.5 + 0.35 * side)
    torch.testing.assert_close(mean_chances(lanes, y), 0.5 + 0.35 * y)
