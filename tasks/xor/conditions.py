"""Lemmas 4, 6 and 11 and Conditions 9 and 10 of XOR clusters: what holds for the neurons that start well.

J_μ (Lemma 4) are the neurons whose output sign is μ's label and whose initial cosine with μ exceeds 1/(3·C₀·√d). C₀ is
10, where the proof has an astronomical constant. Neurons with a positive output weight come first, and points are
ordered by cluster: μ₁, −μ₁, μ₂, −μ₂.
"""

import math

import torch
from torch import Tensor

C0 = 10.0


def outputs(hidden: Tensor) -> Tensor:
    positive, negative = hidden.chunk(2, dim=1)
    return (positive.sum(dim=1) - negative.sum(dim=1)) / math.sqrt(hidden.shape[1])


def margins(given: Tensor, clean: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """The smallest label·output of clean points and the largest of flipped ones; NaN without flipped points; (l,)."""
    found, right = given * f, given == clean
    largest = torch.where(right, -torch.inf, found).amax(dim=1)
    return torch.where(right, found, torch.inf).amin(dim=1), torch.where(right.all(dim=1), torch.nan, largest)


def of_own_mean(values: Tensor) -> Tensor:
    """From values per neuron and mean (l m 2), those of the mean whose label is the neuron's output sign; (l, m)."""
    positive, negative = values.chunk(2, dim=1)
    return torch.cat([positive[:, :, 0], negative[:, :, 1]], dim=1)


def conditions(z: Tensor, start: Tensor, nearly_orthogonal: Tensor, given: Tensor, clean: Tensor) -> dict[str, Tensor]:
    """The shares, sizes, edges and margins of the neurons in all J_μ.

    `z` are the preactivations of the training points (l m n), `start` the initial cosines with the own mean, times √d
    (l m); `nearly_orthogonal` says whether a neuron fulfils Condition 10 (l m).
    """
    lanes, width, samples = z.shape
    chosen = start.abs() > 1 / (3 * C0)
    clusters = z.view(lanes, width, 2, 2, -1)  # l m mean sign point
    low, high = clusters.amin(dim=4), clusters.amax(dim=4)
    fires = [of_own_mean((low[..., sign] > 0) & (high[..., 1 - sign] <= 0)) for sign in (0, 1)]
    aligned = torch.where(start > 0, fires[0], fires[1])
    sides = (chosen & (start > 0), chosen & (start < 0))
    sizes = torch.cat([side.view(lanes, 2, -1).sum(dim=2) for side in sides], dim=1)  # l 4
    candidates = sizes.sum(dim=1)
    fired = ((z > 0) & (given == clean)[:, None]).view_as(clusters).sum(dim=4)  # l m mean sign
    edge = start.sign() * of_own_mean(fired[..., 0] - fired[..., 1]).to(z.dtype) / samples
    smallest_edge = torch.where(chosen, edge, torch.inf).amin(dim=1)
    clean_margin, noisy_margin = margins(given, clean, outputs(z.relu() * chosen[:, :, None]))
    return {
        "alignment_share": (aligned & chosen).to(z.dtype).sum(dim=1) / candidates,
        "orthogonality_share": (nearly_orthogonal & chosen).to(z.dtype).sum(dim=1) / candidates,
        "candidate_share": sizes.amin(dim=1).to(z.dtype) * 4 / width,
        "smallest_edge": torch.where(candidates > 0, smallest_edge, torch.nan),
        "subnetwork_clean_margin": clean_margin,
        "subnetwork_noisy_margin": noisy_margin,
    }
