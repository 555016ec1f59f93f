"""θ_g of single samples: the angle between a sample's gradient and its class's clean gradient, on one logit.

The samples are those of the clean and of the noisy segment of a class, and clean ones of all other classes: what
Figures 4 and 9 show as histograms, with the gradient of the latter together. Every sample's gradient is exact.
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
    nothing,
    products,
    samples,
    sum_of,
)
from mislabel.tasks.images import image_training
from mislabel.tasks.images.derivatives import sample_gradients
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes

# Numbers that the gradients of the samples that are looked at together may have.
_NUMBERS = 1 << 25


def class_angles(
    lanes: Lanes[Any], network: Network, state: Mapping[str, Tensor], segments: Segments, class_: int, clean: Vector
) -> dict[str, Tensor]:
    """Angles to a class's clean gradient, of samples of `clean`, `noisy` and `other`, nan where there are no more; l s.

    All are on the class's own logit, on which samples of other classes should say 0. `others` is that of the sum of
    the latter's gradients; l.
    """
    most, classes = lanes.shape.histogram_samples, segments.counts.shape[1]
    rows = {
        "clean": _rows(segments, class_, CLEAN, most),
        "noisy": _rows(segments, class_, NOISY, most),
        "other": _others(segments, class_, most),
    }
    logit = readout.logit_of(class_, classes)
    found = {}
    for name, (index, there) in rows.items():
        angles, total = _angles(lanes, network, state, segments, index, there, logit, clean)
        found[name] = torch.where(there, angles, torch.nan)
        if name == "other":
            found["others"] = angle(products([clean, total]))
    return found


def _rows(segments: Segments, class_: int, kind: int, most: int) -> tuple[Tensor, Tensor]:
    """Samples of a segment, and which of them there are; l s, whatever the segment's size."""
    index, count = segments.rows(class_, kind, most)
    empty = most - index.shape[1]
    # Lanes come and go, and arrays of one pack must keep their size.
    return torch.nn.functional.pad(index, (0, empty)), torch.nn.functional.pad(count, (0, empty)) > 0


def _others(segments: Segments, class_: int, most: int) -> tuple[Tensor, Tensor]:
    """Clean samples of all other classes, as many of each as can be."""
    others = [other for other in range(segments.counts.shape[1]) if other != class_]
    each = -(-most // len(others))
    rows = [_rows(segments, other, CLEAN, each) for other in others]
    index, there = (torch.stack(parts, dim=2).flatten(1)[:, :most] for parts in zip(*rows, strict=True))
    return index, there


def _angles(
    lanes: Lanes[Any],
    network: Network,
    state: Mapping[str, Tensor],
    segments: Segments,
    index: Tensor,
    there: Tensor,
    logit: int,
    clean: Vector,
) -> tuple[Tensor, Vector]:
    """The angle of each sample's gradient (l s) to the direction `clean`, in radians, l s; and the gradients' sum."""
    length, size = norm(clean)[:, None], max(1, _NUMBERS // (network.size * len(lanes)))
    parts, total = [], nothing(network, state)
    for part in image_training.parts(index.shape[1], size):
        x, y = samples(lanes, segments, index[:, part])
        labels = readout.whole_labels(y, segments.counts.shape[1], lanes.dtype)
        residual = readout.residuals(network.forward(state, x).outputs, labels)[..., logit] * there[:, part]
        grads = sample_gradients(network, state, x, lambda outputs: outputs[logit])  # ∇h, by name
        total = sum_of(total, {name: torch.einsum("lb,lb...->l...", residual, grad) for name, grad in grads.items()})
        along = torch.stack(
            [torch.einsum("lb...,l...->lb", grads[name], vector).double() for name, vector in clean.items()]
        ).sum(dim=0)
        square = torch.stack([grad.square().flatten(2).sum(dim=2, dtype=torch.float64) for grad in grads.values()])
        cosine = readout.sides(labels)[..., logit] * along / (square.sum(dim=0).sqrt() * length)
        parts.append(cosine.clamp(-1, 1).arccos())
    return torch.cat(parts, dim=1), total
