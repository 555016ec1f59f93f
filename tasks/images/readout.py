"""Losses, residuals and predictions from logits: one logit for two classes, a softmax over k logits for more.

Outputs are (l b 1) or (l b k). Labels are distributions over classes (l b k), as from
`mislabel.tasks.corruption.smoothed`.
"""

import torch
from torch import Tensor
from torch.nn import functional


def logits(classes: int) -> int:
    """The number of outputs that a network needs."""
    return 1 if classes == 2 else classes


def logit_of(class_: int, classes: int) -> int:
    """The index of the output that separates a class from the others."""
    return 0 if classes == 2 else class_


def losses(outputs: Tensor, labels: Tensor) -> Tensor:
    """The logistic loss, or cross entropy, of each sample; (l b)."""
    if outputs.shape[2] == 1:
        return functional.binary_cross_entropy_with_logits(outputs[..., 0], labels[..., 1], reduction="none")
    return -(labels * outputs.log_softmax(dim=2)).sum(dim=2)


def residuals(outputs: Tensor, labels: Tensor) -> Tensor:
    """f - y for each logit, the derivative of the loss with respect to the logits; the size of the outputs."""
    if outputs.shape[2] == 1:
        return outputs.sigmoid() - labels[..., 1:]
    return outputs.softmax(dim=2) - labels


def residual_signs(labels: Tensor) -> Tensor:
    """The sign of f - y for each logit and one-hot labels, also if rounding makes f equal to y."""
    return 1 - 2 * (labels[..., 1:] if labels.shape[2] == 2 else labels)


def wrong(outputs: Tensor, y: Tensor) -> Tensor:
    """Whether the predicted class is not y (l b)."""
    if outputs.shape[2] == 1:
        return (outputs[..., 0] > 0) != (y == 1)
    return outputs.argmax(dim=2) != y


def one_hot_labels(y: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """Class numbers (l b) as one-hot distributions; (l b k)."""
    return functional.one_hot(y, classes).to(dtype)
