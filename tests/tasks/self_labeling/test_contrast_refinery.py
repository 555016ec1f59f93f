"""The refinery, compared with loops and cases by hand, and its invariants."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mislabel.tasks.self_labeling.contrast import (
    REFINERIES,
    one_hot,
    other_similarity_labels,
    refined,
    similarity_labels,
)
from tests.examples import examples

SHARPNESS, CONFIDENCE = torch.tensor([0.8, 0.5], dtype=torch.float64), torch.tensor([0.7, 3.0], dtype=torch.float64)


def logits_of(seed: int, lanes: int = 2, s: int = 3, b: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 5 * torch.rand(lanes, s, s + b, generator=generator, dtype=torch.float64)


def slow(logits: Tensor, sharpness: float, mu: float, kind: str) -> np.ndarray:
    """One lane's labels by loops over the paper's formulas."""
    sigma = np.exp(logits.numpy())
    s, keys = sigma.shape
    labels = np.zeros((s, keys))
    for i in range(s):
        powered = sigma[i] ** (1 / sharpness)
        y = np.eye(keys)[i]
        p = powered / powered.sum()
        q = np.array([0 if k == i else powered[k] for k in range(keys)]) / sum(
            powered[k] for k in range(keys) if k != i
        )
        p_max, q_max = p.max() * (kind in ("p", "both")), q.max() * (kind in ("q", "both"))
        z = 1 + mu * p_max + mu * q_max
        alpha, beta = mu * p_max / z, mu * q_max / z
        labels[i] = (1 - alpha - beta) * y + alpha * p + beta * q
    return labels


@pytest.mark.parametrize("kind", REFINERIES)
def test_labels_are_those_of_equation_5_written_as_loops(kind: str) -> None:
    logits = logits_of(0)
    found = refined(logits, SHARPNESS, CONFIDENCE, kind).labels
    for lane in range(2):
        expected = slow(logits[lane], SHARPNESS[lane].item(), CONFIDENCE[lane].item(), kind)
        np.testing.assert_allclose(found[lane].numpy(), expected, rtol=1e-10)


@examples(30, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(REFINERIES))
def test_labels_are_distributions_and_weights_are_below_one(seed: int, kind: str) -> None:
    found = refined(logits_of(seed), SHARPNESS, CONFIDENCE, kind)
    assert (found.labels >= 0).all()
    torch.testing.assert_close(found.labels.sum(dim=2), torch.ones(2, 3, dtype=torch.float64))
    assert (found.alpha + found.beta < 1).all()


def test_without_confidence_or_without_p_and_q_the_label_is_one_hot() -> None:
    logits = logits_of(1)
    for found in (refined(logits, SHARPNESS, 0 * CONFIDENCE), refined(logits, SHARPNESS, CONFIDENCE, "none")):
        assert torch.equal(found.labels, one_hot(logits))
        assert not found.alpha.any()
        assert not found.beta.any()


def test_p_without_the_positive_itself_is_q() -> None:
    logits = logits_of(2)
    p, q = similarity_labels(logits, SHARPNESS), other_similarity_labels(logits, SHARPNESS)
    itself = torch.eye(*logits.shape[1:], dtype=torch.bool)
    rest = p.masked_fill(itself, 0)
    torch.testing.assert_close(q, rest / rest.sum(dim=2, keepdim=True))
    assert not q[:, itself].any()


def test_equal_keys_share_a_label_equally() -> None:
    logits = logits_of(3)
    logits[:, :, 4] = logits[:, :, 6]
    found = refined(logits, SHARPNESS, CONFIDENCE).labels
    torch.testing.assert_close(found[:, :, 4], found[:, :, 6])
    assert (found[:, :, 4] > 0).all()


def test_two_queries_and_four_equal_keys_by_hand() -> None:
    # p = 1/4 each, q = 1/3 each except 0 for the own key; μ = 12: weights 3 and 4 of z = 8.
    found = refined(torch.zeros(1, 2, 4), torch.ones(1), torch.tensor([12.0]))
    torch.testing.assert_close(found.alpha, torch.full((1, 2), 3 / 8))
    torch.testing.assert_close(found.beta, torch.full((1, 2), 1 / 2))
    other = 3 / 8 / 4 + 1 / 2 / 3
    own = 1 / 8 + 3 / 8 / 4
    torch.testing.assert_close(found.labels[0], torch.tensor([[own, other, other, other], [other, own, other, other]]))


def test_a_smaller_tau_prime_is_sharper() -> None:
    logits = logits_of(4, lanes=1).expand(2, -1, -1)
    blunt, sharp = similarity_labels(logits, torch.tensor([1.0, 0.3], dtype=torch.float64)).amax(dim=2)
    assert (sharp > blunt).all()
