"""The quality of labels, compared with a loop over queries and keys."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from mislabel.tasks.self_labeling.contrast import label_quality, refined

NAMES = ("distance", "class_mass", "others_class_mass", "agreement", "entropy", "confidence")


def by_loops(labels: np.ndarray, query_classes: list[int], key_classes: list[int], classes: int) -> dict[str, float]:
    sums = dict.fromkeys((*NAMES, "others", "others_right"), 0.0)
    for i, y in enumerate(labels):
        same = [k for k, c in enumerate(key_classes) if c == query_classes[i]]
        ideal = [1 / len(same) if k in same else 0.0 for k in range(len(y))]
        sums["distance"] += math.sqrt(sum((a - b) ** 2 for a, b in zip(y, ideal, strict=True)))
        sums["class_mass"] += sum(y[k] for k in same)
        sums["others"] += sum(y[k] for k in range(len(y)) if k != i)
        sums["others_right"] += sum(y[k] for k in same if k != i)
        mass = [sum(v for v, c in zip(y, key_classes, strict=True) if c == wanted) for wanted in range(classes)]
        mass.append(sum(v for v, c in zip(y, key_classes, strict=True) if c < 0))
        sums["agreement"] += mass.index(max(mass)) == query_classes[i]
        sums["entropy"] -= sum(v * math.log(v) for v in y if v > 0)
        sums["confidence"] += max(y)
    means = {name: sums[name] / len(labels) for name in NAMES}
    return means | {"others_class_mass": sums["others_right"] / sums["others"] if sums["others"] else math.nan}


def some_labels(queries: int, keys: int, sharpness: float) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (sharpness * torch.randn(2, queries, keys, dtype=torch.float64, generator=generator)).softmax(dim=2)


@pytest.mark.parametrize("sharpness", [0.1, 1.0, 5.0])
def test_quality_equals_loops(sharpness: float) -> None:
    labels = some_labels(6, 20, sharpness)
    key_classes = torch.arange(40).reshape(2, 20) * 7 % 5 % 3
    key_classes[:, 15:18] = -1
    query_classes = key_classes[:, :6]
    found = label_quality(labels, query_classes, key_classes, 3)
    for lane in range(2):
        right = by_loops(labels[lane].numpy(), query_classes[lane].tolist(), key_classes[lane].tolist(), 3)
        for name in NAMES:
            assert found[f"label_{name}"][lane].item() == pytest.approx(right[name]), name


def test_quality_by_hand() -> None:
    """A query of class 0 with keys of classes 0, 0, 1: half on its positive, a quarter on each other key."""
    labels = torch.tensor([[[0.5, 0.25, 0.25]]])
    found = label_quality(labels, torch.tensor([[0]]), torch.tensor([[0, 0, 1]]), 2)
    assert found["label_distance"].item() == pytest.approx(math.sqrt(2) / 4)
    assert found["label_class_mass"].item() == 0.75
    assert found["label_others_class_mass"].item() == 0.5
    assert found["label_agreement"].item() == 1
    assert found["label_entropy"].item() == pytest.approx(1.5 * math.log(2))
    assert found["label_confidence"].item() == 0.5


def test_the_ideal_label_has_distance_0_and_one_hot_labels_have_the_papers() -> None:
    key_classes = torch.tensor([[0, 1, 0, 1, 0, 1]])
    query_classes = key_classes[:, :2]
    ideal = (query_classes[:, :, None] == key_classes[:, None, :]).double() / 3
    best = label_quality(ideal, query_classes, key_classes, 2)
    assert (best["label_distance"].item(), best["label_class_mass"].item(), best["label_others_class_mass"].item()) == (
        0,
        1,
        1,
    )
    assert best["label_entropy"].item() == pytest.approx(math.log(3))
    one_hot = label_quality(torch.eye(2, 6, dtype=torch.float64)[None], query_classes, key_classes, 2)
    assert one_hot["label_distance"].item() == pytest.approx(math.sqrt(1 - 1 / 3))
    assert (one_hot["label_class_mass"].item(), one_hot["label_agreement"].item(), one_hot["label_entropy"].item()) == (
        1,
        1,
        0,
    )
    assert math.isnan(one_hot["label_others_class_mass"].item())


def test_labels_refined_with_good_features_are_better_than_one_hot_ones() -> None:
    key_classes = (torch.arange(40) % 4)[None]
    features = torch.eye(4, dtype=torch.float64)[key_classes] + 0.1
    cosine = torch.nn.functional.cosine_similarity(features[:, :8, None], features[:, None], dim=3)
    one = torch.ones(1, dtype=torch.float64)
    labels = refined(cosine / 0.2, 0.8 * one, one).labels
    better = label_quality(labels, key_classes[:, :8], key_classes, 4)
    given = label_quality(torch.eye(8, 40, dtype=torch.float64)[None], key_classes[:, :8], key_classes, 4)
    assert better["label_distance"].item() < given["label_distance"].item()
    assert better["label_others_class_mass"].item() > 0.8
