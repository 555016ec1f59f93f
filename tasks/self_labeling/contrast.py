"""Contrast queries with keys (Eq. 4), with one-hot labels or with labels refined by the queries' positives (Eq. 5).

All queries of a batch share the keys B̄: the batch's own s positives, then the dictionary, which holds the last b
features of the momentum encoder. A label is a distribution over the keys. Similarity is σ(x, b̄) = exp(cos(f(x),
g(b̄))/τ). With the minus sign of the paper's Eq. 1, the least similar keys would count most.

The refinery mixes one-hot labels with p, the similarity of the positive x̃_i to every key, and q, the same without x̃_i
itself, which would dominate. Either may be left out and is then left out of z too.

Two controls show how good refined labels could be and what any smoothing gives. Both leave the mass on the positive as
the refinery chooses it. `classes` spreads the rest equally over the other keys of the query's class, `uniform` over all
other keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

REFINERIES = ("none", "p", "q", "both")
CONTROLS = ("classes", "uniform")


def unit(x: Tensor) -> Tensor:
    return functional.normalize(x, dim=-1)


def enqueued(queue: Tensor, new: Tensor, step: int) -> Tensor:
    """A first-in-first-out queue (l b ...) with this step's entries (l s ...) instead of the oldest ones.

    All lanes of a pack are at the same step, so the position of the next entries is a function of the step.
    """
    size, count = queue.shape[1], new.shape[1]
    place = torch.arange(step * count, (step + 1) * count, device=new.device) % size
    kept = slice(max(0, count - size), None)  # a batch larger than the queue keeps its last entries
    return queue.index_copy(1, place[kept], new[:, kept])


def log_similarity(x: Tensor, keys: Tensor, tau: Tensor) -> Tensor:
    """log σ of each x (l s d) with each key (l k d), all of unit length, at each lane's τ (l); (l s k)."""
    return torch.bmm(x, keys.mT) / tau[:, None, None]


def one_hot(logits: Tensor) -> Tensor:
    """One-hot labels y of the queries, on their own positives; (l, s, s + b)."""
    return torch.eye(*logits.shape[1:], dtype=logits.dtype, device=logits.device).expand_as(logits)


def labels_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """L_c: the cross entropy between labels (l s k) and the softmax of log similarities, mean over queries; (l)."""
    return -(labels * logits.log_softmax(dim=2)).sum(dim=2).mean(dim=1)


def one_hot_loss(logits: Tensor) -> Tensor:
    """L_c with one-hot labels, without building them; (l)."""
    own = logits.diagonal(dim1=1, dim2=2)  # l s
    return (logits.logsumexp(dim=2) - own).mean(dim=1)


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


def spread(labels: Tensor, keys: Tensor) -> Tensor:
    """Labels with the same mass on the positives, and the rest spread equally over other keys (l s k, true or false).

    A query without such keys gets a one-hot label.
    """
    others = keys & ~torch.eye(*labels.shape[1:], dtype=torch.bool, device=labels.device)
    count = others.sum(dim=2)
    rest = torch.where(count > 0, 1 - labels.diagonal(dim1=1, dim2=2), 0)  # l s
    found = others * (rest / count.clamp(min=1))[:, :, None]
    found.diagonal(dim1=1, dim2=2).copy_(1 - rest)
    return found


@torch.no_grad()
def label_quality(labels: Tensor, query_classes: Tensor, key_classes: Tensor, classes: int) -> dict[str, Tensor]:
    """Metrics of labels (l s k), whose rows sum to 1, for queries and keys with these classes (l s), (l k); (l) each.

    The ideal label y*_i of query i is uniform over the keys of its class, including its own positive, and 0 elsewhere:
    what Section 2 of the paper calls the soft label of semantic similarity. Theorem 1 bounds generalization by the mean
    of ‖y_i − y*_i‖ over the queries. Training does not use the classes, except in the control `classes`.

    The i-th key is the i-th query's positive. Keys without a class have a negative number and match no query.
    """
    own = labels.diagonal(dim1=1, dim2=2)  # l s
    same = query_classes[:, :, None] == key_classes[:, None, :]  # l s k
    ideal = same.to(labels.dtype) / same.sum(dim=2, keepdim=True)
    # The last column is for keys without a class.
    column = torch.where(key_classes < 0, classes, key_classes)[:, None, :].expand_as(labels)
    by_class = labels.new_zeros(*labels.shape[:2], classes + 1).scatter_add_(2, column, labels)  # l s c+1
    mass = by_class.gather(2, query_classes[:, :, None])[:, :, 0]
    others = 1 - own.double()
    chance = (same.sum(dim=2) - 1) / (labels.shape[2] - 1)  # l s: share of the other keys that are of the query's class

    def distance(some: Tensor) -> Tensor:
        found: Tensor = (some - ideal).norm(dim=2).mean(dim=1)
        return found

    return {
        "label_distance": distance(labels),
        "uniform_distance": distance(spread(labels, torch.ones_like(same))),
        "classes_distance": distance(spread(labels, same)),
        "label_class_lift": ((mass - own - others * chance).sum(dim=1) / others.sum(dim=1)).to(labels.dtype),
        "label_class_mass": mass.mean(dim=1),
        "label_others_class_mass": ((mass - own).double().sum(dim=1) / others.sum(dim=1)).to(labels.dtype),
        "label_agreement": (by_class.argmax(dim=2) == query_classes).to(labels.dtype).mean(dim=1),
        "label_entropy": torch.special.entr(labels).sum(dim=2).mean(dim=1),
        "label_confidence": labels.amax(dim=2).mean(dim=1),
    }
