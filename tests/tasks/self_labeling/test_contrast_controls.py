"""Labels of the controls, compared with a loop over queries and keys."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.tasks.self_labeling.contrast import label_quality, spread


def some_labels(queries: int = 5, keys: int = 12) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, queries, keys, dtype=torch.float64, generator=generator).softmax(dim=2)


def by_loops(labels: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    found = np.zeros_like(labels)
    for i, y in enumerate(labels):
        others = [k for k in range(len(y)) if chosen[i, k] and k != i]
        found[i, i] = y[i] if others else 1.0
        for k in others:
            found[i, k] = (1 - y[i]) / len(others)
    return found


def test_the_rest_is_spread_equally_over_the_chosen_keys() -> None:
    labels, generator = some_labels(), torch.Generator().manual_seed(1)
    chosen = torch.rand(labels.shape, generator=generator) < 0.3
    chosen[0, 2] = False
    found = spread(labels, chosen)
    for lane in range(2):
        np.testing.assert_allclose(found[lane].numpy(), by_loops(labels[lane].numpy(), chosen[lane].numpy()))
    torch.testing.assert_close(found.sum(dim=2), torch.ones(2, 5, dtype=torch.float64))


def test_the_controls_lie_on_both_sides_of_the_labels() -> None:
    """A query of class 0 with keys of classes 0, 0, 1, 1 and mass 0.4, 0.3, 0.2, 0.1."""
    labels = torch.tensor([[[0.4, 0.3, 0.2, 0.1]]])
    found = label_quality(labels, torch.tensor([[0]]), torch.tensor([[0, 0, 1, 1]]), 2)
    assert found["label_distance"].item() == pytest.approx(math.sqrt(0.01 + 0.04 + 0.04 + 0.01))
    assert found["uniform_distance"].item() == pytest.approx(math.sqrt(0.01 + 0.09 + 0.04 + 0.04))
    assert found["classes_distance"].item() == pytest.approx(math.sqrt(0.01 + 0.01))
    assert found["label_class_lift"].item() == pytest.approx(0.3 / 0.6 - 1 / 3)


def test_the_controls_are_0_and_1_on_their_own_scale() -> None:
    labels, classes = some_labels(), (torch.arange(12) % 3).expand(2, -1)
    same = classes[:, :5, None] == classes[:, None, :]
    uniform = label_quality(spread(labels, torch.ones_like(same)), classes[:, :5], classes, 3)
    best = label_quality(spread(labels, same), classes[:, :5], classes, 3)
    torch.testing.assert_close(uniform["label_distance"], uniform["uniform_distance"])
    torch.testing.assert_close(uniform["label_class_lift"], torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(best["label_distance"], best["classes_distance"])
    torch.testing.assert_close(best["label_class_lift"], torch.full((2,), 1 - 3 / 11, dtype=torch.float64))
