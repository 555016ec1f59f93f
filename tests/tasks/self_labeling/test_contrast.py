"""The contrastive loss, compared with loops, a case by hand and torch's cross entropy."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from mislabel.tasks.self_labeling.contrast import labels_loss, log_similarity, one_hot, one_hot_loss, unit

GENERATOR = torch.Generator().manual_seed(0)


def drawn(*size: int) -> torch.Tensor:
    return torch.randn(*size, generator=GENERATOR, dtype=torch.float64)


def test_the_loss_is_that_of_equation_4_written_as_loops() -> None:
    lanes, s, b, d = 2, 3, 4, 5
    x, positives, dictionary = drawn(lanes, s, d), drawn(lanes, s, d), drawn(lanes, b, d)
    tau, labels = torch.tensor([0.2, 0.7], dtype=torch.float64), drawn(lanes, s, s + b).softmax(dim=2)
    found = labels_loss(log_similarity(unit(x), unit(torch.cat([positives, dictionary], dim=1)), tau), labels)
    for lane in range(lanes):
        keys = [*positives[lane].numpy(), *dictionary[lane].numpy()]
        total = 0.0
        for i in range(s):
            query = x[lane, i].numpy()
            sigma = [
                math.exp(query @ key / (tau[lane].item() * np.linalg.norm(query) * np.linalg.norm(key))) for key in keys
            ]
            total -= sum(float(labels[lane, i, k]) * math.log(sigma[k] / sum(sigma)) for k in range(s + b)) / s
        assert found[lane].item() == pytest.approx(total, rel=1e-12)


def test_with_one_hot_labels_the_loss_is_torchs_cross_entropy() -> None:
    logits = drawn(2, 3, 7)
    expected = torch.stack([functional.cross_entropy(each, torch.arange(3)) for each in logits])
    torch.testing.assert_close(one_hot_loss(logits), expected)
    torch.testing.assert_close(labels_loss(logits, one_hot(logits)), expected)


def test_equal_similarity_to_all_keys_gives_the_logarithm_of_their_number() -> None:
    assert one_hot_loss(torch.zeros(1, 2, 8)).item() == pytest.approx(math.log(8))


def test_a_query_with_its_own_and_an_opposite_key_by_hand() -> None:
    # σ is exp(1/τ) for the own key, exp(-1/τ) for the other; τ = ½: loss = log(1 + exp(-4)).
    keys = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    logits = log_similarity(torch.tensor([[[1.0, 0.0]]]), keys, torch.tensor([0.5]))
    assert one_hot_loss(logits).item() == pytest.approx(math.log1p(math.exp(-4)), rel=1e-5)
