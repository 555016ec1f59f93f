"""Segments of a training set and their gradients: for each class, its clean samples and those with a wrong label.

A segment belongs to a *true* class. Its gradient is the sum of its samples' gradients (f - y)∇h, where y is the given
label. With several logits, it is the gradient of the class's own logit, which separates the class from all others as
in the binary case (Appendix C.1).

If not all samples are measured, each segment is represented by equally many of its samples, chosen by the run's seed,
and sums are scaled to the whole segment. So wrong labels are measured as precisely as right ones, whatever their share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.clean_priority import readout
from mislabel.tasks.images import image_training
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes

CLEAN, NOISY = 0, 1
SUMMED = ("error", "loss", "residual")
# The number of images that are evaluated at once.
_PART = 512

Vector = Mapping[str, Tensor]
"""A direction in the space of weights, by name, lane first."""


@dataclass(frozen=True)
class Segments:
    given: Tensor
    """The given label of each training sample; l n."""
    order: Tensor
    """Indices of the samples sorted by class, clean before noisy, in random order within each segment; l n."""
    counts: Tensor
    """Numbers of clean and noisy samples of each class; l k 2."""

    def rows(self, class_: int, kind: int, most: int = 0) -> tuple[Tensor, Tensor]:
        """At most `most` samples that represent a segment (0: all), and how many samples each stands for; l m both.

        Lanes may have segments of different sizes; surplus entries stand for 0 samples.
        """
        counts = self.counts.flatten(1)
        at = 2 * class_ + kind
        count, first = counts[:, at], counts[:, :at].sum(dim=1)
        size = int(count.max())
        size = min(most, size) if most else size
        place = torch.arange(size, device=count.device)
        index = self.order.gather(1, (first[:, None] + place).clamp(max=self.order.shape[1] - 1))
        share = count / count.clamp(max=max(size, 1))  # an empty segment has no entries, so 0/0 is not used
        return index, torch.where(place < count[:, None], share[:, None], 0.0)


def split_segments(lanes: Lanes[Any], y: Tensor, given: Tensor, classes: int) -> Segments:
    """The segments of samples with true labels y (n) and given labels (l n)."""
    segment = 2 * y + (given != y).long()  # l n
    # Segment number plus a uniform number: sorts samples by segment and shuffles each segment.
    order = (lanes.uniform("segments", y.shape[0]).double() + segment).argsort(dim=1, stable=True)
    counts = functional.one_hot(segment, 2 * classes).sum(dim=1).view(len(lanes), classes, 2)
    return Segments(given, order, counts)


@dataclass(frozen=True)
class Measured:
    """Sums and gradient of a segment."""

    sums: Tensor
    """The sums of SUMMED over the segment's samples; l 3."""
    gradient: Vector
    """The gradient on the class's own logit."""


def measure_segment(
    lanes: Lanes[Any], network: Network, state: Mapping[str, Tensor], segments: Segments, class_: int, kind: int
) -> Measured:
    """Measure one segment in all lanes."""
    classes = segments.counts.shape[1]
    asked = lanes.shape.measured_samples
    index, count = segments.rows(class_, kind, max(1, asked // (2 * classes)) if asked else 0)
    count = count.to(lanes.dtype)
    weights = {name: tensor.detach().requires_grad_() for name, tensor in network.trained(state).items()}
    sums = torch.zeros(len(lanes), len(SUMMED), dtype=lanes.dtype, device=lanes.device)
    gradient = zero_vector(network, state)
    logit = readout.logit_of(class_, classes)
    for part in image_training.parts(index.shape[1], _PART):
        x, y = samples(lanes, segments, index[:, part])
        labels, n = readout.one_hot_labels(y, classes, lanes.dtype), count[:, part]
        with torch.enable_grad():
            outputs = network.forward({**state, **weights}, x).outputs
            single = outputs[..., logit]
        detached = outputs.detach()
        residual = readout.residuals(detached, labels)
        each = readout.wrong(detached, y).to(detached.dtype), readout.losses(detached, labels), residual.norm(dim=2)
        sums = sums + torch.stack([(n * values).sum(dim=1) for values in each], dim=1)
        strength = n * residual[..., logit]
        more = torch.autograd.grad(single, list(weights.values()), strength)
        gradient = sum_of(gradient, dict(zip(weights, more, strict=True)))
    return Measured(sums, gradient)


def samples(lanes: Lanes[Any], segments: Segments, index: Tensor) -> tuple[Tensor, Tensor]:
    """Images (l b c h w) and given labels (l b) of training samples (l b)."""
    x = image_training.scaled(lanes, image_training.shared_rows(image_training.loaded(lanes).train_x, index))
    return x, segments.given.gather(1, index)


def zero_vector(network: Network, state: Mapping[str, Tensor]) -> Vector:
    return {name: torch.zeros_like(tensor) for name, tensor in network.trained(state).items()}


def sum_of(one: Vector, other: Vector) -> Vector:
    return {name: tensor + other[name] for name, tensor in one.items()}


def products(vectors: Sequence[Vector]) -> Tensor:
    """Inner products of all pairs; (l v v)."""
    found = []
    for name in vectors[0]:
        # Double precision: angles near 0 and 180 degrees are lost if these sums are rounded to single precision.
        rows = torch.stack([vector[name].flatten(1) for vector in vectors], dim=1).double()
        found.append(torch.bmm(rows, rows.mT))
    return torch.stack(found).sum(dim=0)


def norm(vector: Vector) -> Tensor:
    return products([vector])[:, 0, 0].sqrt()


def ratio(pairs: Tensor) -> Tensor:
    """α, from the inner products of clean and noisy gradients (... 2 2); nan if the clean one is 0."""
    clean = pairs[..., CLEAN, CLEAN]
    return torch.where(clean > 0, pairs[..., NOISY, NOISY] / clean, torch.nan).sqrt()


def angle(pairs: Tensor) -> Tensor:
    """The angle between clean and noisy gradients, from their inner products (... 2 2), in radians; nan if one is 0."""
    norms = (pairs[..., NOISY, NOISY] * pairs[..., CLEAN, CLEAN]).sqrt()
    return (pairs[..., CLEAN, NOISY] / norms).clamp(-1, 1).arccos()
