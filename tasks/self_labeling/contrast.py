"""Contrast queries with a set of keys that all queries of a batch share (Eq. 4).

The keys B̄ are the batch's own s positives, then the b entries of the dictionary. A label is a distribution over the
keys. Similarity is σ(x, b̄) = exp(cos(f(x), g(b̄))/τ). With the minus sign of the paper's Eq. 1, the least similar keys
would count most.
"""

import torch
from torch import Tensor
from torch.nn import functional


def key_set(positives: Tensor, dictionary: Tensor) -> Tensor:
    """B̄: this batch's positives (l s d) and the dictionary's entries (l b d), all of unit length; (l, s + b, d)."""
    return torch.cat([positives, dictionary], dim=1)


def unit(x: Tensor) -> Tensor:
    return functional.normalize(x, dim=-1)


def log_similarity(x: Tensor, keys: Tensor, tau: Tensor) -> Tensor:
    """log σ of each x (l s d) with each key (l k d), all of unit length, at each lane's τ (l); (l s k)."""
    return torch.bmm(x, keys.mT) / tau[:, None, None]


def one_hot(logits: Tensor) -> Tensor:
    """One-hot labels y of the queries, on their own positives; (l, s, s + b)."""
    return torch.eye(*logits.shape[1:], dtype=logits.dtype, device=logits.device).expand_as(logits)


def contrast(logits: Tensor, labels: Tensor) -> Tensor:
    """L_c: the cross entropy between labels (l s k) and the softmax of log similarities, mean over queries; (l)."""
    return -(labels * logits.log_softmax(dim=2)).sum(dim=2).mean(dim=1)


def one_hot_contrast(logits: Tensor) -> Tensor:
    """L_c with one-hot labels, without building them; (l)."""
    own = logits.diagonal(dim1=1, dim2=2)  # l s
    return (logits.logsumexp(dim=2) - own).mean(dim=1)
