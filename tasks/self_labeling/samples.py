"""Samples on the unit sphere and crops around them (Definition 1)."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.lanes import Lanes

# How often a sample is drawn again. `has_room` ensures that each draw succeeds with probability ½ or more.
_RETRIES = 64


def centres(lanes: Lanes[Any]) -> Tensor:
    """Samples on the sphere, drawn one after the other; (l, K, d)."""
    p = lanes.shape
    first = functional.normalize(lanes.normal("centres", p.samples, p.dim), dim=2)
    if p.centres == "independent":
        return first
    more = functional.normalize(lanes.normal("centres.again", p.samples, _RETRIES, p.dim), dim=3)
    drawn = torch.cat([first[:, :, None], more], dim=2)  # l K r d
    chosen = drawn[:, :0, 0]
    lane = torch.arange(len(lanes), device=lanes.device)
    for sample in drawn.unbind(dim=1):
        distance = (sample[:, :, None] - chosen[:, None]).norm(dim=3)  # l r i
        fits = (distance >= 2 * lanes.column("radius")).all(dim=2)
        place = fits.to(torch.int8).argmax(dim=1)  # the first that fits
        chosen = torch.cat([chosen, sample[lane, place][:, None]], dim=1)
    return chosen


def crops(lanes: Lanes[Any], centres: Tensor, name: str, count: int, step: int = 0) -> Tensor:
    """`count` crops of each sample, sorted by sample; (l, K · count, d)."""
    d, samples, steps = lanes.shape.dim, lanes.shape.samples, range(step, step + 1)
    centre = centres[:, :, None]  # l K 1 d
    way = lanes.normal(name, samples, count, d, steps=steps)[:, 0]  # l K count d
    tangent = functional.normalize(way - (way * centre).sum(dim=3, keepdim=True) * centre, dim=3)
    share = lanes.uniform(f"{name}.radius", samples, count, 1, steps=steps)[:, 0] ** (1 / (d - 1))
    # A chord of length r spans an angle of 2·arcsin(r/2).
    angle = 2 * (lanes.column("radius", 3) * share / 2).asin()
    found: Tensor = angle.cos() * centre + angle.sin() * tangent
    return found.flatten(1, 2)


def least_distance(centres: Tensor) -> Tensor:
    distance: Tensor = (centres[:, :, None] - centres[:, None]).norm(dim=3)
    itself = torch.eye(centres.shape[1], dtype=torch.bool, device=centres.device)
    return distance.masked_fill(itself, torch.inf).amin(dim=(1, 2))


def has_room(samples: int, dim: int, radius: float) -> bool:
    """Whether at least half of the sphere is 2ε or more from all samples but one, wherever these are."""
    return (samples - 1) * cap_share(2 * math.asin(radius), dim) <= 0.5


def cap_share(angle: float, dim: int, parts: int = 2000) -> float:
    """Share of the unit sphere within an angle of a point, by the midpoint rule."""
    weights = [math.sin(math.pi * (i + 0.5) / parts) ** (dim - 2) for i in range(parts)]
    return sum(weights[: round(parts * angle / math.pi)]) / sum(weights)
