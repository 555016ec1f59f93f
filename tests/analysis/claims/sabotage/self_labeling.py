"""Bugs in the tasks of self-labeling."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling import corrupted, sane
from mislabel.tasks.self_labeling.contrast import Refined
from mislabel.tasks.self_labeling.corrupted import Data


def refinery_off() -> AbstractContextManager[Any]:
    """The network trains on the given labels, whatever α is."""

    def given_labels(lanes: Lanes[Any], data: Data, given: Tensor, *others: object) -> Tensor:
        return given

    return mock.patch.object(corrupted, "_refined", given_labels)


def labels_misaligned() -> AbstractContextManager[Any]:
    """Each sample has the labels of the sample before it."""
    right = corrupted._data

    def misaligned(lanes: Lanes[Any]) -> Data:
        data = right(lanes)
        return replace(data, given=torch.roll(data.given, lanes.shape.crops, dims=1))

    return mock.patch.object(corrupted, "_data", misaligned)


def keys_shuffled() -> AbstractContextManager[Any]:
    """The refinery has the keys in another order than the queries' labels; only the positives are in their place."""
    right = sane._labels

    def shuffled(lanes: Lanes[Any], logits: Tensor, *others: Any) -> Refined:
        wrong = logits.flip(2)
        wrong.diagonal(dim1=1, dim2=2).copy_(logits.diagonal(dim1=1, dim2=2))
        return right(lanes, wrong, *others)

    return mock.patch.object(sane, "_labels", shuffled)


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "refinery-off": refinery_off,
    "labels-misaligned": labels_misaligned,
    "keys-shuffled": keys_shuffled,
}
