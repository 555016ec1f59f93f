"""Angles between derivatives at initialization: similar inputs have similar derivatives (Figures 2 and 3).

Liu, Abedsoltan, Belkin, on why clean labels are learned first. θ_h is the angle between the derivatives of the output h
with respect to all weights at two inputs; θ_d is the angle between the inputs. At infinite width θ_h is a function of
θ_d (Equations 13, 14), which increases up to 90°; for linear networks it is θ_d itself. This task measures θ_h around
the unit circle (Figure 2), and within and between two clusters in the plane (Figure 3).

Nothing is trained: a run is one random network, measured at initialization, and `steps` = 1 is a formality.

Readings: networks have the scaling of Equation 12 and no biases. "Two layers" may or may not count the output layer, so
the parameter is the number of hidden layers L: 1, 2, 4 or 2, 3, 5 for Figure 2. The text does not give the clusters:
here they are Gaussian, around two points of the unit circle.

The derivative with respect to a layer's weights is an outer product of its input and of the derivative with respect to
its output. So inner products of derivatives are sums over the layers of products of two inner products: exact, and no
larger than the activations.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(1, at_least=1, help="nothing is trained, so 1 is enough")
    frames: int = shape(2, at_least=2, help="how many times metrics are measured; they never change, so 2 is enough")
    snapshots: int = shape(1, at_least=0, help="at how many of these times the array metrics (angles) are stored too")
    activation: str = shape("relu", choices=("relu", "linear"), help="activation of the hidden layers")
    hidden_layers: int = shape(2, at_least=1, help="hidden layers L; the network has L + 1 layers of weights")
    width: int = shape(512, at_least=1, help="neurons m of each hidden layer")
    angles: int = shape(181, at_least=3, help="points on the half circle, equally spaced from 0 to π, both included")
    cluster_points: int = shape(50, at_least=2, help="points in each of the two clusters")
    cluster_angle: float = knob(math.pi / 2, between=(0, math.pi), help="angle between the cluster means, in radians")
    spread: float = knob(0.1, at_least=0, help="standard deviation of each coordinate around the cluster mean")


METRICS = {
    "max_deviation": Metric("largest |θ_h − θ_h at infinite width (Equation 13)| over the half circle, in radians"),
    "mean_deviation": Metric("the same, mean over the half circle"),
    "max_feature_deviation": Metric("largest deviation of last hidden layers' angles from Equation 14, in radians"),
    "rising_share": Metric("share of neighbouring points up to θ_d = 90° at which θ_h increases with θ_d"),
    "neighbour_angle": Metric("mean θ_h of neighbouring points of the half circle, in radians"),
    "small_angle_slope": Metric(
        "mean over neighbouring points of (1 − cos θ_h/cos θ_d)/θ_d; Equation 15: L/2π for ReLU and small θ_d"
    ),
    "within_angle": Metric("mean θ_h over pairs of points of the same cluster, in radians"),
    "between_angle": Metric("mean θ_h over pairs of points of different clusters, in radians"),
    "separated_share": Metric("probability that a pair within a cluster has a smaller θ_h than one between clusters"),
    "theta_d": Metric("θ_d: angle between the point (1, 0) and each point of the half circle, in radians", per="angle"),
    "theta_h": Metric("θ_h: angle between the derivatives at these two points, in radians", per="angle"),
    "theta_h_wide": Metric("θ_h at infinite width (Equation 13)", per="angle"),
    "within_angles": Metric("θ_h of every pair of points of the same cluster", per="pair"),
    "between_angles": Metric("θ_h of every pair of points of different clusters", per="pair"),
}


def init(lanes: Lanes[Params]) -> State:
    points = torch.cat([_circle(lanes).expand(len(lanes), -1, -1), _clusters(lanes)], dim=1)
    alphas, backs = _passes(lanes, points)
    products, count = _products(alphas, backs), lanes.shape.angles
    features, circle = alphas[-1][:, :count].double(), _angles(products[:, :count, :count])
    return {
        "circle": circle[:, 0],
        "neighbours": circle.diagonal(offset=1, dim1=1, dim2=2).contiguous(),
        "clusters": _angles(products[:, count:, count:]),
        "features": _angles(features @ features.mT)[:, 0],
    }


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    return s


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    p = lanes.shape
    theta_d = torch.linspace(0, math.pi, p.angles, dtype=torch.float64, device=lanes.device)
    layers = _wide_angles(theta_d, p.hidden_layers, p.activation)
    wide = _wide_gradient_angle(layers, p.activation)
    deviation = (s["circle"] - wide).abs()
    rises = s["circle"][:, : (p.angles + 1) // 2].diff(dim=1) > 0
    within, between = _pairs(s["clusters"])
    small = theta_d[1]
    return {
        "max_deviation": deviation.amax(dim=1),
        "mean_deviation": deviation.mean(dim=1),
        "max_feature_deviation": (s["features"] - layers[-1]).abs().amax(dim=1),
        "rising_share": rises.double().mean(dim=1),
        "neighbour_angle": s["neighbours"].mean(dim=1),
        "small_angle_slope": (1 - s["neighbours"].cos() / small.cos()).mean(dim=1) / small,
        "within_angle": within.mean(dim=1),
        "between_angle": between.mean(dim=1),
        "separated_share": _share_below(within, between),
        "theta_d": theta_d.expand(len(lanes), -1),
        "theta_h": s["circle"],
        "theta_h_wide": wide.expand(len(lanes), -1),
        "within_angles": within,
        "between_angles": between,
    }


def _passes(lanes: Lanes[Params], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """For each layer of weights, its input α^(l-1) and the derivative ∂h/∂(W^(l)·α^(l-1)); l n m each."""
    p = lanes.shape
    relu = p.activation == "relu"
    scale = math.sqrt((2 if relu else 1) / p.width)
    weights, alphas, fires = [], [x], []
    for layer in range(p.hidden_layers):
        weights.append(lanes.normal(f"w{layer + 1}", p.width, alphas[-1].shape[2]))  # l m_out m_in
        z = alphas[-1] @ weights[-1].mT
        fires.append((z > 0).to(z.dtype) * scale if relu else torch.full_like(z, scale))
        alphas.append(z * fires[-1])
    back = lanes.normal(f"w{p.hidden_layers + 1}", 1, p.width)  # l 1 m: ∂h/∂α^(L)
    backs = [torch.ones_like(x[:, :, :1])]
    for layer in reversed(range(p.hidden_layers)):
        backs.append(back * fires[layer])
        back = backs[-1] @ weights[layer]
    return alphas, backs[::-1]


def _products(alphas: list[Tensor], backs: list[Tensor]) -> Tensor:
    """⟨∇h(x), ∇h(z)⟩ for all pairs of inputs; (l, n, n)."""
    # Double precision: small angles are lost if cosines near 1 are rounded to single precision.
    pairs = [(alpha.double(), back.double()) for alpha, back in zip(alphas, backs, strict=True)]
    return torch.stack([(alpha @ alpha.mT) * (back @ back.mT) for alpha, back in pairs]).sum(dim=0)


def _angles(products: Tensor) -> Tensor:
    """Angles between vectors, from their inner products (l, n, n)."""
    norm = products.diagonal(dim1=1, dim2=2).sqrt()
    return (products / (norm[:, :, None] * norm[:, None])).clamp(-1, 1).arccos()


def _wide_angles(theta_d: Tensor, hidden_layers: int, activation: str) -> list[Tensor]:
    """θ^(0), …, θ^(L) at infinite width (Equation 14)."""
    angles = [theta_d]
    for _ in range(hidden_layers):
        z = angles[-1]
        cosine = (1 - z / math.pi) * z.cos() + z.sin() / math.pi
        angles.append(cosine.clamp(-1, 1).arccos() if activation == "relu" else z)
    return angles


def _wide_gradient_angle(angles: list[Tensor], activation: str) -> Tensor:
    """θ_h at infinite width (Equation 13), by Horner's rule."""
    if activation == "linear":
        return angles[0]
    total = angles[0].cos()
    for before, angle in pairwise(angles):
        total = total * (1 - before / math.pi) + angle.cos()
    return (total / len(angles)).clamp(-1, 1).arccos()


def _circle(lanes: Lanes[Params]) -> Tensor:
    theta = torch.linspace(0, math.pi, lanes.shape.angles, dtype=torch.float64, device=lanes.device)
    return torch.stack([theta.cos(), theta.sin()], dim=1).to(lanes.dtype)


def _clusters(lanes: Lanes[Params]) -> Tensor:
    """Points of the first cluster, then those of the second; (l, 2 · cluster_points, 2)."""
    half = lanes["cluster_angle"] / 2
    means = torch.stack([half.cos(), half.sin(), half.cos(), -half.sin()], dim=1).view(-1, 2, 2)
    noise = lanes.normal("clusters", 2, lanes.shape.cluster_points, 2)
    return (means[:, :, None] + lanes.column("spread", 3) * noise).flatten(1, 2)


def _pairs(angles: Tensor) -> tuple[Tensor, Tensor]:
    """From the angles between all points: those within a cluster, each pair once, and those between the clusters."""
    n = angles.shape[1] // 2
    one, other = torch.triu_indices(n, n, offset=1, device=angles.device)
    within = torch.cat([angles[:, one, other], angles[:, one + n, other + n]], dim=1)
    return within, angles[:, :n, n:].flatten(1)


def _share_below(low: Tensor, high: Tensor) -> Tensor:
    """The share of pairs (a value of `low`, a value of `high`) in which the first is smaller; (l,)."""
    place = torch.searchsorted(low.sort(dim=1).values, high.contiguous())
    return place.double().mean(dim=1) / low.shape[1]


_SMALL = {"width": 16, "angles": 7, "cluster_points": 4}
# All work is done at initialization, and larger packs of wide networks are not faster.
task = Task("clean_priority.angles", Params, METRICS, init, advance, measure, largest_pack=16, small=_SMALL)
