"""Clean-priority learning: networks first fit clean labels and un-learn wrong ones, then fit the wrong ones too.

Liu, Abedsoltan, Belkin, Figures 4 to 12. A network is trained by SGD on images; a share δ of each class has a wrong
label, fixed before training. At first the gradient of the noisy samples of a class is opposite to that of its clean
samples, and shorter: α = |g_noise|/|g_clean| < 1. So the sum follows the clean samples, and the error on the noisy
segment, counted with the given labels, rises. As clean samples are learned, α grows. When it reaches 1, the network
begins to learn the noisy labels. The best network is found in between. Two classes have one logit and the logistic
loss, more classes have a softmax with cross entropy.

Readings. The paper does not give learning rates and epochs; the specs state theirs. With k classes, the gradients of a
class's segments are those of its own logit (Appendix C.1), on which noisy samples are opposite to clean ones for all
outputs; `alpha` and `angle` are those of the sums over classes. There α starts near δ/((k-1)(1-δ)), because outputs
start near 1/k: the δ/(1-δ) of the binary case, spread over k-1 wrong labels. `full_alpha` and `full_angle` are those of
the segments' losses, that is on all logits (Equation 21). Residuals are |f - y|, the Euclidean norm
if there are several outputs. Batch norm is in evaluation mode for all measurements.

Segments are measured on `measured_samples` training samples, by one forward and one backward pass; 0 takes all of them.
"""

import itertools
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor

from mislabel.tasks import corruption
from mislabel.tasks.clean_priority import segments
from mislabel.tasks.clean_priority.segments import CLEAN, NOISY, SUMMED, Segments, class_angles
from mislabel.tasks.corruption import LabelNoise
from mislabel.tasks.images import image_training, readout
from mislabel.tasks.images.build_network import NetworkParams, build
from mislabel.tasks.images.image_training import CLASSES_HELP, ImageTraining, conflicts, data_of
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.parameters import shape
from mislabel.tasks.task import Metric, State, Task
from mislabel.tasks.training import snapshot_steps

# The number of test images that are evaluated at once.
_PART = 1024


@dataclass(frozen=True, kw_only=True)
class Params(ImageTraining, LabelNoise, NetworkParams):
    steps: int = shape(1000, at_least=1, help="SGD steps, one batch each")
    frames: int = shape(51, at_least=2, help="how many times metrics are measured, including step 0 and the last step")
    spacing: str = shape("linear", choices=("linear", "log"), help="spacing of the measured steps")
    classes: str = shape("7, 9", help=CLASSES_HELP)
    measured_samples: int = shape(
        500, at_least=0, help="training images used for measuring the segments, equally many per segment; 0: all"
    )
    histogram_samples: int = shape(50, at_least=1, help="samples per segment for single-sample gradients (snapshots)")


METRICS = {
    "epoch": Metric("epochs of training so far"),
    "clean_error": Metric("share of clean training samples classified against their right label", may_be_absent=True),
    "noisy_error": Metric("share of noisy training samples classified against their wrong label", may_be_absent=True),
    "train_error": Metric("share of all training samples classified against their given label"),
    "test_error": Metric("share of test images classified wrongly; test labels are clean"),
    "clean_loss": Metric("mean loss of clean training samples", may_be_absent=True),
    "noisy_loss": Metric("mean loss of noisy training samples with their given, wrong labels", may_be_absent=True),
    "train_loss": Metric("mean loss of all training samples with their given labels"),
    "test_loss": Metric("mean loss of test images"),
    "clean_residual": Metric("mean |f − y| of clean training samples", may_be_absent=True),
    "noisy_residual": Metric("mean |f − y| of noisy training samples with their wrong labels y", may_be_absent=True),
    "train_residual": Metric("mean |f − y| of all training samples with their given labels y"),
    "alpha": Metric("α: norm of the noisy segments' summed gradient over that of the clean ones", may_be_absent=True),
    "angle": Metric("angle between the clean and the noisy segments' summed gradients, in radians", may_be_absent=True),
    "mean_alpha": Metric("class_alpha, mean over classes", may_be_absent=True),
    "mean_angle": Metric("class_angle, mean over classes, in radians", may_be_absent=True),
    "full_alpha": Metric("α of the loss: as alpha, but with the gradients on all logits", may_be_absent=True),
    "full_angle": Metric("as angle, but with the gradients on all logits, in radians", may_be_absent=True),
    "clean_gradient": Metric("norm of the clean samples' gradient on all logits, per training sample"),
    "noisy_gradient": Metric("norm of the noisy samples' gradient on all logits, per training sample"),
    "class_clean_error": Metric("clean_error of each class", per="class"),
    "class_noisy_error": Metric("noisy_error of each true class", per="class"),
    "class_clean_loss": Metric("clean_loss of each class", per="class"),
    "class_noisy_loss": Metric("noisy_loss of each true class", per="class"),
    "class_clean_residual": Metric("clean_residual of each class", per="class"),
    "class_noisy_residual": Metric("noisy_residual of each true class", per="class"),
    "class_alpha": Metric("α from the two segments of each class alone", per="class"),
    "class_angle": Metric("angle between the gradients of the two segments of each class, in radians", per="class"),
    "clean_angles": Metric("θ_g in radians of single clean samples on their class's logit, by class", per="sample"),
    "noisy_angles": Metric(
        "θ_g in radians of single noisy samples on their true class's logit, by class", per="sample"
    ),
    "other_angles": Metric("θ_g in radians of other classes' clean samples on each class's logit", per="sample"),
    "class_others_angle": Metric(
        "θ_g in radians of these other samples' summed gradient, on each class's logit", per="class"
    ),
    **corruption.METRICS,
}
_ANGLES = ("clean", "noisy", "other")


def init(lanes: Lanes[Params]) -> State:
    _segments(lanes)
    step = torch.zeros(len(lanes), dtype=torch.int64, device=lanes.device)
    return {**image_training.initial_state(lanes, _network(lanes)), "step": step}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    given, classes = _segments(lanes).given, len(image_training.loaded(lanes).classes)

    def loss(index: Tensor, step: int, outputs: Tensor) -> Tensor:
        y = _relabelled(lanes, given.gather(1, index.long()), classes, step)
        return readout.losses(outputs, corruption.smoothed(y, classes, lanes["smoothing"])).mean(dim=1)

    s = {name: tensor.clone() for name, tensor in s.items()}
    image_training.train(lanes, _network(lanes), s, start, stop, loss)
    s["step"] += stop - start
    return s


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    parts, network, data = _segments(lanes), _network(lanes), image_training.loaded(lanes)
    is_snapshot = int(s["step"][0]) in snapshot_steps(lanes.shape)
    classes = range(len(data.classes))
    pairs = itertools.product(classes, (CLEAN, NOISY))
    measured = [segments.measure_segment(lanes, network, s, parts, class_, kind) for class_, kind in pairs]
    all_sums, gradients, losses = zip(*measured, strict=True)
    products = segments.products(gradients)
    products = products.view(-1, len(classes), 2, len(classes), 2)
    total, each = products.sum(dim=(1, 3)), products.diagonal(dim1=1, dim2=3).movedim(3, 1)  # l 2 2, l k 2 2
    ratio, angle = segments.ratio(each), segments.angle(each)
    full = segments.products([reduce(segments.sum_of, losses[kind::2]) for kind in (CLEAN, NOISY)])  # l 2 2
    norms = full.diagonal(dim1=1, dim2=2).sqrt() / len(data.train_y)
    sample_angles = [
        class_angles(lanes, network, s, parts, class_, gradients[2 * class_ + CLEAN])
        for class_ in (classes if is_snapshot else ())
    ]
    sums = torch.stack(all_sums, dim=1).view(len(lanes), -1, 2, len(SUMMED))
    # Arrays are stored only at snapshots, so they are not computed at other steps.
    nothing = ratio.new_empty(len(lanes), 0)
    return {
        "epoch": s["step"] / image_training.epoch_steps(lanes),
        **_means(sums, parts.counts),
        **_test_metrics(lanes, network, s),
        "alpha": segments.ratio(total),
        "angle": segments.angle(total),
        "mean_alpha": ratio.mean(dim=1),
        "mean_angle": angle.mean(dim=1),
        "full_alpha": segments.ratio(full),
        "full_angle": segments.angle(full),
        "clean_gradient": norms[:, CLEAN],
        "noisy_gradient": norms[:, NOISY],
        "class_alpha": ratio,
        "class_angle": angle,
        **{f"{name}_angles": torch.cat([nothing, *(each[name] for each in sample_angles)], dim=1) for name in _ANGLES},
        "class_others_angle": torch.cat([nothing, *(each["others"][:, None] for each in sample_angles)], dim=1),
        "true_label": data.train_y.expand(len(lanes), -1) if is_snapshot else nothing,
        "given_label": parts.given if is_snapshot else nothing,
    }


def _means(sums: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """Means of segments and of the training set, per class and in total, from sums (l k 2 3) and counts (l k 2)."""
    found = {}
    for i, name in enumerate(SUMMED):
        each = sums[..., i]
        for kind, word in ((CLEAN, "clean"), (NOISY, "noisy")):
            found[f"{word}_{name}"] = each[:, :, kind].sum(dim=1) / counts[:, :, kind].sum(dim=1)
            found[f"class_{word}_{name}"] = each[:, :, kind] / counts[:, :, kind]
        found[f"train_{name}"] = each.sum(dim=(1, 2)) / counts.sum(dim=(1, 2))
    return found


def _test_metrics(lanes: Lanes[Params], network: Network, s: State) -> dict[str, Tensor]:
    data = image_training.loaded(lanes)
    error, loss = (torch.zeros(len(lanes), dtype=lanes.dtype, device=lanes.device) for _ in range(2))
    for part in image_training.parts(len(data.test_y), _PART):
        outputs = network.forward(s, image_training.scaled(lanes, data.test_x[part])).outputs
        y = data.test_y[part].expand(len(lanes), -1)
        error += readout.wrong(outputs, y).sum(dim=1)
        loss += readout.losses(outputs, readout.one_hot_labels(y, len(data.classes), lanes.dtype)).sum(dim=1)
    return {"test_error": error / len(data.test_y), "test_loss": loss / len(data.test_y)}


def _relabelled(lanes: Lanes[Params], y: Tensor, classes: int, step: int) -> Tensor:
    """The labels y (l b) of a step, some of them replaced."""
    if not any(params.relabel_rate for params in lanes.params):
        return y
    whole = image_training.padded_to_batch(lanes, y)[:, None]
    drawn = corruption.relabelled(lanes, whole, classes, lanes["relabel_rate"], range(step, step + 1))
    return drawn[:, 0, : y.shape[1]]


def _network(lanes: Lanes[Params]) -> Network:
    data = image_training.loaded(lanes)
    return build(lanes.shape, data.size, readout.logits(len(data.classes)))


@once
def _segments(lanes: Lanes[Params]) -> Segments:
    data = image_training.loaded(lanes)

    def inputs(part: slice) -> Tensor:
        return image_training.scaled(lanes, data.train_x[part]).flatten(1)

    given = corruption.corrupted(lanes, data.train_y, len(data.classes), inputs)
    return segments.split_segments(lanes, data.train_y, given, len(data.classes))


def weights(lanes: Lanes[Params], s: State) -> State:
    return image_training.weights(_network(lanes), s)


_SMALL = {"samples": 40, "test_samples": 20, "batch": 8, "depth": 1, "width": 8}
_SMALL |= {"measured_samples": 16, "histogram_samples": 3}
task = Task("clean_priority.images", Params, METRICS, init, advance, measure, conflicts, data_of, weights, small=_SMALL)
