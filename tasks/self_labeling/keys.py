"""The dictionary of keys: the last b features of the momentum encoder, a FIFO queue.

All lanes of a pack are at the same step, so the position of the next keys is a function of the step. Each key also has
the index of its sample, which is used to measure the quality of labels and not for training.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.contrast import unit

NO_SAMPLE = -1
"""The sample index of keys from before the first step."""


@dataclass(frozen=True)
class Dictionary:
    keys: Tensor  # l b d, of unit length
    samples: Tensor  # l b


def random_dictionary(lanes: Lanes[Any], size: int, dim: int) -> Dictionary:
    """The initial dictionary, as in MoCo: random directions."""
    samples = torch.full((len(lanes), size), NO_SAMPLE, dtype=torch.int64, device=lanes.device)
    return Dictionary(unit(lanes.normal("dictionary", size, dim)), samples)


def enqueued(held: Dictionary, keys: Tensor, samples: Tensor, step: int) -> Dictionary:
    """The dictionary with this step's keys (l s d) instead of the oldest ones."""
    size, count = held.keys.shape[1], keys.shape[1]
    place = torch.arange(step * count, (step + 1) * count, device=keys.device) % size
    kept = slice(max(0, count - size), None)  # a batch larger than the dictionary keeps its last keys
    both = (held.keys, keys), (held.samples, samples)
    return Dictionary(*(old.index_copy(1, place[kept], new[:, kept]) for old, new in both))
