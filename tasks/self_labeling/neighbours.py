"""Classify by weighted nearest neighbours of features, to evaluate a representation without training on it.

As in instance discrimination (Wu et al. 2018, Section 3.4) and MoCo: of the training features, those with the largest
cosine to a test feature vote for their classes, each with weight exp(cosine/temperature).
"""

import torch
from torch import Tensor
from torch.nn import functional

# The largest number of similarities between a chunk of test features and all training features.
_CHUNK = 1 << 24


@torch.no_grad()
def neighbour_classes(
    train_x: Tensor, train_y: Tensor, test_x: Tensor, classes: int, neighbours: int = 50, temperature: float = 0.05
) -> Tensor:
    """The class that each test feature's nearest training features vote for; (l m).

    Features are (l n f) and (l m f) and not 0; the classes of the training features are numbers (n, or l n). If classes
    tie, the first one wins. With fewer than `neighbours` training features, all vote.
    """
    train, test = functional.normalize(train_x, dim=2), functional.normalize(test_x, dim=2)
    y = train_y.expand(train.shape[:2])
    rows = max(1, _CHUNK // y.numel())
    with torch.autocast(train.device.type, enabled=False):
        parts = [_vote(train, y, part, classes, neighbours, temperature) for part in torch.split(test, rows, dim=1)]
    return torch.cat(parts, dim=1)


def neighbour_accuracy(
    train_x: Tensor,
    train_y: Tensor,
    test_x: Tensor,
    test_y: Tensor,
    classes: int,
    neighbours: int = 50,
    temperature: float = 0.05,
) -> Tensor:
    """Share of test features (l m f) whose neighbours vote for their class test_y (m, or l m); (l)."""
    found = neighbour_classes(train_x, train_y, test_x, classes, neighbours, temperature)
    return (found == test_y).to(train_x.dtype).mean(dim=1)


def _vote(train: Tensor, y: Tensor, test: Tensor, classes: int, neighbours: int, temperature: float) -> Tensor:
    cosine, nearest = torch.bmm(test, train.mT).topk(min(neighbours, train.shape[1]), dim=2)  # l m k
    voters = y[:, None, :].expand(-1, test.shape[1], -1).gather(2, nearest)
    # Subtract the largest cosine, so that the exponential does not overflow; the order of the votes stays the same.
    weight = ((cosine - cosine[:, :, :1]) / temperature).exp()
    votes = torch.zeros(*test.shape[:2], classes, dtype=weight.dtype, device=weight.device)
    return votes.scatter_add_(2, voters, weight).argmax(dim=2)
