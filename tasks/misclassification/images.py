"""Images: label noise or label smoothing makes hidden neurons fire rarely and for one class (Figures 5, 6; CIFAR-10).

Cornacchia, Hazła, Nachum, Yehudayoff, Section 6.4 and Appendix F. On MNIST, a network with 600 hidden neurons and ten
outputs is trained by SGD with batch size 1 on the sum of ten logistic losses, with labels replaced at random (Figures 5
and 6). On CIFAR-10, a ResNet-20 is trained on the softmax cross entropy with smoothed labels.

Readings: a replaced label is drawn from all ten digits, including the right one, and sets the targets of all ten
outputs. Pixels go from 0 to 1. Weights with variance 1, as in the paper's other experiments, don't train on MNIST. The
paper does not say which of the initializations scaled by the fan-in (`init`) it uses; the activity after a few epochs
is similar with all three. As in Definition 1, activity is measured on training images: 10,000 of them, equally many per
class, so that a neuron's rate for a digit does not depend on how frequent the digit is. A neuron that never fires is
associated with no digit. The last hidden layer of a ResNet-20 is the output of its last block, after ReLU and before
pooling: 64×8×8, the 4,096 neurons of the paper. Pixels of CIFAR-10 are standardized by the data's own mean and standard
deviation.

The paper's 25 % and 104 neurons without noise are those of the first five epochs. Once the rate is halved, fewer
neurons become silent: with p = 0.1 the activity levels off at 9 % instead of 6 %, with the paper's 222 neurons, and
without noise it returns to 29 %. At a constant rate (`drops: ""`) it reaches 6 %, with more than 222 neurons. Larger
initial weights come closer to all four numbers: with `init_scale` 3, one seed gives 25 % and 87 neurons without noise,
7.5 % and 223 neurons with p = 0.1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.blocks import blocks, cut, stretches
from mislabel.tasks.corruption import relabelled, smoothed
from mislabel.tasks.images import image_training
from mislabel.tasks.images.augmentation.shifts import padded_crop_and_flip
from mislabel.tasks.images.build_network import DEPTH_HELP, WIDTH_HELP, NetworkParams, build
from mislabel.tasks.images.image_training import BATCH_HELP, DROPS_HELP, RATE_HELP, ImageTraining, data_of
from mislabel.tasks.images.network import Network
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.misclassification.two_layers import ManyOutputsSgd
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.task import Metric, State, Task

BLOCK = 64
LOSSES = ("logistic", "softmax")
# Images are evaluated in parts, because the hidden activations are far larger than the weights.
_PART = 250
_LAYERS = ("layer1.weight", "layer1.bias", "output.weight", "output.bias")


@dataclass(frozen=True, kw_only=True)
class Params(NetworkParams, ImageTraining):
    steps: int = shape(28_740, at_least=1, help="training steps, one batch each")
    spacing: str = shape("linear", choices=("linear", "log"), help="spacing of the measured steps")
    depth: int = shape(1, at_least=0, help=DEPTH_HELP)
    width: int = shape(600, at_least=0, help=WIDTH_HELP)
    batch: int = shape(1, at_least=0, help=BATCH_HELP)
    drops: str = shape("every 5", help=DROPS_HELP)
    loss: str = shape("logistic", choices=LOSSES, help="sum of k logistic losses, or cross entropy of the softmax")
    trained: str = shape(
        "both", choices=("both", "first"), help="which layers are trained; first: only for network fc, depth 1, batch 1"
    )
    augmentation: str = shape(
        "none", choices=("none", "shifts", "shifts_and_flips"), help="shifts by up to 4 pixels, and random mirroring"
    )
    seen_samples: int = shape(10_000, at_least=0, help="training images for measuring, equally many per class; 0: all")
    learning_rate: float = knob(0.01, above=0, help=f"h: {RATE_HELP}")
    noise_rate: float = knob(
        0.1,
        between=(0, 1),
        help="p: at every step each label of the batch is replaced, with probability p, by a class drawn uniformly "
        "from all k; so it is wrong with probability p·(k − 1)/k",
    )
    smoothing: float = knob(
        0.0,
        between=(0, 1),
        help="label smoothing: this share of every label is spread evenly over all classes; the same as noise_rate in "
        "expectation",
    )


METRICS = {
    "train_error": Metric("share of the measured training images whose largest output is not that of the true class"),
    "test_error": Metric("the same on the test images"),
    "train_loss": Metric("mean loss on the true labels of the measured training images"),
    "test_loss": Metric("mean loss on the test images"),
    "active_share": Metric("share of the last hidden layer that fires on a measured training image, mean over images"),
    "active_neurons": Metric("mean number of last hidden neurons that fire on a measured image (Definition 1)"),
    "test_active_share": Metric("active_share on the test images"),
    "class_neurons": Metric("last hidden neurons that fire at least twice as often for one class as for any other"),
    "test_class_neurons": Metric("class_neurons on the test images"),
    "dead_neurons": Metric("neurons of the last hidden layer that fire on no measured training image"),
    "first_norm": Metric("norm of the first layer's weights"),
    "epoch": Metric("epochs of training so far"),
    "layer_active_share": Metric("active_share of each hidden layer, from first to last", per="layer"),
    "neuron_firing": Metric("share of measured training images on which each last hidden neuron fires", per="neuron"),
    "class_firing": Metric("the same for each class's images; sorted by neuron, then by class", per="class"),
}


@dataclass(frozen=True)
class Activity:
    error: Tensor  # l
    loss: Tensor  # l
    layers: Tensor  # l h: for each hidden layer, the mean share of neurons that fire on an image
    firing: Tensor  # l m k: for each neuron of the last hidden layer and each class, the share of images it fires on
    active: Tensor  # l m: the same over all images


def init(lanes: Lanes[Params]) -> State:
    return {**image_training.initial_state(lanes, _network(lanes)), "epoch": lanes["learning_rate"].double() * 0}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    if _has_two_layers(lanes.shape) and not any(params.weight_decay for params in lanes.params):
        s = _train_two_layers(lanes, s, start, stop)
    else:
        s = {name: tensor.clone() for name, tensor in s.items()}
        augmented = None if lanes.shape.augmentation == "none" else partial(_augmented, lanes)
        image_training.train(lanes, _network(lanes), s, start, stop, partial(_training_loss, lanes), augmented)
    return {**s, "epoch": torch.full_like(s["epoch"], stop / image_training.epoch_steps(lanes))}


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    data = image_training.loaded(lanes)
    chosen = balanced(data.train_y, lanes.shape.seen_samples, len(data.classes))
    seen = evaluate(lanes, s, data.train_x[chosen], data.train_y[chosen])
    tested = evaluate(lanes, s, data.test_x, data.test_y)
    return {
        "train_error": seen.error,
        "test_error": tested.error,
        "train_loss": seen.loss,
        "test_loss": tested.loss,
        "active_share": seen.active.mean(dim=1),
        "active_neurons": seen.active.sum(dim=1),
        "test_active_share": tested.active.mean(dim=1),
        "class_neurons": associated(seen.firing).sum(dim=1),
        "test_class_neurons": associated(tested.firing).sum(dim=1),
        "dead_neurons": (seen.active == 0).sum(dim=1),
        "first_norm": _network(lanes).first_norm(s),
        "epoch": s["epoch"],
        "layer_active_share": seen.layers,
        "neuron_firing": seen.active,
        "class_firing": seen.firing.flatten(1),
    }


def evaluate(lanes: Lanes[Params], s: State, x: Tensor, y: Tensor) -> Activity:
    """Evaluate images x (n c h w) of bytes with classes y (n)."""
    parts, network, classes = [], _network(lanes), len(image_training.loaded(lanes).classes)
    for at in image_training.parts(len(y), _PART):
        seen = network.forward(s, image_training.scaled(lanes, x[at]), watch=True)
        targets = functional.one_hot(y[at], classes).to(lanes.dtype)  # b k
        fires = (list(seen.hidden.values())[-1].flatten(2) > 0).to(lanes.dtype)  # l b m
        wrong = (seen.outputs.argmax(dim=2) != y[at]).to(lanes.dtype).sum(dim=1)
        shares = torch.stack(list(seen.active_shares().values()), dim=1) * len(y[at])
        lost = _losses(lanes, seen.outputs, targets).sum(dim=1)
        parts.append((wrong, lost, shares, torch.matmul(fires.mT, targets)))
    wrong, lost, shares, fired = (torch.stack(sums).sum(dim=0) for sums in zip(*parts, strict=True))
    # A network without finite outputs predicts no class.
    error = torch.where(lost.isfinite(), wrong / len(y), torch.nan)
    # For a class without images, no neuron fires.
    members = torch.bincount(y, minlength=classes).clamp(min=1)
    return Activity(error, lost / len(y), shares / len(y), fired / members, fired.sum(dim=2) / len(y))


def associated(firing: Tensor) -> Tensor:
    """True for neurons that fire at least twice as often for one class as for any other; (... m k) to (... m)."""
    most = firing.topk(2, dim=-1).values
    return (most[..., 0] > 0) & (most[..., 0] >= 2 * most[..., 1])


def balanced(y: Tensor, count: int, classes: int) -> Tensor:
    """Indices of the first images of each class, equally many per class, at most `count` in total; 0 takes all."""
    if not count:
        return torch.arange(len(y), device=y.device)
    place = functional.one_hot(y, classes).cumsum(dim=0).gather(1, y[:, None])[:, 0]  # index within the class, from 1
    return (place <= max(1, count // classes)).nonzero()[:, 0]


def conflicts(params: Params) -> Iterator[str]:
    yield from image_training.conflicts(params)
    if params.trained == "first" and (not _has_two_layers(params) or params.weight_decay):
        text = "network: fc, depth: 1, batch: 1, optimizer: sgd, no augmentation, no weight decay"
        yield f"trained: first is only available for two-layer networks ({text})"


def _network(lanes: Lanes[Params]) -> Network:
    data = image_training.loaded(lanes)
    return build(lanes.shape, data.size, outputs=len(data.classes))


def _has_two_layers(p: Params) -> bool:
    """Whether a run has the setting of the paper's Figure 5, for which there is a faster method."""
    kind = (p.network, p.depth, p.parametrization, p.batch, p.optimizer, p.augmentation, p.autocast, p.compiled)
    return kind == ("fc", 1, "standard", 1, "sgd", "none", "none", False)


def _train_two_layers(lanes: Lanes[Params], state: State, start: int, stop: int) -> State:
    data, per_epoch, s = image_training.loaded(lanes), image_training.epoch_steps(lanes), dict(state)
    w, b, a, c = (s[name] for name in _LAYERS)
    sgd = ManyOutputsSgd(w, b, a, c, lanes.shape.loss, both=lanes.shape.trained == "both")
    for epoch in cut(start, stop, per_epoch):
        image_training.chosen(lanes, s, epoch.start)
        for stretch in stretches(epoch.start, epoch.stop, numbers=len(lanes), length=BLOCK):
            place = stretch.start % per_epoch
            index = s["order"][:, place : place + len(stretch)]  # l t
            targets = _targets(lanes, data.train_y[index][:, :, None], stretch)[:, :, 0]  # l t k
            rates = _rates(lanes, stretch, per_epoch)
            for _, at in blocks(stretch, BLOCK):
                x = image_training.scaled(lanes, image_training.shared_rows(data.train_x, index[:, at])).flatten(2)
                sgd.train(x, targets[:, at], rates[:, at])
    return {**s, **dict(zip(_LAYERS, sgd.layers(), strict=True))}


def _rates(lanes: Lanes[Params], stretch: range, per_epoch: int) -> Tensor:
    """The learning rate at each of the steps; (l t)."""
    first, last = (image_training.rate_at(lanes, step / per_epoch) for step in (stretch[0], stretch[-1]))
    if torch.equal(first, last):
        return first[:, None].expand(-1, len(stretch))
    return torch.stack([image_training.rate_at(lanes, step / per_epoch) for step in stretch], dim=1)


def _training_loss(lanes: Lanes[Params], index: Tensor, step: int, outputs: Tensor) -> Tensor:
    y = image_training.loaded(lanes).train_y[index]  # l b
    targets = _targets(lanes, image_training.padded_to_batch(lanes, y)[:, None], range(step, step + 1))  # l 1 b k
    return _losses(lanes, outputs, targets[:, 0, : y.shape[1]]).mean(dim=1)


def _targets(lanes: Lanes[Params], y: Tensor, steps: range) -> Tensor:
    """Probabilities of the classes in the labels of these steps' images, with true classes y (l t b); (l t b k)."""
    classes = len(image_training.loaded(lanes).classes)
    return smoothed(relabelled(lanes, y, classes, lanes["noise_rate"], steps), classes, lanes["smoothing"])


def _losses(lanes: Lanes[Params], outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of each image, from outputs (l b k) and probabilities of the classes; (l b)."""
    if lanes.shape.loss == "logistic":
        return (functional.softplus(outputs) - targets * outputs).sum(dim=2)
    return -(targets * outputs.log_softmax(dim=2)).sum(dim=2)


def _augmented(lanes: Lanes[Params], x: Tensor, step: int) -> Tensor:
    flips = 0.5 if lanes.shape.augmentation == "shifts_and_flips" else 0.0
    return padded_crop_and_flip(lanes, "augmentation", x, step, flip_chance=flips, whole=lanes.shape.batch)


def weights(lanes: Lanes[Params], s: State) -> State:
    return image_training.weights(_network(lanes), s)


_SMALL = {"width": 12, "samples": 100, "test_samples": 50}
_NAME = "misclassification.images"
task = Task(
    _NAME, Params, METRICS, init, advance, measure, conflicts, data_of, weights, version=2, block=BLOCK, small=_SMALL
)
