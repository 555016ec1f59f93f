"""Segments of a training set and their gradients: for each class, its clean samples and those with a wrong label.

A segment belongs to a *true* class. Its gradient is the sum of its samples' gradients (f - y)∇h, where y is the given
label. With several logits, it is the gradient of the class's own logit, which separates the class from all others as
in the binary case (Appendix C.1).

If not all samples are measured, each segment is represented by equally many of its samples, chosen by the run's seed,
and sums are scaled to the whole segment. So wrong labels are measured as precisely as right ones, whatever their share.

θ_g is the angle between a single sample's gradient and its class's clean gradient, on one logit (the histograms of
Figures 4 and 9): for samples of the clean and the noisy segment of a class, and for clean samples of other classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.images import image_training, readout
from mislabel.tasks.images.derivatives import sample_gradients
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes

CLEAN, NOISY = 0, 1
SUMMED = ("error", "loss", "residual")
# The number of images that are evaluated at once.
_PART = 512
# The largest size, in numbers, of the gradients that are computed at once.
_NUMBERS = 1 << 25

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


def measure_segment(
    lanes: Lanes[Any], network: Network, state: Mapping[str, Tensor], segments: Segments, class_: int, kind: int
) -> tuple[Tensor, Vector, Vector]:
    """The sums of SUMMED over a segment's samples (l 3), and its gradients on the class's own logit and on all logits.

    The gradient on all logits is that of the loss. With two classes there is one logit, so both are the same.
    """
    classes = segments.counts.shape[1]
    asked = lanes.shape.measured_samples
    index, count = segments.rows(class_, kind, max(1, asked // (2 * classes)) if asked else 0)
    count = count.to(lanes.dtype)
    weights = {name: tensor.detach().requires_grad_() for name, tensor in network.trained(state).items()}
    sums = torch.zeros(len(lanes), len(SUMMED), dtype=lanes.dtype, device=lanes.device)
    own = full = zero_vector(network, state)
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
        strength, several = n[..., None] * residual, outputs.shape[2] > 1
        more = torch.autograd.grad(single, list(weights.values()), strength[..., logit], retain_graph=several)
        own = sum_of(own, dict(zip(weights, more, strict=True)))
        if several:
            more = torch.autograd.grad(outputs, list(weights.values()), strength)
            full = sum_of(full, dict(zip(weights, more, strict=True)))
    return sums, own, full if readout.logits(classes) > 1 else own


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


def ratio(pairs: Tensor) -> Tensor:
    """α, from the inner products of clean and noisy gradients (... 2 2); nan if the clean one is 0."""
    clean = pairs[..., CLEAN, CLEAN]
    return torch.where(clean > 0, pairs[..., NOISY, NOISY] / clean, torch.nan).sqrt()


def angle(pairs: Tensor) -> Tensor:
    """The angle between clean and noisy gradients, from their inner products (... 2 2), in radians; nan if one is 0."""
    norms = (pairs[..., NOISY, NOISY] * pairs[..., CLEAN, CLEAN]).sqrt()
    return (pairs[..., CLEAN, NOISY] / norms).clamp(-1, 1).arccos()


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
    logit, length = readout.logit_of(class_, classes), products([clean])[:, 0].sqrt()
    size = max(1, _NUMBERS // (network.size * len(lanes)))
    found = {}
    for name, (index, exists) in rows.items():
        parts, total = [], zero_vector(network, state)
        for part in image_training.parts(index.shape[1], size):
            x, y = samples(lanes, segments, index[:, part])
            labels = readout.one_hot_labels(y, classes, lanes.dtype)
            residual = readout.residuals(network.forward(state, x).outputs, labels)[..., logit] * exists[:, part]
            grads = sample_gradients(network, state, x, lambda outputs: outputs[logit])  # ∇h, by name
            sums = {key: torch.einsum("lb,lb...->l...", residual, grad) for key, grad in grads.items()}
            total = sum_of(total, sums)
            along = [torch.einsum("lb...,l...->lb", grads[key], vector).double() for key, vector in clean.items()]
            square = torch.stack([grad.square().flatten(2).sum(dim=2, dtype=torch.float64) for grad in grads.values()])
            signs, norms = readout.residual_signs(labels)[..., logit], square.sum(dim=0).sqrt() * length
            parts.append((signs * torch.stack(along).sum(dim=0) / norms).clamp(-1, 1).arccos())
        found[name] = torch.where(exists, torch.cat(parts, dim=1), torch.nan)
        if name == "other":
            found["others"] = angle(products([clean, total]))
    return found


def _rows(segments: Segments, class_: int, kind: int, most: int) -> tuple[Tensor, Tensor]:
    """Indices of a segment's samples, and whether each exists; l s for any size of the segment."""
    index, count = segments.rows(class_, kind, most)
    empty = most - index.shape[1]
    # Arrays must keep their size when lanes leave the pack.
    return functional.pad(index, (0, empty)), functional.pad(count, (0, empty)) > 0


def _others(segments: Segments, class_: int, most: int) -> tuple[Tensor, Tensor]:
    """Clean samples of all other classes, about equally many of each."""
    others = [other for other in range(segments.counts.shape[1]) if other != class_]
    each = -(-most // len(others))
    rows = [_rows(segments, other, CLEAN, each) for other in others]
    index, exists = (torch.stack(parts, dim=2).flatten(1)[:, :most] for parts in zip(*rows, strict=True))
    return index, exists
