"""Losses, residuals and predictions, compared with torch's losses and their derivatives."""

import pytest
import torch
from torch.nn import functional

from mislabel.tasks.corruption import smoothed
from mislabel.tasks.images import readout


def some(classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of two lanes for five samples, and their labels."""
    generator = torch.Generator().manual_seed(classes)
    outputs = 2 * torch.randn(2, 5, readout.logits(classes), dtype=torch.float64, generator=generator)
    return outputs, torch.randint(classes, (2, 5), generator=generator)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_residuals_are_the_derivative_of_the_loss_by_the_logits(classes: int) -> None:
    outputs, y = some(classes)
    labels = smoothed(y, classes, torch.tensor([0.0, 0.3], dtype=torch.float64))
    outputs.requires_grad_()
    (found,) = torch.autograd.grad(readout.losses(outputs, labels).sum(), outputs)
    torch.testing.assert_close(readout.residuals(outputs.detach(), labels), found)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_signs_of_residuals_are_right_for_large_outputs(classes: int) -> None:
    outputs, y = some(classes)
    labels = readout.one_hot_labels(y, classes, torch.float64)
    assert torch.equal(readout.residual_signs(labels), readout.residuals(outputs, labels).sign())
    certain = torch.full_like(outputs, -200.0).float()
    certain[..., 0] = 200.0  # the prediction for the first logit is 1 in single precision
    yes = torch.full_like(y, 1 if classes == 2 else 0)
    labels = readout.one_hot_labels(yes, classes, torch.float32)
    assert (readout.residuals(certain, labels)[..., 0] == 0).all()
    assert (readout.residual_signs(labels)[..., 0] == -1).all()


def test_two_classes_have_one_logit_and_the_logistic_loss() -> None:
    outputs, y = some(2)
    labels = readout.one_hot_labels(y, 2, torch.float64)
    sign = 2.0 * y - 1
    torch.testing.assert_close(readout.losses(outputs, labels), torch.log1p(torch.exp(-sign * outputs[..., 0])))
    assert torch.equal(readout.wrong(outputs, y), sign * outputs[..., 0] < 0)
    assert [readout.logit_of(class_, 2) for class_ in (0, 1)] == [0, 0]


def test_more_classes_have_a_logit_each_and_cross_entropy() -> None:
    outputs, y = some(4)
    labels = readout.one_hot_labels(y, 4, torch.float64)
    expected = functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="none").view(2, 5)
    torch.testing.assert_close(readout.losses(outputs, labels), expected)
    assert torch.equal(readout.wrong(outputs, y), outputs.max(dim=2).indices != y)
    assert [readout.logit_of(class_, 4) for class_ in range(4)] == [0, 1, 2, 3]
