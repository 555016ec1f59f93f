"""XOR clusters with flipped labels: gradient descent amplifies random features and ignores the noise (Theorem 1).

Frei, Chatterji, Bartlett. The clusters lie at ±μ₁ (label +1) and ±μ₂ (label -1). A share of each cluster's labels is
flipped before training. The network has two ReLU layers. Only the first layer is trained, by full-batch gradient
descent on the logistic loss; the output weights are fixed at ±1/√m. At step T = 1 + 1/(4·step_size) the network
classifies every clean point as labelled and every flipped point against its label (Theorem 1).

Readings: the means are the first two unit vectors, because the setting is rotation invariant. T is rounded up. The sets
of neurons J_μ and C₀ are defined in `xor.conditions`. The points of a cluster are exchangeable, so the first points of
each cluster are the flipped ones.

If there are no more points than dimensions, the weights are trained as W = W₀ + C·X, using the Gram matrix of the
points. This is the same iteration on a smaller matrix.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training
from mislabel.tasks.xor.conditions import C0, conditions, margins, of_own_mean, outputs

CAPTURED = 0.5
# The grid on which the decision boundary of Figure 1 is stored.
GRID, REACH = 33, 1.5
# Test points are drawn and classified in parts, because their preactivations are by far the largest tensors.
_PART = 1000


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    samples: int = shape(400, at_least=4, help="training points n, n/4 in each cluster")
    dim: int = shape(20, at_least=2, help="input dimension d")
    width: int = shape(400, at_least=2, help="neurons m; output weights are fixed, half 1/√m and half −1/√m")
    test_samples: int = shape(6000, at_least=4, help="test points, a quarter of them in each cluster")
    clusters: str = shape(
        "gaussian", choices=("gaussian", "laplace", "uniform"), help="distribution of coordinates around a cluster mean"
    )
    noise_rate: float = knob(
        0.15,
        between=(0, 0.5),
        help="share of each cluster's labels that are flipped, rounded to whole points; fixed before training; test "
        "labels are flipped at the same rate",
    )
    spread: float = knob(1.2, at_least=0, help="exponent s of the clusters' variance σ² = d^(−s) per coordinate")
    init_scale: float = knob(0.1, above=0, help="initial first-layer weights are N(0, init_scale²/(m·d))")
    step_size: float = knob(0.1, above=0, help="learning rate of full-batch gradient descent on the mean logistic loss")


def conflicts(params: Params) -> Iterable[str]:
    for name, count in (("samples", params.samples), ("test_samples", params.test_samples)):
        if count % 4:
            yield f"{name}: {count} points can't be split into four equal clusters; make it a multiple of 4"
    if params.width % 2:
        yield f"width: {params.width} neurons can't be split into two equal halves; make it even"


_AT_T = "at step T = 1 + 1/(4·step_size), rounded up (Theorem 1); absent before"
METRICS = {
    "train_loss": Metric("mean logistic loss on the given training labels"),
    "train_accuracy": Metric("share of all training points classified as labelled"),
    "clean_accuracy": Metric("share of clean training points classified as labelled"),
    "noisy_accuracy": Metric("share of flipped training points classified as labelled, so wrongly", may_be_absent=True),
    "test_accuracy": Metric("accuracy on test labels of which noise_rate are flipped"),
    "clean_test_accuracy": Metric("accuracy on the true test labels"),
    "linear_test_accuracy": Metric("test_accuracy of the least-squares linear classifier of the same training points"),
    "margin": Metric("smallest label·output over the training points"),
    "clean_margin": Metric("smallest label·output over the training points with a clean label"),
    "noisy_margin": Metric("largest label·output over the flipped training points", may_be_absent=True),
    "weight_norm": Metric("Frobenius norm of the first layer's weights"),
    "smallest_neuron_norm": Metric("smallest norm of a neuron's weights, times √m (Lemma 3)"),
    "largest_neuron_norm": Metric("largest norm of a neuron's weights, times √m (Lemmas 3 and 14)"),
    "correlated_share": Metric("share of neurons w with |⟨w, μ₁⟩| ≥ init_scale/(2·C₀·√(m·d)) (Lemma 3)"),
    "mean_correlation": Metric("mean |cosine| between a neuron and the mean of its output sign (μ₁ for +, μ₂ for −)"),
    "captured_share": Metric(f"share of neurons whose |cosine| (see mean_correlation) exceeds {CAPTURED}"),
    "alignment_share": Metric(
        "share of neurons in J_μ that fire on all points of cluster μ and none of −μ (Condition 9)", may_be_absent=True
    ),
    "orthogonality_share": Metric(
        "share of the neurons w in J_μ with |⟨w, other mean⟩| ≤ 3·step_size/√m (Condition 10)", may_be_absent=True
    ),
    "candidate_share": Metric("size of the smallest J_μ, divided by m/4 (Lemma 4)"),
    "smallest_edge": Metric(
        "clean points of μ on which a neuron in J_μ fires, minus those of −μ, divided by n; smallest over all J_μ "
        "(Lemma 6)",
        may_be_absent=True,
    ),
    "subnetwork_clean_margin": Metric("clean_margin of the subnetwork of the neurons in all J_μ (Lemma 11)"),
    "subnetwork_noisy_margin": Metric("noisy_margin of this subnetwork (Lemma 11)", may_be_absent=True),
    "cluster_radius": Metric("largest ‖x − μ‖²/(σ²·d) of training points x of the clusters μ (Lemma 5)"),
    "min_feature_change": Metric(
        "smallest ‖φ(Wx) − φ(W₀x)‖/‖φ(W₀x)‖ (Proposition 2) of points x with φ(W₀x) ≠ 0", may_be_absent=True
    ),
    "mean_feature_change": Metric("the same, mean over these points", may_be_absent=True),
    "interpolation_step": Metric("first step with all training points classified as labelled", may_be_absent=True),
    "early_clean_accuracy": Metric(f"clean_accuracy {_AT_T}", may_be_absent=True),
    "early_noisy_accuracy": Metric(f"noisy_accuracy {_AT_T}", may_be_absent=True),
    "early_test_accuracy": Metric(f"test_accuracy {_AT_T}", may_be_absent=True),
    "early_clean_test_accuracy": Metric(f"clean_test_accuracy {_AT_T}", may_be_absent=True),
    "first_correlation": Metric("cosine of each neuron with μ₁; positive output weights come first", per="neuron"),
    "second_correlation": Metric("cosine of each neuron with μ₂", per="neuron"),
    "plane_output": Metric(
        f"output at u·μ₁ + v·μ₂ on a {GRID}×{GRID} grid, |u|, |v| ≤ {REACH}, v fastest (Figure 1)", per="grid point"
    ),
    "first_coordinate": Metric("⟨x, μ₁⟩ of the training points x, ordered by cluster: μ₁, −μ₁, μ₂, −μ₂", per="point"),
    "second_coordinate": Metric("⟨x, μ₂⟩ of the training points", per="point"),
    "given_label": Metric(
        "training labels after flipping; the true ones are 1 in the first half, then −1", per="point"
    ),
}


@dataclass(frozen=True)
class Points:
    """Labelled inputs. Their preactivations are base + C·kernel, where C are the trained coordinates."""

    kernel: Tensor  # l p n: the inputs, or their inner products with the training inputs
    base: Tensor | None  # l m n: preactivations by W₀, if W = W₀ + C·X; else None
    clean: Tensor  # l n
    given: Tensor  # l n: labels after flipping


@dataclass(frozen=True)
class Data:
    start: Tensor  # l m p: C at step 0
    start_square: Tensor  # l m: squared norms of the neurons in W₀, if W = W₀ + C·X; else 0
    train: Points
    test: tuple[Points, ...]
    means: Points  # of μ₁ and μ₂
    plane: Tensor  # l n 2: inner products of the training points with μ₁ and μ₂
    cluster_radius: Tensor  # l
    linear_test_accuracy: Tensor  # l


def init(lanes: Lanes[Params]) -> State:
    events = [name for name in METRICS if name == "interpolation_step" or name.startswith("early_")]
    return {"c": _data(lanes).start.clone(), **dict.fromkeys(events, lanes.absent())}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    data, m = _data(lanes), lanes.shape.width
    train, labels = data.train, data.train.given
    c, noted = s["c"].clone(), dict(s)
    rate = lanes.column("step_size", 1) / lanes.shape.samples
    output_weights = (torch.arange(m, device=c.device) < m // 2).to(c.dtype)[:, None].mul(2).sub(1) / math.sqrt(m)
    early = _early_step(lanes)
    early_steps = set(early.tolist())
    z = torch.empty(*c.shape[:2], labels.shape[1], dtype=c.dtype, device=c.device)  # l m n, reused by all steps
    for step in range(start, stop + 1):
        hidden = _preactivations(c, train, out=z).relu_()
        f = outputs(hidden)  # l n
        now = (labels * f > 0).all(dim=1) & noted["interpolation_step"].isnan()
        noted["interpolation_step"] = torch.where(now, step, noted["interpolation_step"])
        if step in early_steps:
            for name, value in (_train_accuracies(train, f) | _test_accuracies(data, c)).items():
                if f"early_{name}" in noted:
                    noted[f"early_{name}"] = torch.where(early == step, value.double(), noted[f"early_{name}"])
        if step < stop:
            pull = rate * labels * torch.sigmoid(-labels * f)  # l n
            fires = hidden.sign_()
            if train.base is None:
                c.addcmul_(output_weights, fires @ (pull[:, :, None] * train.kernel.mT))
            else:
                c.addcmul_(output_weights, fires.mul_(pull[:, None]))
    return {**noted, "c": c}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    data, c = _data(lanes), s["c"]
    train = data.train
    z = _preactivations(c, train)  # l m n
    hidden, hidden_at_start = z.relu(), _preactivations(data.start, train).relu()
    at_start = hidden_at_start.norm(dim=1)
    change = torch.where(at_start > 0, (hidden - hidden_at_start).norm(dim=1) / at_start, torch.nan)  # l n
    f = outputs(hidden)
    clean_margin, noisy_margin = margins(train.given, train.clean, f)
    correlations, norm = _correlations(data, c)
    own = of_own_mean(correlations).abs()
    return {
        "train_loss": functional.softplus(-train.given * f).mean(dim=1),
        "margin": (train.given * f).amin(dim=1),
        "clean_margin": clean_margin,
        "noisy_margin": noisy_margin,
        **_train_accuracies(train, f),
        **_test_accuracies(data, c),
        "linear_test_accuracy": data.linear_test_accuracy,
        "weight_norm": norm.norm(dim=1),
        "mean_correlation": own.mean(dim=1),
        "captured_share": (own > CAPTURED).to(c.dtype).mean(dim=1),
        "smallest_neuron_norm": norm.amin(dim=1) * math.sqrt(lanes.shape.width),
        "largest_neuron_norm": norm.amax(dim=1) * math.sqrt(lanes.shape.width),
        "correlated_share": _correlated_share(lanes, data, c),
        **_conditions(lanes, data, c, z),
        "cluster_radius": data.cluster_radius,
        "min_feature_change": change.nan_to_num(nan=torch.inf).amin(dim=1),
        "mean_feature_change": change.nanmean(dim=1),
        "first_correlation": correlations[:, :, 0],
        "second_correlation": correlations[:, :, 1],
        "plane_output": _plane_output(data, c),
        "first_coordinate": data.plane[:, :, 0],
        "second_coordinate": data.plane[:, :, 1],
        "given_label": train.given,
        **{name: value for name, value in s.items() if name != "c"},
    }


def _preactivations(c: Tensor, points: Points, out: Tensor | None = None) -> Tensor:
    if points.base is None:
        return torch.bmm(c, points.kernel, out=out)
    return torch.baddbmm(points.base, c, points.kernel, out=out)


def _plane_output(data: Data, c: Tensor) -> Tensor:
    """The output on a grid in the plane of the means. Its sign gives the decision boundary; (l, GRID²)."""
    place = torch.linspace(-REACH, REACH, GRID, dtype=c.dtype, device=c.device)
    return outputs((_preactivations(c, data.means) @ torch.cartesian_prod(place, place).mT).relu_())


def _early_step(lanes: Lanes[Params]) -> Tensor:
    """T of Theorem 1, rounded up; (l,)."""
    # A step size such as 0.05 is not exact in floating point: 5.0000001 steps count as 5.
    return 1 + (1 / (4 * lanes["step_size"].double()) * (1 - 1e-6)).ceil()


def _train_accuracies(train: Points, f: Tensor) -> dict[str, Tensor]:
    right = (train.given * f > 0).to(f.dtype)
    noisy = (train.given != train.clean).to(f.dtype)
    return {
        "train_accuracy": right.mean(dim=1),
        "clean_accuracy": (right * (1 - noisy)).sum(dim=1) / (1 - noisy).sum(dim=1),
        "noisy_accuracy": (right * noisy).sum(dim=1) / noisy.sum(dim=1),
    }


def _test_accuracies(data: Data, c: Tensor) -> dict[str, Tensor]:
    found = [outputs(_preactivations(c, part).relu_()) for part in data.test]
    right = torch.cat([part.given * f > 0 for part, f in zip(data.test, found, strict=True)], dim=1)
    clean_right = torch.cat([part.clean * f > 0 for part, f in zip(data.test, found, strict=True)], dim=1)
    return {"test_accuracy": right.to(c.dtype).mean(dim=1), "clean_test_accuracy": clean_right.to(c.dtype).mean(dim=1)}


def _linear_test_accuracy(train: Points, test: Iterable[Points]) -> Tensor:
    fit = torch.linalg.lstsq(train.kernel.mT, train.given[:, :, None]).solution  # l p 1
    right = torch.cat([part.given * (fit.mT @ part.kernel)[:, 0] > 0 for part in test], dim=1)
    return right.to(fit.dtype).mean(dim=1)


def _correlations(data: Data, c: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of the neurons with μ₁ and μ₂, (l, m, 2), and the neurons' norms, (l, m)."""
    moved = c if data.train.base is None else 2 * data.train.base + c @ data.train.kernel
    norm = (data.start_square + (c * moved).sum(dim=2)).sqrt()
    return _preactivations(c, data.means) / norm[:, :, None], norm


def _correlated_share(lanes: Lanes[Params], data: Data, c: Tensor) -> Tensor:
    least = lanes.column("init_scale", 1) / (2 * C0 * math.sqrt(lanes.shape.width * lanes.shape.dim))
    return (_preactivations(c, data.means)[:, :, 0].abs() >= least).to(c.dtype).mean(dim=1)


def _conditions(lanes: Lanes[Params], data: Data, c: Tensor, z: Tensor) -> dict[str, Tensor]:
    start = of_own_mean(_correlations(data, data.start)[0])
    other = of_own_mean(_preactivations(c, data.means).flip(2)).abs() * math.sqrt(lanes.shape.width)
    nearly_orthogonal = other <= 3 * lanes.column("step_size", 1)
    return conditions(z, start * math.sqrt(lanes.shape.dim), nearly_orthogonal, data.train.given, data.train.clean)


def _data(lanes: Lanes[Params]) -> Data:
    return lanes.once("data", lambda: _make_data(lanes, on_gram=lanes.shape.dim >= lanes.shape.samples))


def _make_data(lanes: Lanes[Params], on_gram: bool) -> Data:
    p = lanes.shape
    w = lanes.normal("w", p.width, p.dim) * lanes.column("init_scale") / math.sqrt(p.width * p.dim)
    x = _inputs(lanes, "train", p.samples, range(p.samples))
    means = torch.eye(2, p.dim, dtype=x.dtype, device=x.device).expand(len(lanes), 2, p.dim)
    around = x.clone()
    around[:, :, :2] -= _cluster_means(x, p.samples, range(p.samples))
    labels, test_labels = _labels(lanes, p.samples), _labels(lanes, p.test_samples)

    def points(inputs: Tensor, clean: Tensor, given: Tensor) -> Points:
        if on_gram:
            return Points(x @ inputs.mT, w @ inputs.mT, clean, given)
        return Points(inputs.mT, None, clean, given)

    train, test = points(x, *labels), []
    for first in range(0, p.test_samples, _PART):
        part = range(p.test_samples)[first : first + _PART]
        inputs = _inputs(lanes, "test", p.test_samples, part)
        test.append(points(inputs, *(kind[:, first : part.stop] for kind in test_labels)))
    return Data(
        start=torch.zeros(len(lanes), p.width, p.samples, dtype=x.dtype, device=x.device) if on_gram else w,
        start_square=w.square().sum(dim=2) if on_gram else torch.zeros_like(w[:, :, 0]),
        train=train,
        test=tuple(test),
        means=points(means, means[:, :, 0], means[:, :, 0]),
        plane=x[:, :, :2],
        cluster_radius=around.square().sum(dim=2).amax(dim=1) / p.dim ** (1 - lanes["spread"]),
        linear_test_accuracy=_linear_test_accuracy(train, test),
    )


def _inputs(lanes: Lanes[Params], name: str, count: int, which: range) -> Tensor:
    """The points with the indices `which` of `count` points, ordered by cluster: μ₁, -μ₁, μ₂, -μ₂; (l, which, d)."""
    d = lanes.shape.dim
    if lanes.shape.clusters == "gaussian":
        z = lanes.normal(name, d, steps=which)
    elif lanes.shape.clusters == "laplace":
        z = lanes.sign(f"{name}.sign", d, steps=which) * lanes.uniform(name, d, steps=which).log() / math.sqrt(2)
    else:
        z = (2 * lanes.uniform(name, d, steps=which) - 1) * math.sqrt(3)
    x = z * d ** (-lanes.column("spread") / 2)
    x[:, :, :2] += _cluster_means(x, count, which)
    return x


def _cluster_means(like: Tensor, count: int, which: range) -> Tensor:
    """The first two coordinates of these points' cluster means; (which, 2)."""
    cluster = torch.arange(which.start, which.stop, device=like.device) * 4 // count
    return torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]], dtype=like.dtype, device=like.device)[cluster]


def _labels(lanes: Lanes[Params], count: int) -> tuple[Tensor, Tensor]:
    """Labels before and after flipping; (l, count) each."""
    place = torch.arange(count, device=lanes.device)
    clean = torch.where(place < count // 2, 1, -1).to(lanes.dtype).expand(len(lanes), -1)
    flips = (lanes["noise_rate"] * (count // 4)).round()
    return clean, torch.where(place % (count // 4) < flips[:, None], -clean, clean)


_SMALL = {"samples": 24, "dim": 6, "width": 8, "test_samples": 40}
task = Task("xor_clusters", Params, METRICS, init, advance, measure, conflicts=conflicts, small=_SMALL)
