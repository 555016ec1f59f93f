"""Corrupted labels, refined by the network that trains on them with its outputs on other crops (Theorem 2).

Zhou, Xiong, Yuan, Hoi, the setting of Theorem 2. There are K samples c on the unit sphere, of several classes whose
labels are δ apart. Each sample has crops within ε of it; a share ρ of them has the label of another class.
f(x) = vᵀφ(Wx) has one hidden layer. Only W is trained, by gradient descent on ½Σ(ỹ − f(x))². The refined label is
ỹ = (1 − α_t)·y + α_t·f(x̃), where x̃ is a positive of x: another crop of its sample. With small ρ and ε, all refined
labels are nearest to the true label, and so is f on unseen crops. α = 0 trains on the given labels; with the same seed,
data and initial weights are the same.

Readings: the theorem only requires a positive to lie within ε of the sample. Here it is another training crop, drawn at
every step (`other`), a new crop, drawn at every step (`fresh`) or once (`fixed`), the sample itself (`centre`), or x
(`same`), which is gradient descent on the given labels with a step size 1 - α times as large. In the end the network
memorizes the given labels; `other` prevents it best. `centre` diverges if ε is large (0.6): f is larger there than on
the crops around it and reinforces itself. Labels are equally spaced around 0. Samples are uniform on the sphere, at
least 2ε apart as Definition 1 requires: a sample that is too close to an earlier one is drawn again (`separated`).
Crops are uniform in a ball of the tangent space. ρ is rounded down to whole crops of each sample.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.self_labeling import samples
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import Training

# A draw has a fixed cost per call, so positives are drawn for this many steps at once.
_DRAWN = 16


@dataclass(frozen=True, kw_only=True)
class Params(Training):
    steps: int = shape(3000, at_least=1, help="steps of full-batch gradient descent, on all crops")
    samples: int = shape(10, at_least=2, help="samples K on the sphere; the class of sample i is i modulo classes")
    classes: int = shape(2, at_least=2, help="number of classes")
    crops: int = shape(20, at_least=1, help="training crops per sample, n/K")
    test_crops: int = shape(20, at_least=1, help="test crops per sample")
    dim: int = shape(20, at_least=2, help="input dimension d")
    width: int = shape(200, at_least=2, help="neurons k; output weights are fixed, half 1/√k and half −1/√k")
    activation: str = shape("softplus", choices=("softplus", "sigmoid", "tanh"), help="hidden layer's activation φ")
    positive: str = shape(
        "other",
        choices=("other", "fresh", "fixed", "centre", "same"),
        help="positive x̃: another training crop of the sample (drawn at every step), a new crop at every step, a new "
        "crop drawn once, the sample itself, or x",
    )
    centres: str = shape(
        "separated",
        choices=("separated", "independent"),
        help="samples on the sphere: at least 2ε apart (Definition 1), or independent of each other",
        earlier="independent",
    )
    corruption: float = knob(
        0.2,
        between=(0, 1),
        help="ρ: share of each sample's training crops, rounded down, that get the label of another class, drawn "
        "uniformly; fixed before training",
    )
    radius: float = knob(0.3, between=(0, 1), help="ε: largest distance of a crop from its sample")
    separation: float = knob(1.0, above=0, at_most=2, help="δ: distance between the labels of neighbouring classes")
    alpha: float = knob(0.8, between=(0, 1), help="α: weight of f(x̃) in the refined label; 0: train on given labels")
    alpha_start: float = knob(0.0, between=(0, 1), help="α at step 0, if alpha_steps is not 0")
    alpha_steps: int = knob(0, at_least=0, help="steps of a linear change of α from alpha_start to alpha; 0: no change")
    init_scale: float = knob(1.0, above=0, help="standard deviation of the initial first-layer weights")
    step_size: float = knob(
        0.3, above=0, help="η·n/K, η: learning rate of gradient descent on ½Σ(ỹ − f)²; in theory at most 1/(2·‖C‖²)"
    )


def conflicts(params: Params) -> Iterable[str]:
    if params.width % 2:
        yield f"width: {params.width} neurons can't be split into two equal halves; make it even"
    if params.classes > params.samples:
        yield f"classes: {params.classes} classes need as many samples, not {params.samples}"
    if (params.classes - 1) * params.separation > 2:
        text = f"{params.classes} labels {params.separation:g} apart don't fit into [-1, 1]"
        yield f"separation: {text}; make it at most {2 / (params.classes - 1):g}"
    if params.positive == "other" and params.crops < 2:
        yield "crops: a single crop has no other; make it at least 2"
    if params.centres == "separated" and not samples.has_room(params.samples, params.dim, params.radius):
        text = f"{params.samples} samples on a sphere in {params.dim} dimensions have no room to be 2ε"
        yield f"radius: {text} = {2 * params.radius:g} apart; make it smaller, or centres independent"


METRICS = {
    "label_error": Metric("‖ỹ − y*‖/√n: distance of the refined labels from the true labels"),
    "given_label_error": Metric("‖y − y*‖/√n: distance of the given labels from the true labels"),
    "recovered_share": Metric("share of refined labels that are nearest to the label of the true class"),
    "wrong_recovered_share": Metric("the same among the crops with a wrong label", may_be_absent=True),
    "recovery_step": Metric("first step at which recovered_share is 1", may_be_absent=True),
    "train_loss": Metric("mean of ½(ỹ − f)² over the training crops"),
    "train_error": Metric("‖f − y*‖/√n on the training crops: distance of the outputs from the true labels"),
    "largest_train_error": Metric("largest |f − y*| on the training crops"),
    "train_accuracy": Metric("share of training crops on which f is nearest to the true label"),
    "memorized_share": Metric("share of crops with a wrong label on which f is nearest to it", may_be_absent=True),
    "test_error": Metric("‖f − y*‖/√n on the test crops"),
    "largest_test_error": Metric("largest |f − y*| on the test crops"),
    "test_accuracy": Metric("share of test crops on which f is nearest to the true label"),
    "weight_distance": Metric("Frobenius distance of W from its initial value"),
    "smallest_eigenvalue": Metric("λ(C) of Assumption 2, with the mean over initial neurons as the expectation"),
    "centre_distance": Metric("smallest distance between two samples"),
    "centre_norm": Metric("‖C‖: largest singular value of the matrix of samples"),
    "true_label": Metric("true label y* of each training crop", per="crop"),
    "given_label": Metric("given label y of each training crop", per="crop"),
    "refined_label": Metric("refined label ỹ of each training crop", per="crop"),
    "output": Metric("output f on each training crop", per="crop"),
}


@dataclass(frozen=True)
class Data:
    start: Tensor  # l k d: W at step 0
    centres: Tensor  # l K d
    x: Tensor  # l n d: crops, sample by sample
    test_x: Tensor  # l n' d
    fixed: Tensor | None  # l n d: positives, if they are the same at all steps
    truth: Tensor  # l n: true class
    test_truth: Tensor  # l n'
    given: Tensor  # l n: given class
    smallest_eigenvalue: Tensor  # l


def init(lanes: Lanes[Params]) -> State:
    step = torch.zeros(len(lanes), dtype=torch.int64, device=lanes.device)
    return {"w": _data(lanes).start.clone(), "step": step, "recovery_step": lanes.absent()}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    data, w, recovery_step = _data(lanes), s["w"].clone(), s["recovery_step"]
    given = _label(lanes, data.given)
    rate = lanes.column("step_size", 1) / lanes.shape.crops
    for first in range(start, stop, _DRAWN):
        steps = range(first, min(stop, first + _DRAWN))
        for step, others in zip(steps, _others(lanes, steps), strict=True):
            z = torch.bmm(w, data.x.mT)  # l k n
            hidden = _activated(lanes, z)
            f = _outputs(hidden)
            refined = _refined(lanes, data, given, w, f, others, step)
            now = (_nearest(lanes, refined) == data.truth).all(dim=1) & recovery_step.isnan()
            recovery_step = torch.where(now, step, recovery_step)
            pull = rate * (refined - f)  # l n
            w += _output_weights(lanes) * torch.bmm(_slope(lanes, z, hidden), pull[:, :, None] * data.x)
    return {"w": w, "step": torch.full_like(s["step"], stop), "recovery_step": recovery_step}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    data, w, step = _data(lanes), s["w"], int(s["step"][0])
    f, test_f = _predicted(lanes, w, data.x), _predicted(lanes, w, data.test_x)
    truth, given = _label(lanes, data.truth), _label(lanes, data.given)
    error, test_error = f - truth, test_f - _label(lanes, data.test_truth)
    refined = _refined(lanes, data, given, w, f, _others(lanes, range(step, step + 1))[0], step)
    recovered, wrong = _nearest(lanes, refined) == data.truth, data.given != data.truth
    return {
        "label_error": _root_mean_square(refined - truth),
        "given_label_error": _root_mean_square(given - truth),
        "recovered_share": recovered.to(w.dtype).mean(dim=1),
        "wrong_recovered_share": _share_of(recovered, wrong),
        "recovery_step": torch.where(recovered.all(dim=1) & s["recovery_step"].isnan(), step, s["recovery_step"]),
        "train_loss": (refined - f).square().mean(dim=1) / 2,
        "train_error": _root_mean_square(error),
        "largest_train_error": error.abs().amax(dim=1),
        "train_accuracy": (_nearest(lanes, f) == data.truth).to(w.dtype).mean(dim=1),
        "memorized_share": _share_of(_nearest(lanes, f) == data.given, wrong),
        "test_error": _root_mean_square(test_error),
        "largest_test_error": test_error.abs().amax(dim=1),
        "test_accuracy": (_nearest(lanes, test_f) == data.test_truth).to(w.dtype).mean(dim=1),
        "weight_distance": (w - data.start).norm(dim=(1, 2)),
        "smallest_eigenvalue": data.smallest_eigenvalue,
        "centre_distance": samples.least_distance(data.centres),
        "centre_norm": torch.linalg.matrix_norm(data.centres, ord=2),
        "true_label": truth,
        "given_label": given,
        "refined_label": refined,
        "output": f,
    }


def _refined(lanes: Lanes[Params], data: Data, given: Tensor, w: Tensor, f: Tensor, other: Tensor, step: int) -> Tensor:
    """Refined labels ỹ of the training crops at this step; f (l n) are the network's outputs on them; (l, n)."""
    positive, crops = lanes.shape.positive, lanes.shape.crops
    if positive == "other":
        predicted = f.gather(1, other)
    elif positive == "fresh":
        predicted = _predicted(lanes, w, samples.crops(lanes, data.centres, "positive", crops, step))
    elif positive == "fixed":
        assert data.fixed is not None
        predicted = _predicted(lanes, w, data.fixed)
    elif positive == "centre":
        predicted = _predicted(lanes, w, data.centres).repeat_interleave(crops, dim=1)
    else:
        predicted = f
    ramp = lanes["alpha_steps"].to(lanes.dtype)
    done = torch.where(ramp > 0, step / ramp, 1).clamp(max=1)
    weight = torch.lerp(lanes["alpha_start"], lanes["alpha"], done)[:, None]
    return torch.lerp(given, predicted, weight)


def _others(lanes: Lanes[Params], steps: range) -> Tensor:
    """For each step and crop, the index of another crop of the same sample; (steps, l, n)."""
    p = lanes.shape
    place = torch.arange(p.samples * p.crops, device=lanes.device)
    if p.positive != "other":
        return place.expand(len(steps), len(lanes), -1)
    further = 1 + lanes.integers("other", p.crops - 1, len(place), steps=steps).transpose(0, 1)
    return place - place % p.crops + (place + further) % p.crops


def _predicted(lanes: Lanes[Params], w: Tensor, x: Tensor) -> Tensor:
    """f on inputs (l, n, d); (l, n)."""
    return _outputs(_activated(lanes, torch.bmm(w, x.mT)))


def _activated(lanes: Lanes[Params], z: Tensor) -> Tensor:
    if lanes.shape.activation == "softplus":
        return functional.softplus(z)
    return z.sigmoid() if lanes.shape.activation == "sigmoid" else z.tanh()


def _slope(lanes: Lanes[Params], z: Tensor, hidden: Tensor) -> Tensor:
    """The derivative of the activation at z; `hidden` is the activation at z."""
    if lanes.shape.activation == "softplus":
        return z.sigmoid()
    return hidden * (1 - hidden) if lanes.shape.activation == "sigmoid" else 1 - hidden.square()


def _outputs(hidden: Tensor) -> Tensor:
    positive, negative = hidden.chunk(2, dim=1)
    return (positive.sum(dim=1) - negative.sum(dim=1)) / math.sqrt(hidden.shape[1])


def _output_weights(lanes: Lanes[Params]) -> Tensor:
    k = lanes.shape.width
    return torch.where(torch.arange(k, device=lanes.device) < k // 2, 1.0, -1.0).to(lanes.dtype)[:, None] / math.sqrt(k)


def _label(lanes: Lanes[Params], classes: Tensor) -> Tensor:
    """Labels γ of classes (l, n)."""
    return lanes.column("separation", 1) * (classes - (lanes.shape.classes - 1) / 2)


def _nearest(lanes: Lanes[Params], label: Tensor) -> Tensor:
    """The class whose label is nearest; (l, n)."""
    place = label / lanes.column("separation", 1) + (lanes.shape.classes - 1) / 2
    return place.round().clamp(0, lanes.shape.classes - 1)


def _root_mean_square(values: Tensor) -> Tensor:
    return values.square().mean(dim=1).sqrt()


def _share_of(right: Tensor, among: Tensor) -> Tensor:
    return (right & among).double().sum(dim=1) / among.double().sum(dim=1)


@once
def _data(lanes: Lanes[Params]) -> Data:
    p = lanes.shape
    start = lanes.normal("w", p.width, p.dim) * lanes.column("init_scale")
    centres = samples.centres(lanes)
    z = torch.bmm(start, centres.mT)  # l k K
    slopes = _slope(lanes, z, _activated(lanes, z))
    covariance = torch.bmm(centres, centres.mT) * torch.bmm(slopes.mT, slopes) / p.width
    classes = torch.arange(p.samples, device=lanes.device) % p.classes
    truth = classes.repeat_interleave(p.crops).expand(len(lanes), -1)
    # Crops are exchangeable, so the first ones of each sample have the wrong labels. The small number makes 0.3 of 10
    # equal 3 in any precision.
    wrong = torch.arange(p.crops, device=lanes.device) < (lanes["corruption"] * p.crops + 1e-4).floor()[:, None]
    shift = 1 + lanes.integers("wrong", p.classes - 1, p.samples * p.crops)
    return Data(
        start=start,
        centres=centres,
        x=samples.crops(lanes, centres, "train", p.crops),
        test_x=samples.crops(lanes, centres, "test", p.test_crops),
        fixed=samples.crops(lanes, centres, "positive", p.crops) if p.positive == "fixed" else None,
        truth=truth,
        test_truth=classes.repeat_interleave(p.test_crops).expand(len(lanes), -1),
        given=torch.where(wrong.repeat(1, p.samples), (truth + shift) % p.classes, truth),
        smallest_eigenvalue=_smallest_eigenvalue(covariance),
    )


def _smallest_eigenvalue(matrices: Tensor) -> Tensor:
    """The smallest eigenvalue of each symmetric matrix; nan if it is not finite, for which torch raises an error."""
    finite = matrices.isfinite().all(dim=(1, 2))
    smallest = torch.linalg.eigvalsh(torch.where(finite[:, None, None], matrices, 0.0))[:, 0]
    return torch.where(finite, smallest, torch.nan)


_SMALL = {"samples": 3, "crops": 6, "test_crops": 2, "dim": 4, "width": 8}
task = Task("self_labeling.corrupted", Params, METRICS, init, advance, measure, conflicts=conflicts, small=_SMALL)
