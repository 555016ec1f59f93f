"""θ_g of single samples: the angle between a sample's gradient and its class's clean gradient, on one logit.

The samples are those of the clean and the noisy segment of a class, and clean samples of all other classes: the
histograms of Figures 4 and 9. For the other classes exists is also the angle of the summed gradient.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mislabel.tasks.clean_priority import readout
from mislabel.tasks.clean_priority.segments import (
    CLEAN,
    NOISY,
    Segments,
    Vector,
    angle,
    norm,
    products,
    samples,
    sum_of,
    zero_vector,
)
from mislabel.tasks.images import image_training
from mislabel.tasks.images.derivatives import sample_gradients
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes

# The largest size, in numbers, of the gradients that are computed at once.
_NUMBERS = 1 << 25


def class_angles(
    lanes: Lanes[Any], network: Network, state: Mapping[str, Tensor], segments: Segments, class_: int, clean: Vector
) -> dict[str, Tensor]:
    """Angles (l s) of single samples to the class's clean gradient, for `clean`, `noisy` and `other` samples.

    All gradients are those of the class's own logit. Missing samples have nan. `others` (l) is the angle of the summed
    gradient of the other classes' samples.
    """
    most, classes = lanes.shape.histogram_samples, segments.counts.shape[1]
    rows = {
        "clean": _rows(segments, class_, CLEAN, most),
        "noisy": _rows(segments, class_, NOISY, most),
        "other": _others(segments, class_, most),
    }
    logit = readout.logit_of(class_, classes)
    found = {}
    for name, (index, exists) in rows.items():
        angles, total = _angles(lanes, network, state, segments, index, exists, logit, clean)
        found[name] = torch.where(exists, angles, torch.nan)
        if name == "other":
            found["others"] = angle(products([clean, total]))
    return found


def _rows(segments: Segments, class_: int, kind: int, most: int) -> tuple[Tensor, Tensor]:
    """Indices of a segment's samples, and whether each exists; l s for any size of the segment."""
    index, count = segments.rows(class_, kind, most)
    empty = most - index.shape[1]
    # Arrays must keep their size when lanes leave the pack.
    return torch.nn.functional.pad(index, (0, empty)), torch.nn.functional.pad(count, (0, empty)) > 0


def _others(segments: Segments, class_: int, most: int) -> tuple[Tensor, Tensor]:
    """Clean samples of all other classes, about equally many of each."""
    others = [other for other in range(segments.counts.shape[1]) if other != class_]
    each = -(-most // len(others))
    rows = [_rows(segments, other, CLEAN, each) for other in others]
    index, exists = (torch.stack(parts, dim=2).flatten(1)[:, :most] for parts in zip(*rows, strict=True))
    return index, exists


def _angles(
    lanes: Lanes[Any],
    network: Network,
    state: Mapping[str, Tensor],
    segments: Segments,
    index: Tensor,
    exists: Tensor,
    logit: int,
    clean: Vector,
) -> tuple[Tensor, Vector]:
    """The angle of each sample's gradient to the direction `clean`, in radians (l s), and the sum of the gradients."""
    length, size = norm(clean)[:, None], max(1, _NUMBERS // (network.size * len(lanes)))
    parts, total = [], zero_vector(network, state)
    for part in image_training.parts(index.shape[1], size):
        x, y = samples(lanes, segments, index[:, part])
        labels = readout.one_hot_labels(y, segments.counts.shape[1], lanes.dtype)
        residual = readout.residuals(network.forward(state, x).outputs, labels)[..., logit] * exists[:, part]
        grads = sample_gradients(network, state, x, lambda outputs: outputs[logit])  # ∇h, by name
        total = sum_of(total, {name: torch.einsum("lb,lb...->l...", residual, grad) for name, grad in grads.items()})
        along = torch.stack(
            [torch.einsum("lb...,l...->lb", grads[name], vector).double() for name, vector in clean.items()]
        ).sum(dim=0)
        square = torch.stack([grad.square().flatten(2).sum(dim=2, dtype=torch.float64) for grad in grads.values()])
        cosine = readout.residual_signs(labels)[..., logit] * along / (square.sum(dim=0).sqrt() * length)
        parts.append(cosine.clamp(-1, 1).arccos())
    return torch.cat(parts, dim=1), total
