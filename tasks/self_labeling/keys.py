"""The dictionary of keys: the last b features of the momentum encoder, first in, first out.

All lanes of a pack have come equally far, so where the next keys go is a function of the step. Beside the keys goes the
number of the sample that each is of, with which the quality of labels is measured; nothing is trained with it.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.self_labeling.contrast import unit

NOBODY = -1
"""Instead of a sample's number, for keys from before the first step."""


@dataclass(frozen=True)
class Dictionary:
    keys: Tensor  # l b d, of unit length
    samples: Tensor  # l b


def random_dictionary(lanes: Lanes[Any], size: int, dim: int) -> Dictionary:
    """As MoCo has it at the start: random directions."""
    samples = torch.full((len(lanes), size), NOBODY, dtype=torch.int64, device=lanes.device)
    return Dictionary(unit(lanes.normal("dictionary", size, dim)), samples)


def enqueued(held: Dictionary, keys: Tensor, samples: Tensor, step: int) -> Dictionary:
    """The dictionary with this step's keys (l s d) in the place of the oldest."""
    size, count = held.keys.shape[1], keys.shape[1]
    place = torch.arange(step * count, (step + 1) * count, device=keys.device) % size
    kept = slice(max(0, count - size), None)  # of a batch larger than the dictionary, the last ones stay
    return Dictionary(
        held.keys.index_copy(1, place[kept], keys[:, kept]), held.samples.index_copy(1, place[kept], samples[:, kept])
    )
