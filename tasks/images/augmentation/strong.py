"""Strong views: several random operations on images of bytes.

For each image, one of fourteen operations is drawn and applied with probability one half. This is done five times
(CLSA; see `operations`). The level of an operation is drawn from 1 to 9, and moves go in either direction.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.images.augmentation.operations import LEVELS, OPERATIONS, apply_each
from mislabel.tasks.lanes import Lanes

_NONE = len(OPERATIONS)


@dataclass(frozen=True)
class Rounds:
    """The operations on n images in t rounds; (t n) each."""

    operation: Tensor  # an index of OPERATIONS, or its length for no operation
    level: Tensor
    negative: Tensor


def drawn_rounds(lanes: Lanes[Any], name: str, step: int, images: int, times: int, chance: float) -> Rounds:
    """Draw the operations for `images` images per lane; n = l·images."""
    u = lanes.uniform(f"{name}.strong", times, 4, images, steps=range(step, step + 1))[:, 0]  # l t 4 b
    operation, level, sign, applied = u.permute(2, 1, 0, 3).flatten(2)
    return Rounds(
        operation=torch.where(applied < chance, (operation * len(OPERATIONS)).long(), _NONE),
        level=LEVELS.start + (level * len(LEVELS)).long(),
        negative=sign < 0.5,
    )


def with_rounds(x: Tensor, rounds: Rounds) -> Tensor:
    """Images of bytes x (n c h w) after these rounds."""
    kinds = torch.arange(_NONE + 1, device=x.device)
    # This waits for the device: the number of images of each operation is needed here.
    counts = (rounds.operation[:, :, None] == kinds).sum(dim=1).tolist()  # t 15
    orders = rounds.operation.argsort(dim=1, stable=True)  # t n
    at = torch.arange(len(x), device=x.device)  # the current position of each image
    for turn, order in enumerate(orders):
        x = x.index_select(0, at.index_select(0, order))
        at = order.argsort()
        apply_each(x, rounds.level[turn][order], rounds.negative[turn][order], counts[turn])
    return x.index_select(0, at)
