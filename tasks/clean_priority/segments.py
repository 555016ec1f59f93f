"""Segments of a training set: for each class, its clean samples and those with a wrong label; and their gradients.

A segment is of a *true* class. Its gradient is the sum of its samples' gradients (f - y)∇h, which are of the given
labels. Where there are several logits, it is that of the class's own logit alone, on which the class is told from all
others as in the binary case (Appendix C.1).

Where not all samples are looked at, each segment is represented by as many of its samples, chosen by the run's seed,
and sums are scaled to the whole segment: wrong labels are then seen as well as right ones, whatever their share.
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
# Images that go through the networks at once.
_PART = 512

Vector = Mapping[str, Tensor]
"""A direction in the space of weights, by name, lane first."""


@dataclass(frozen=True)
class Segments:
    given: Tensor
    """The label that each training sample is given; l n."""
    order: Tensor
    """Samples by class, the clean ones of each before its noisy ones, each in random order; l n."""
    counts: Tensor
    """Clean and noisy samples of each class; l k 2."""

    def rows(self, class_: int, kind: int, most: int = 0) -> tuple[Tensor, Tensor]:
        """Which samples stand for a segment (0: all of them) and for how many each; l m both.

        Lanes may have segments of different sizes: where one has no further sample, the place counts for none.
        """
        counts = self.counts.flatten(1)
        at = 2 * class_ + kind
        count, first = counts[:, at], counts[:, :at].sum(dim=1)
        size = int(count.max())
        size = min(most, size) if most else size
        place = torch.arange(size, device=count.device)
        index = self.order.gather(1, (first[:, None] + place).clamp(max=self.order.shape[1] - 1))
        share = count / count.clamp(max=max(size, 1))  # 0/0 stays away, as an empty segment has no place inside
        return index, torch.where(place < count[:, None], share[:, None], 0.0)


def parted(lanes: Lanes[Any], y: Tensor, given: Tensor, classes: int) -> Segments:
    """The segments of samples of true labels y (n) that are given others (l n)."""
    segment = 2 * y + (given != y).long()  # l n
    # The whole part sorts samples by segment, the rest shuffles each segment.
    order = (lanes.uniform("segments", y.shape[0]).double() + segment).argsort(dim=1, stable=True)
    counts = functional.one_hot(segment, 2 * classes).sum(dim=1).view(len(lanes), classes, 2)
    return Segments(given, order, counts)


@dataclass(frozen=True)
class Look:
    """A segment, as the networks see it."""

    sums: Tensor
    """Of SUMMED, over its samples; l 3."""
    gradient: Vector
    """Of its class's own logit."""


def look(
    lanes: Lanes[Any], network: Network, state: Mapping[str, Tensor], segments: Segments, class_: int, kind: int
) -> Look:
    """A segment of all lanes."""
    classes = segments.counts.shape[1]
    asked = lanes.shape.measured_samples
    index, count = segments.rows(class_, kind, max(1, asked // (2 * classes)) if asked else 0)
    count = count.to(lanes.dtype)
    weights = {name: tensor.detach().requires_grad_() for name, tensor in network.trained(state).items()}
    sums = torch.zeros(len(lanes), len(SUMMED), dtype=lanes.dtype, device=lanes.device)
    gradient = nothing(network, state)
    logit = readout.logit_of(class_, classes)
    for part in image_training.parts(index.shape[1], _PART):
        x, y = samples(lanes, segments, index[:, part])
        labels, n = readout.whole_labels(y, classes, lanes.dtype), count[:, part]
        with torch.enable_grad():
            outputs = network.forward({**state, **weights}, x).outputs
            single = outputs[..., logit]
        said = outputs.detach()
        residual = readout.residuals(said, labels)
        each = readout.wrong(said, y).to(said.dtype), readout.losses(said, labels), residual.norm(dim=2)
        sums = sums + torch.stack([(n * values).sum(dim=1) for values in each], dim=1)
        strength = n * residual[..., logit]
        more = torch.autograd.grad(single, list(weights.values()), strength)
        gradient = sum_of(gradient, dict(zip(weights, more, strict=True)))
    return Look(sums, gradient)


def samples(lanes: Lanes[Any], segments: Segments, index: Tensor) -> tuple[Tensor, Tensor]:
    """Images (l b c h w) and given labels (l b) of training samples (l b)."""
    x = image_training.scaled(lanes, image_training.taken(image_training.loaded(lanes).train_x, index))
    return x, segments.given.gather(1, index)


def nothing(network: Network, state: Mapping[str, Tensor]) -> Vector:
    return {name: torch.zeros_like(tensor) for name, tensor in network.trained(state).items()}


def sum_of(one: Vector, other: Vector) -> Vector:
    return {name: tensor + other[name] for name, tensor in one.items()}


def products(vectors: Sequence[Vector]) -> Tensor:
    """Inner products of all pairs; (l v v)."""
    found = []
    for name in vectors[0]:
        # Angles near 0 and 180 degrees are lost where such sums are rounded to single precision.
        rows = torch.stack([vector[name].flatten(1) for vector in vectors], dim=1).double()
        found.append(torch.bmm(rows, rows.mT))
    return torch.stack(found).sum(dim=0)


def norm(vector: Vector) -> Tensor:
    return products([vector])[:, 0, 0].sqrt()


def ratio(pairs: Tensor) -> Tensor:
    """α, from inner products of clean and noisy gradients (... 2 2); nan where the clean one is 0."""
    clean = pairs[..., CLEAN, CLEAN]
    return torch.where(clean > 0, pairs[..., NOISY, NOISY] / clean, torch.nan).sqrt()


def angle(pairs: Tensor) -> Tensor:
    """The angle between clean and noisy gradients, from their inner products (... 2 2): radians, nan where one is 0."""
    norms = (pairs[..., NOISY, NOISY] * pairs[..., CLEAN, CLEAN]).sqrt()
    return (pairs[..., CLEAN, NOISY] / norms).clamp(-1, 1).arccos()
