"""XOR clusters: gradient descent amplifies random features until the net sees the clusters and ignores noisy labels.

Frei, Chatterji, Bartlett. Clusters at ±μ₁ (label +1) and ±μ₂ (label -1), a share of each cluster's labels flipped. Two
layers, only the first trains, by full-batch gradient descent on the logistic loss; output weights are ±1/√m. At step
T = 1 + 1/(4·step_size) every clean point is right and every flipped point is wrong (Theorem 1).

Readings: the means are the first two unit vectors, as nothing here knows directions. T is rounded up. J_μ (Lemma 4)
are the neurons with output sign of μ's label and initial correlation above 1/(3·C₀·√d), with C₀ = 10 where the proof
has an astronomical constant. As the points of a cluster are alike, the first ones of each are the flipped ones.

Where there are no more points than dimensions, weights are trained as W = W₀ + C·X, by the n × n products of the points,
else directly: it is the same iteration on the smaller matrix.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tasks.lanes import Lanes
from tasks.parameters import knob, shape
from tasks.task import Metric, State, Task
from tasks.training import Training

CAPTURED = 0.5
_C0 = 10.0
# Test points are made and classified in parts: their preactivations are by far the largest tensors.
_PART = 1000


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    samples: int = shape(400, at_least=4, help="training points n, a quarter in each cluster")
    dim: int = shape(20, at_least=2, help="input dimension d")
    width: int = shape(400, at_least=2, help="neurons m, half with output weight 1/√m and half with -1/√m")
    test_samples: int = shape(6000, at_least=4, help="test points, a quarter in each cluster")
    clusters: str = shape(
        "gaussian", choices=("gaussian", "laplace", "uniform"), help="distribution of the coordinates around a mean"
    )
    noise_rate: float = knob(0.15, between=(0, 0.5), help="share of labels flipped in each cluster, rounded to points")
    spread: float = knob(1.2, at_least=0, help="variance of each coordinate is d^(-spread)")
    init_scale: float = knob(0.1, above=0, help="initial weights are N(0, scale²/(m·d))")
    step_size: float = knob(0.1, above=0, help="learning rate of full-batch gradient descent")


def conflicts(params: Params) -> Iterable[str]:
    for name, count in (("samples", params.samples), ("test_samples", params.test_samples)):
        if count % 4:
            yield f"{name}: {count} points can't be split into four equal clusters; make it a multiple of 4"
    if params.width % 2:
        yield f"width: {params.width} neurons can't be split into two equal halves; make it even"


_AT_T = "at step T = 1 + 1/(4·step_size), rounded up; absent before"
METRICS = {
    "train_loss": Metric("mean logistic loss on the training labels"),
    "train_accuracy": Metric("share of training points classified as labelled"),
    "clean_accuracy": Metric("share of clean training points classified as labelled"),
    "noisy_accuracy": Metric("share of flipped training points classified as labelled", may_be_absent=True),
    "test_accuracy": Metric("accuracy on test labels, flipped at the same rate"),
    "clean_test_accuracy": Metric("accuracy on test labels before flipping"),
    "linear_test_accuracy": Metric("test_accuracy of the least-squares linear classifier of the same training data"),
    "margin": Metric("smallest label times output over the training points"),
    "clean_margin": Metric("smallest label times output over the clean training points"),
    "weight_norm": Metric("Frobenius norm of the first layer"),
    "mean_correlation": Metric("mean |cosine| of a neuron with the mean of its output sign (μ₁ for +, μ₂ for -)"),
    "captured_share": Metric(f"share of neurons for which that |cosine| exceeds {CAPTURED}"),
    "alignment_share": Metric(
        "share of J_μ neurons that fire on all of cluster μ and on none of -μ (Condition 9)", may_be_absent=True
    ),
    "orthogonality_share": Metric(
        "share of J_μ neurons w with |⟨w, other mean⟩| ≤ 3·step_size/√m (Condition 10)", may_be_absent=True
    ),
    "min_feature_change": Metric("‖φ(Wx) - φ(W₀x)‖/‖φ(W₀x)‖, smallest over training points (Proposition 2)"),
    "mean_feature_change": Metric("the same, mean over training points"),
    "interpolation_step": Metric("first step at which all training points are right", may_be_absent=True),
    "early_clean_accuracy": Metric(f"clean_accuracy {_AT_T}", may_be_absent=True),
    "early_noisy_accuracy": Metric(f"noisy_accuracy {_AT_T}", may_be_absent=True),
    "early_test_accuracy": Metric(f"test_accuracy {_AT_T}", may_be_absent=True),
    "early_clean_test_accuracy": Metric(f"clean_test_accuracy {_AT_T}", may_be_absent=True),
    "first_correlation": Metric("cosine of each neuron with μ₁; output weights are + in the first half", per="neuron"),
    "second_correlation": Metric("cosine of each neuron with μ₂", per="neuron"),
}


@dataclass(frozen=True)
class Points:
    """Labelled inputs as the trained coordinates C see them: their preactivations are base + C·kernel."""

    kernel: Tensor  # l p n: the inputs themselves, or their products with the training inputs
    base: Tensor | None  # l m n: preactivations by W₀, where C leaves W₀ out
    clean: Tensor  # l n
    given: Tensor  # l n: labels after flipping


@dataclass(frozen=True)
class Data:
    start: Tensor  # l m p: C at step 0
    start_square: Tensor  # l m: squared norms of what C leaves out of the weights
    train: Points
    test: Points
    means: Points  # of μ₁ and μ₂


def init(lanes: Lanes[Params]) -> State:
    never = torch.full((len(lanes),), torch.nan, dtype=torch.float64, device=lanes.device)
    events = ["interpolation_step", *(name for name in METRICS if name.startswith("early_"))]
    return {"c": _data(lanes).start.clone(), **dict.fromkeys(events, never)}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    data = _data(lanes)
    train, labels = data.train, data.train.given
    c, noted = s["c"].clone(), dict(s)
    early = _early_step(lanes)
    early_steps = set(early.tolist())
    rate = lanes.column("step_size", 1) / lanes.shape.samples
    output_weight = _output_weights(lanes)[:, None]
    hidden = torch.empty(*c.shape[:2], labels.shape[1], dtype=c.dtype, device=c.device)  # l m n, for all steps
    for step in range(start, stop + 1):
        f = _outputs(lanes, _hidden(c, train, out=hidden))  # l n
        now = (labels * f > 0).all(dim=1) & noted["interpolation_step"].isnan()
        noted["interpolation_step"] = torch.where(now, step, noted["interpolation_step"])
        if step in early_steps:
            for name, value in (_train_accuracies(train, f) | _test_accuracies(lanes, data, c)).items():
                if f"early_{name}" in noted:
                    noted[f"early_{name}"] = torch.where(early == step, value.double(), noted[f"early_{name}"])
        if step == stop:
            break
        pull = rate * labels * torch.sigmoid(-labels * f)  # l n
        fires = hidden.sign_()
        if train.base is None:
            c.addcmul_(output_weight, fires @ (pull[:, :, None] * train.kernel.mT))
        else:
            c.addcmul_(output_weight, fires.mul_(pull[:, None]))
    return {**noted, "c": c}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    data, c = _data(lanes), s["c"]
    train = data.train
    hidden = _hidden(c, train)
    f = _outputs(lanes, hidden)
    margins = train.given * f
    at_start = _hidden(data.start, train)
    change = (hidden - at_start).norm(dim=1) / at_start.norm(dim=1)  # l n
    clean = train.given == train.clean
    correlations, norm = _correlations(data, c)
    own = _of_own_sign(correlations).abs()
    return {
        "train_loss": functional.softplus(-margins).mean(dim=1),
        "margin": margins.amin(dim=1),
        "clean_margin": torch.where(clean, margins, torch.inf).amin(dim=1),
        **_train_accuracies(train, f),
        **_test_accuracies(lanes, data, c),
        "linear_test_accuracy": lanes.once("linear", lambda: _linear_test_accuracy(data)),
        "weight_norm": norm.norm(dim=1),
        "mean_correlation": own.mean(dim=1),
        "captured_share": (own > CAPTURED).to(c.dtype).mean(dim=1),
        **_conditions(lanes, data, c),
        "min_feature_change": change.amin(dim=1),
        "mean_feature_change": change.mean(dim=1),
        "first_correlation": correlations[:, :, 0],
        "second_correlation": correlations[:, :, 1],
        **{name: value for name, value in s.items() if name != "c"},
    }


def _hidden(c: Tensor, points: Points, out: Tensor | None = None) -> Tensor:
    """What the neurons give for the points; (l, m, n)."""
    if points.base is None:
        return torch.bmm(c, points.kernel, out=out).relu_()
    return torch.baddbmm(points.base, c, points.kernel, out=out).relu_()


def _outputs(lanes: Lanes[Params], hidden: Tensor) -> Tensor:
    return _output_weights(lanes) @ hidden


def _output_weights(lanes: Lanes[Params]) -> Tensor:
    m = lanes.shape.width
    sign = torch.ones(m, dtype=lanes.dtype, device=lanes.device)
    sign[m // 2 :] = -1
    return sign / math.sqrt(m)


def _early_step(lanes: Lanes[Params]) -> Tensor:
    """T of Theorem 1, rounded up; (l,)."""
    # A step size such as 0.05 is not exact in floating point: 5.0000001 steps are 5.
    return 1 + (1 / (4 * lanes["step_size"].double()) * (1 - 1e-6)).ceil()


def _train_accuracies(train: Points, f: Tensor) -> dict[str, Tensor]:
    right = (train.given * f > 0).to(f.dtype)
    noisy = (train.given != train.clean).to(f.dtype)
    return {
        "train_accuracy": right.mean(dim=1),
        "clean_accuracy": (right * (1 - noisy)).sum(dim=1) / (1 - noisy).sum(dim=1),
        "noisy_accuracy": (right * noisy).sum(dim=1) / noisy.sum(dim=1),
    }


def _test_accuracies(lanes: Lanes[Params], data: Data, c: Tensor) -> dict[str, Tensor]:
    parts = [_outputs(lanes, _hidden(c, part)) for part in _parts(data.test)]
    f = torch.cat(parts, dim=1)
    # A net that is nowhere finite classifies nothing: its accuracy must not look like a measurement.
    unknown = f.isnan().any(dim=1)
    return {
        name: torch.where(unknown, torch.nan, (labels * f > 0).to(f.dtype).mean(dim=1))
        for name, labels in (("test_accuracy", data.test.given), ("clean_test_accuracy", data.test.clean))
    }


def _linear_test_accuracy(data: Data) -> Tensor:
    fit: Tensor = torch.linalg.lstsq(data.train.kernel.mT, data.train.given[:, :, None]).solution  # l p 1
    f = (fit.mT @ data.test.kernel)[:, 0]
    return (data.test.given * f > 0).to(f.dtype).mean(dim=1)


def _correlations(data: Data, c: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines of the neurons with μ₁ and μ₂, (l, m, 2), and the neurons' norms, (l, m)."""
    base, kernel = data.train.base, data.train.kernel
    moved = c if base is None else 2 * base + c @ kernel
    norm = (data.start_square + (c * moved).sum(dim=2)).sqrt()
    return _products(c, data.means) / norm[:, :, None], norm


def _products(c: Tensor, points: Points) -> Tensor:
    products = c @ points.kernel
    return products if points.base is None else products + points.base


def _of_own_sign(values: Tensor) -> Tensor:
    """Of each neuron's values for μ₁ and μ₂ (l m 2), the one for the mean whose label is its output sign; (l, m)."""
    positive, negative = values.chunk(2, dim=1)
    return torch.cat([positive[:, :, 0], negative[:, :, 1]], dim=1)


def _conditions(lanes: Lanes[Params], data: Data, c: Tensor) -> dict[str, Tensor]:
    p = lanes.shape
    start = _of_own_sign(_correlations(data, data.start)[0])
    chosen = start.abs() > 1 / (3 * _C0 * math.sqrt(p.dim))  # the union of all J_μ
    z = _products(c, data.train).view(len(lanes), p.width, 2, 2, -1)  # l m mean sign point
    low, high = z.amin(dim=4), z.amax(dim=4)
    fires = [_of_own_sign(low[..., sign] > 0) & _of_own_sign(high[..., 1 - sign] <= 0) for sign in (0, 1)]
    aligned = torch.where(start > 0, fires[0], fires[1])
    other = _of_own_sign(_products(c, data.means).flip(2))
    orthogonal = other.abs() <= 3 * lanes.column("step_size", 1) / math.sqrt(p.width)
    return {
        "alignment_share": (aligned & chosen).sum(dim=1) / chosen.sum(dim=1),
        "orthogonality_share": (orthogonal & chosen).sum(dim=1) / chosen.sum(dim=1),
    }


def _data(lanes: Lanes[Params]) -> Data:
    made: Data = lanes.once("data", lambda: _made(lanes, on_gram=lanes.shape.dim >= lanes.shape.samples))
    return made


def _made(lanes: Lanes[Params], on_gram: bool) -> Data:
    p = lanes.shape
    w = lanes.normal("w", p.width, p.dim) * lanes.column("init_scale") / math.sqrt(p.width * p.dim)
    x = _inputs(lanes, "train", p.samples, range(p.samples))
    means = torch.eye(2, p.dim, dtype=lanes.dtype, device=lanes.device).expand(len(lanes), 2, p.dim)

    def points(inputs: Iterable[Tensor], labels: tuple[Tensor, Tensor]) -> Points:
        if not on_gram:
            return Points(torch.cat(list(inputs), dim=1).mT, None, *labels)
        kernels, bases = zip(*((x @ part.mT, w @ part.mT) for part in inputs), strict=True)
        return Points(torch.cat(kernels, dim=2), torch.cat(bases, dim=2), *labels)

    tests = (
        _inputs(lanes, "test", p.test_samples, range(first, min(first + _PART, p.test_samples)))
        for first in range(0, p.test_samples, _PART)
    )
    return Data(
        start=torch.zeros_like(w[:, :, :1]).expand(-1, -1, p.samples).contiguous() if on_gram else w,
        start_square=w.square().sum(dim=2) if on_gram else torch.zeros_like(w[:, :, 0]),
        train=points([x], _labels(lanes, p.samples)),
        test=points(tests, _labels(lanes, p.test_samples)),
        means=points([means], (means[:, :, 0], means[:, :, 0])),
    )


def _inputs(lanes: Lanes[Params], name: str, count: int, which: range) -> Tensor:
    """These of `count` points, which lie cluster by cluster: μ₁, -μ₁, μ₂, -μ₂; (l, which, d)."""
    d = lanes.shape.dim
    if lanes.shape.clusters == "gaussian":
        z = lanes.normal(name, d, steps=which)
    elif lanes.shape.clusters == "laplace":
        z = lanes.sign(f"{name}.sign", d, steps=which) * -lanes.uniform(name, d, steps=which).log() / math.sqrt(2)
    else:
        z = (2 * lanes.uniform(name, d, steps=which) - 1) * math.sqrt(3)
    x = z * d ** (-lanes.column("spread") / 2)
    cluster = torch.arange(which.start, which.stop, device=lanes.device) * 4 // count
    x[:, :, :2] += torch.tensor([[1, 0], [-1, 0], [0, 1], [0, -1]], dtype=x.dtype, device=x.device)[cluster]
    return x


def _labels(lanes: Lanes[Params], count: int) -> tuple[Tensor, Tensor]:
    """Labels before and after flipping; (l, count) each."""
    place = torch.arange(count, device=lanes.device)
    clean = torch.where(place < count // 2, 1, -1).to(lanes.dtype).expand(len(lanes), -1)
    flips = (lanes["noise_rate"] * (count // 4)).round()
    return clean, torch.where(place % (count // 4) < flips[:, None], -clean, clean)


def _parts(points: Points) -> Iterable[Points]:
    for first in range(0, points.clean.shape[1], _PART):
        at = slice(first, first + _PART)
        base = None if points.base is None else points.base[:, :, at]
        yield Points(points.kernel[:, :, at], base, points.clean[:, at], points.given[:, at])


task = Task(
    name="xor_clusters",
    version=1,
    params=Params,
    metrics=METRICS,
    init=init,
    advance=advance,
    measure=measure,
    conflicts=conflicts,
)
