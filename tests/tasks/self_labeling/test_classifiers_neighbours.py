"""Weighted neighbours, compared with a loop over test features."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.tasks.self_labeling import classifiers
from mislabel.tasks.self_labeling.classifiers import neighbour_classes


def features(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def voted(train: np.ndarray, y: list[int], test: np.ndarray, classes: int, k: int, temperature: float) -> list[int]:
    found = []
    for query in test:
        cosines = [float(query @ key / np.linalg.norm(query) / np.linalg.norm(key)) for key in train]
        nearest = sorted(range(len(y)), key=lambda i: -cosines[i])[:k]
        votes = [sum(math.exp(cosines[i] / temperature) for i in nearest if y[i] == c) for c in range(classes)]
        found.append(max(range(classes), key=lambda c: votes[c]))
    return found


@pytest.mark.parametrize("temperature", [0.05, 0.5])
@pytest.mark.parametrize("k", [1, 7, 50, 500])
def test_neighbours_vote_as_in_a_loop(k: int, temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classifiers, "_CHUNK", 2000)  # several chunks, the last one smaller
    train, test = features(2, 120, 4), features(2, 33, 4) + 0.5
    y = torch.arange(240).reshape(2, 120) % 7 % 3
    found = neighbour_classes(train, y, test, 3, k, temperature)
    for lane in range(2):
        right = voted(train[lane].numpy(), y[lane].tolist(), test[lane].numpy(), 3, k, temperature)
        assert found[lane].tolist() == right


def test_votes_by_hand() -> None:
    """One of class 0 at 0° against two of class 1 at 90°: 1 to 2·exp(-1/T), which is more from T = 1/log 2 on."""
    train = torch.tensor([[[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]]])
    y, test = torch.tensor([0, 1, 1]), torch.tensor([[[5.0, 0.0]]])
    assert neighbour_classes(train, y, test, 2, 3, temperature=1.4).item() == 0
    assert neighbour_classes(train, y, test, 2, 3, temperature=1.5).item() == 1
    assert neighbour_classes(train, y, test, 2, 1, temperature=1.5).item() == 0


def test_lengths_of_features_do_not_matter_and_low_temperatures_do_not_overflow() -> None:
    train, test = features(1, 40, 3).float(), features(1, 9, 3).float()
    y = torch.arange(40) % 4
    plain = neighbour_classes(train, y, test, 4)
    longer = neighbour_classes(train * (1 + torch.arange(40))[:, None], y, 1000 * test, 4)
    assert torch.equal(plain, longer)
    nearest = neighbour_classes(train, y, test, 4, neighbours=1)
    assert torch.equal(neighbour_classes(train, y, test, 4, temperature=1e-4), nearest)


def test_separate_clusters_are_classified() -> None:
    y = torch.arange(60) % 3
    x = 5 * torch.eye(3)[y] + 0.1 * features(2, 60, 3).float()
    assert (neighbour_classes(x, y, x, 3, neighbours=5) == y).all()
