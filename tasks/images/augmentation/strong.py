"""Strong views: random operations, several in a row, on images of bytes.

For each image one of fourteen operations is chosen and, with a chance of one half, applied; this is done five times
(CLSA; see `operations`). The level of an operation is any from 1 to 9, and moves go either way.
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
    """What happens to n images in t rounds; (t n) each."""

    operation: Tensor  # a place in OPERATIONS, or one beyond its end for nothing
    level: Tensor
    negative: Tensor


def drawn_rounds(lanes: Lanes[Any], name: str, step: int, images: int, times: int, chance: float) -> Rounds:
    """Drawn for each of so many images per lane; n = l·images."""
    u = lanes.uniform(f"{name}.strong", times, 4, images, steps=range(step, step + 1))[:, 0]  # l t 4 b
    operation, level, sign, applied = u.permute(2, 1, 0, 3).flatten(2)
    return Rounds(
        operation=torch.where(applied < chance, (operation * len(OPERATIONS)).long(), _NONE),
        level=LEVELS.start + (level * len(LEVELS)).long(),
        negative=sign < 0.5,
    )


def strengthened(x: Tensor, rounds: Rounds) -> Tensor:
    """Images of bytes x (n c h w) after these rounds."""
    kinds = torch.arange(_NONE + 1, device=x.device)
    # The one place where the device is waited for: how many images each operation is done to.
    counts = (rounds.operation[:, :, None] == kinds).sum(dim=1).tolist()  # t 15
    orders = rounds.operation.argsort(dim=1, stable=True)  # t n
    at = torch.arange(len(x), device=x.device)  # where each image is now
    for turn, order in enumerate(orders):
        x = x.index_select(0, at.index_select(0, order))
        at = order.argsort()
        apply_each(x, rounds.level[turn][order], rounds.negative[turn][order], counts[turn])
    return x.index_select(0, at)
