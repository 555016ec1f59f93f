"""Measure the quality of labels over keys by the true classes of queries and keys, which training does not use.

The ideal label y*_i of query i is uniform over the keys of its class, including its own positive, and 0 elsewhere: what
Section 2 of the paper calls the soft label of semantic similarity. Theorem 1 bounds generalization by the mean of
‖y_i − y*_i‖ over the queries.
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
    """The share of a label on keys of the query's class, including its positive."""
    others_class_mass: Tensor
    """The same among the keys other than the positive; nan if the label is 0 there."""
    agreement: Tensor
    """The share of queries whose class has more of the label than any other class."""
    entropy: Tensor
    """−Σ_k y_ik log y_ik, from 0 to the logarithm of the number of keys."""
    confidence: Tensor
    """The largest entry of a label."""


@torch.no_grad()
def quality(labels: Tensor, query_classes: Tensor, key_classes: Tensor, classes: int) -> Quality:
    """The quality of labels (l s k), whose rows sum to 1, for queries and keys with these classes (l s), (l k).

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
    return Quality(
        distance=(labels - ideal).norm(dim=2).mean(dim=1),
        class_mass=mass.mean(dim=1),
        others_class_mass=((mass - own).double().sum(dim=1) / others.sum(dim=1)).to(labels.dtype),
        agreement=(by_class.argmax(dim=2) == query_classes).to(labels.dtype).mean(dim=1),
        entropy=torch.special.entr(labels).sum(dim=2).mean(dim=1),
        confidence=labels.amax(dim=2).mean(dim=1),
    )
