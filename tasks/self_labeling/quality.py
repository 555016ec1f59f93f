"""How good labels over keys are, by the true classes of queries and keys, which training never sees.

The ideal label y*_i of query i is even over the keys of its class, its own positive among them, and 0 elsewhere: what
Section 2 of the paper calls the soft label of semantic similarity. The distance that its Theorem 1 ties generalization
to is the mean of ‖y_i − y*_i‖ over the queries.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Quality:
    """Means over the queries of a batch; (l) each."""

    distance: Tensor
    """‖y_i − y*_i‖, from 0 to below √2."""
    class_mass: Tensor
    """What a label puts on keys of the query's class, its positive included."""
    others_class_mass: Tensor
    """The same of what it puts on other keys than the positive, as a share of that; nan where it puts nothing there."""
    agreement: Tensor
    """Share of queries whose class gets more of the label's mass than any other class."""
    entropy: Tensor
    """−Σ_k y_ik log y_ik, from 0 to the logarithm of the number of keys."""
    confidence: Tensor
    """The largest entry of a label."""


@torch.no_grad()
def quality(labels: Tensor, query_classes: Tensor, key_classes: Tensor, classes: int) -> Quality:
    """Of labels (l s k) whose rows sum to 1, for queries and keys of these classes (l s), (l k).

    The i-th key is the i-th query's positive. Keys of no class have a negative number, and are never right.
    """
    own = labels.diagonal(dim1=1, dim2=2)  # l s
    same = query_classes[:, :, None] == key_classes[:, None, :]  # l s k
    ideal = same.to(labels.dtype) / same.sum(dim=2, keepdim=True)
    # The last column takes what keys of no class get.
    column = torch.where(key_classes < 0, classes, key_classes)[:, None, :].expand_as(labels)
    by_class = labels.new_zeros(*labels.shape[:2], classes + 1).scatter_add_(2, column, labels)  # l s c+1
    mass = by_class.gather(2, query_classes[:, :, None])[:, :, 0]
    others = 1 - own.double()
    return Quality(
        distance=(labels - ideal).norm(dim=2).mean(dim=1),
        class_mass=mass.mean(dim=1),
        others_class_mass=((mass - own).double().sum(dim=1) / others.sum(dim=1)).to(labels.dtype),
        agreement=(by_class.argmax(dim=2) == query_classes).to(labels.dtype).mean(dim=1),
        entropy=torch.special.entr(labels).sum(dim=2).mean(dim=1),
        confidence=labels.amax(dim=2).mean(dim=1),
    )
