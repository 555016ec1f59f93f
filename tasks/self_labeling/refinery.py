"""Self-labeling refinery: one-hot labels mixed with the similarities of the query's positive to the keys (Eq. 5).

p is the similarity of the positive x̃_i to every key; q is the same without x̃_i itself, which would dominate. Either may
be left out and is then left out of z too.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

REFINERIES = ("none", "p", "q", "both")


@dataclass(frozen=True)
class Refined:
    labels: Tensor  # l s k: ỹ, rows that sum to 1
    alpha: Tensor  # l s: weight of p
    beta: Tensor  # l s: weight of q


def similarity_labels(logits: Tensor, sharpness: Tensor) -> Tensor:
    """p, from log σ(x̃_i, b̄_k) (l s k), sharpened by each lane's τ′ (l); (l s k)."""
    return (logits / sharpness[:, None, None]).softmax(dim=2)


def other_similarity_labels(logits: Tensor, sharpness: Tensor) -> Tensor:
    """q: p without the positive itself, which is the i-th key for query i; (l s k)."""
    itself = torch.eye(*logits.shape[1:], dtype=torch.bool, device=logits.device)
    return (logits / sharpness[:, None, None]).masked_fill(itself, -torch.inf).softmax(dim=2)


def refined(logits: Tensor, sharpness: Tensor, confidence: Tensor, kind: str = "both") -> Refined:
    """ỹ = (1 − α − β)·y + α·p + β·q, from log σ(x̃_i, b̄_k) (l s k), τ′ (l) and the confidence μ (l).

    α = μ·max p/z and β = μ·max q/z, where z = 1 + μ·max p + μ·max q: each part is weighted by its confidence.
    """
    mu, nothing = confidence[:, None], torch.zeros_like(logits[:, :, 0])
    labels, p_weight, q_weight = torch.zeros_like(logits), nothing, nothing
    if kind in ("p", "both"):
        p = similarity_labels(logits, sharpness)
        p_weight = mu * p.amax(dim=2)  # l s
        labels = torch.addcmul(labels, p, p_weight[:, :, None])
    if kind in ("q", "both"):
        q = other_similarity_labels(logits, sharpness)
        q_weight = mu * q.amax(dim=2)
        labels = torch.addcmul(labels, q, q_weight[:, :, None])
    z = 1 + p_weight + q_weight
    labels.diagonal(dim1=1, dim2=2).add_(1)
    return Refined(labels / z[:, :, None], p_weight / z, q_weight / z)
