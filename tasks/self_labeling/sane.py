"""SANE: contrastive learning (MoCo) with labels refined by the network (SLR) and momentum mixup.

Zhou, Xiong, Yuan, Hoi, Algorithm 1, based on MoCo. An encoder f is trained by SGD to recognize which keys, encoded by
its moving average g, come from the same image as a query. The loss (Eq. 9) is (1 − λ)·L_c of the queries with one-hot
labels plus λ·L_c of virtual queries with labels over all keys, refined by the query's positive (Eqs. 5 and 8). Class
labels are not used in training, except by the control `refinery: classes`. Claims: p and q of the refinery and momentum
mixup each raise the accuracy of nearest neighbours and of a linear probe; λ near ½ is best; momentum mixup beats
vanilla mixup.

Which method a run is: `refinery: none, mixup: none` is MoCo on the shared key set (so is λ = 0, step for step).
`refinery: none` with a mixup is a row of Table 6. `mixup: none` are the rows of Table 4 without mixup; there the second
term has the query itself, or its strong view, with refined labels. `refinery: classes` and `refinery: uniform` are not
in the paper. They are controls for `refinery: both`: labels with the same mass on the query's positive, and the rest on
keys of the query's true class, or equally on all other keys.

Readings. The positive's similarity to keys uses the features of g, because Algorithm 1 computes no others. So x̃ has the
largest possible similarity to itself, which is why q is needed. θ and the partner k are drawn independently for each
query, k from the whole batch. Keys are those of the weak positives even if mixup uses strong views (steps 3 and 6).
Vanilla mixup with strong views mixes two strong queries: with one of them weak it would be momentum mixup. If crops
have another size than queries, the queries are scaled to it before they are mixed. The running statistics of batch norm
are those of the plain queries, which resemble the images whose features are evaluated. g is never evaluated and uses
the statistics of its batch. The paper does not mention MoCo's shuffled batch norm: here batch norm is over the whole
batch. The learning rate follows its cosine at every step, weight decay applies to all weights, and incomplete batches
are left out. ι is 1 − the momentum of MoCo's own examples (0.01 for CIFAR-10, 0.001 for ImageNet). As in the paper, z
omits p or q if it is switched off.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mislabel.tasks.data.images import Images
from mislabel.tasks.images import image_training
from mislabel.tasks.images.image_training import OPTIMIZER_HELP, PIXELS_HELP, ImageTraining, data_of
from mislabel.tasks.images.network import Descent
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.self_labeling import contrast
from mislabel.tasks.self_labeling.batches import AUGMENTATIONS, Batches, crop_sizes, loaded, scaled
from mislabel.tasks.self_labeling.contrast import CONTROLS, REFINERIES, Refined, log_similarity, unit
from mislabel.tasks.self_labeling.encoders import ENCODERS, LAYERED, Encoder, encoder, loadable
from mislabel.tasks.self_labeling.evaluation import METRICS as FEATURE_METRICS
from mislabel.tasks.self_labeling.evaluation import Evaluation, feature_metrics, noisy_labels
from mislabel.tasks.self_labeling.mixup import MIXUPS, beta, mixed, partners
from mislabel.tasks.task import Metric, State, Task

_TARGET = "target."
# The sample index of keys from before the first step. Sample indices are used to measure labels, not for training.
_NO_SAMPLE = -1


@dataclass(frozen=True, kw_only=True)
class Params(Evaluation, ImageTraining):
    steps: int = shape(2000, at_least=1, help="SGD steps T, one batch each")
    frames: int = shape(11, at_least=2, help="how many times metrics are measured, including step 0 and the last step")
    spacing: str = shape("linear", choices=("linear", "log"), help="spacing of the measured steps")
    pixels: str = shape("standardized", choices=("unit", "standardized"), help=PIXELS_HELP)
    network: str = shape("convnet", choices=ENCODERS, help="backbone (convnet: 3×3 convolutions, stride 2, batch norm)")
    depth: int = shape(0, at_least=0, help="convolutions of a convnet, blocks of a resnet9 or resnet20; 0: the default")
    width: int = shape(0, at_least=0, help="channels of the first convolution of these networks; 0: the default")
    stem: str = shape(
        "small", choices=("small", "imagenet"), help="stem of a resnet18, 34 or 50: for small images, or for ImageNet"
    )
    init_scale: float = knob(1.0, above=0, help="factor on the initial weights")
    head_layers: int = shape(3, at_least=1, help="dense layers of the projection head")
    head_width: int = shape(0, at_least=0, help="neurons in each hidden layer of the head; 0: as many as features")
    embedding: int = shape(128, at_least=2, help="dimension of queries and keys")
    augmentation: str = shape(
        "cifar10", choices=tuple(AUGMENTATIONS), help="weak augmentation of MoCo: cifar10 (no blur), or v2 for ImageNet"
    )
    smallest_crop: float = shape(
        0.0, at_least=0, at_most=1, help="smallest share of an image's area in a view; 0: MoCo's"
    )
    view_size: int = shape(0, at_least=0, help="height and width of views in pixels; 0: those of the images")
    dictionary: int = shape(4096, at_least=1, help="queue size b: keys in addition to the batch's positives")
    refinery: str = shape(
        "both",
        choices=(*REFINERIES, *CONTROLS),
        help="which of p and q refine labels of virtual queries (Eq. 5); or a control with as much mass on the "
        "positive as with both, and the rest on keys of the true class (classes) or on all other keys (uniform)",
    )
    mixup: str = shape(
        "momentum", choices=MIXUPS, help="mix queries (Eq. 8) with queries (vanilla), positives, or nothing"
    )
    mixup_views: str = shape(
        "same",
        choices=("same", "weak", "strong"),
        help="views to mix: of query and positive, or more weak or strong ones",
    )
    crops: str = shape("", help='multi-crop: sizes of additional views, as in "224, 192, 160"; empty: only view_size')
    decay_shape: str = shape("cosine", choices=("cosine", "drops"), help="learning rate: cosine to 0, or see drops")
    optimizer: str = shape("momentum", choices=("sgd", "momentum"), help=OPTIMIZER_HELP)
    learning_rate: float = knob(0.03, above=0, help="initial learning rate of the optimizer (SGD)")
    weight_decay: float = knob(1e-4, at_least=0, help="weight decay (L2 penalty, as in torch's SGD) on all weights")
    tau: float = knob(0.2, above=0, help="τ: temperature of similarities")
    tau_prime: float = knob(0.8, above=0, at_most=1, help="τ′: temperature that sharpens p and q in refined labels")
    m1: float = knob(0.0, at_least=0, help="m₁: μ at the first step; μ weights p and q in refined labels")
    m2: float = knob(1.0, at_least=0, help="m₂: μ at the last step")
    kappa: float = knob(2.0, above=0, help="κ: mixing shares θ are drawn from Beta(κ, κ)")
    mixup_weight: float = knob(0.5, between=(0, 1), help="λ: weight of the virtual queries in the loss (Eq. 9)")
    iota: float = knob(0.01, above=0, at_most=1, help="ι: step of the moving average, g ← (1 − ι)·g + ι·f")


def conflicts(params: Params) -> Iterable[str]:
    yield from image_training.conflicts(params)
    if params.network not in LAYERED and (params.depth or params.width):
        yield f"network: {params.network} has a fixed depth and width; leave them at 0"
    if params.network in LAYERED and params.stem == "imagenet":
        yield f"stem: {params.network} has a fixed stem; leave it at small"
    try:
        sizes = crop_sizes(params.crops)
    except ValueError:
        yield f'crops: {params.crops!r} is not a list of sizes, as in "224, 192, 160, 128, 96"'
        return
    if len(set(sizes)) < len(sizes):
        yield f"crops: {params.crops!r} names a size twice; name each size once"
    if sizes and params.mixup_views == "same":
        yield "crops: only additional views have sizes; make mixup_views weak or strong"


METRICS = {
    "loss": Metric("L of Eq. 9, on the next batch"),
    "contrast_loss": Metric("L_c of the queries with one-hot labels"),
    "mixup_loss": Metric("L_c of the virtual queries with refined labels"),
    **FEATURE_METRICS,
    "mu": Metric("μ_t, from m₁ to m₂ by a cosine"),
    "alpha": Metric("weight α of p in refined labels (Eq. 5), mean over queries"),
    "beta": Metric("weight β of q in refined labels (Eq. 5), mean over queries"),
    "positive_similarity": Metric("mean cosine between a query and the key of its positive"),
    "key_similarity": Metric("mean cosine between a query and a key of the dictionary"),
    "label_distance": Metric("mean ‖ỹ − y*‖ over queries; the ideal y* is uniform over keys of the query's class"),
    "one_hot_distance": Metric("mean ‖y − y*‖ of the one-hot labels y"),
    "uniform_distance": Metric("the same for labels with ỹ's mass on the positive and the rest on all other keys"),
    "classes_distance": Metric("the same with the rest on the other keys of the query's class"),
    "label_class_mass": Metric("share of a refined label on keys of the query's class, mean over queries"),
    "label_others_class_mass": Metric("the same among the keys other than the positive", may_be_absent=True),
    "label_class_lift": Metric(
        "label_others_class_mass minus what labels that are uniform over the other keys have", may_be_absent=True
    ),
    "label_agreement": Metric("share of queries whose own class has the largest share of the refined label"),
    "label_entropy": Metric("mean entropy of refined labels"),
    "label_confidence": Metric("mean largest entry of refined labels"),
}


@dataclass(frozen=True)
class Losses:
    """The result of one step's forward pass."""

    total: Tensor  # l
    contrast: Tensor  # l
    mixup: Tensor  # l
    positives: Tensor  # l s d: keys of this batch
    logits: Tensor  # l s k: log σ of the queries
    refined: Refined
    buffers: Mapping[str, Tensor]


def init(lanes: Lanes[Params]) -> State:
    f = _encoder(lanes)
    noisy_labels(lanes, loaded(lanes))
    w = f.init(lanes)
    state = w | {f"{_TARGET}{name}": w[name].clone() for name in f.weights}
    state |= image_training.initial_velocities(lanes, f, w)
    keys = unit(lanes.normal("dictionary", lanes.shape.dictionary, f.dim))  # random directions, as in MoCo
    key_samples = torch.full(keys.shape[:2], _NO_SAMPLE, device=lanes.device)
    step = torch.zeros(len(lanes), dtype=torch.int64, device=lanes.device)
    return state | {"keys": keys, "key_samples": key_samples, "step": step}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    f, batches = _encoder(lanes), Batches(lanes)
    whole = any(params.mixup_weight for params in lanes.params)
    state = {name: tensor.clone() for name, tensor in s.items()}
    for step in range(start, stop):
        index = batches.at(step)
        w = {name: tensor.requires_grad_() for name, tensor in f.trained(state).items()}
        with torch.enable_grad():
            losses = _losses(lanes, f, state | w, batches, index, step, whole)
            # Lanes are independent, so the derivative of the sum is that of each lane.
            grads = torch.autograd.grad(losses.total.sum(), list(w.values()))
        for tensor in w.values():
            tensor.requires_grad_(False)
        velocity = image_training.velocities(lanes, f, state)
        gradients, rate = dict(zip(w, grads, strict=True)), _rate_at(lanes, batches, step)
        Descent(rate, lanes["weight_decay"], lanes["momentum"], velocity).update(f.trained(state), gradients)
        for name in f.weights:
            state[f"{_TARGET}{name}"].lerp_(state[name], lanes.column("iota", state[name].dim() - 1))
        for name, new in {"keys": losses.positives, "key_samples": index}.items():
            state[name] = contrast.enqueued(state[name], new, step)
        state |= {name: tensor.detach() for name, tensor in losses.buffers.items()}
    return state | {"step": torch.full_like(s["step"], stop)}


def _losses(
    lanes: Lanes[Params], f: Encoder, state: State, batches: Batches, index: Tensor, step: int, whole: bool = True
) -> Losses:
    """Steps 2 to 9 of Algorithm 1. Not `whole`: skip virtual queries, which have no weight in any lane."""
    images, tau, weight = batches.images(index), lanes["tau"], lanes["mixup_weight"]
    x = batches.views.weak(lanes, "query", images, step)
    x_tilde = batches.views.weak(lanes, "positive", images, step)
    seen = f.forward(state, x, training=True)
    with torch.no_grad():
        g = {name: state[f"{_TARGET}{name}"] for name in f.weights} | {name: state[name] for name in f.buffers}
        positives = unit(f.forward(g, x_tilde, training=True).outputs)
        keys = torch.cat([positives, state["keys"]], dim=1)
        mu = confidence(lanes["m1"], lanes["m2"], step, lanes.shape.steps)
        labels = _labels(lanes, log_similarity(positives, keys, tau), mu, batches.data, index, state["key_samples"])
    logits = log_similarity(unit(seen.outputs), keys, tau)
    plain = contrast.one_hot_loss(logits)
    virtual = plain
    if lanes.shape.mixup == "none" and lanes.shape.mixup_views == "same":
        virtual = plain if lanes.shape.refinery == "none" else contrast.labels_loss(logits, labels.labels)
    elif whole:
        losses = []
        for x_prime, y_prime in _virtual(lanes, batches, images, x, x_tilde, labels.labels, step):
            queries = unit(f.forward(state, x_prime, training=True).outputs)
            losses.append(contrast.labels_loss(log_similarity(queries, keys, tau), y_prime))
        virtual = torch.stack(losses).mean(dim=0)
    total = torch.lerp(plain, virtual, weight)
    return Losses(total, plain, virtual, positives, logits, labels, seen.buffers)


def _labels(
    lanes: Lanes[Params], logits: Tensor, mu: Tensor, data: Images, index: Tensor, key_samples: Tensor
) -> Refined:
    """Labels of the queries, from the similarity of their positives to the keys, or a control."""
    kind = lanes.shape.refinery
    labels = contrast.refined(logits, lanes["tau_prime"], mu, "both" if kind in CONTROLS else kind)
    if kind not in CONTROLS:
        return labels
    queries, keys = _classes(data, index, key_samples)
    same = queries[:, :, None] == keys[:, None, :]
    over = same if kind == "classes" else torch.ones_like(same)
    return replace(labels, labels=contrast.spread(labels.labels, over))


def _classes(data: Images, index: Tensor, key_samples: Tensor) -> tuple[Tensor, Tensor]:
    """The true classes of queries (l s) and keys (l k); those of keys from before the first step are negative."""
    queries = data.train_y[index]
    dictionary = torch.where(key_samples == _NO_SAMPLE, _NO_SAMPLE, data.train_y[key_samples])  # l b
    return queries, torch.cat([queries, dictionary], dim=1)


def _virtual(
    lanes: Lanes[Params], batches: Batches, images: Tensor, x: Tensor, x_tilde: Tensor, labels: Tensor, step: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Virtual queries x′ and their labels y′, crop by crop (Eq. 8)."""
    p = lanes.shape
    for crop in batches.crops:
        name = f"crop{crop.size}"
        further = x_tilde
        if p.mixup_views != "same":
            made = crop.strong if p.mixup_views == "strong" else crop.weak
            further = made(lanes, name, images, step)
        if p.mixup == "none":
            yield further, labels
            continue
        query, other = scaled(x, crop.size), further
        if p.mixup == "vanilla":
            query = other = query if p.mixup_views == "same" else further
        share = beta(lanes, f"{name}.share", lanes["kappa"], batches.size, step)  # l s
        partner = partners(lanes, f"{name}.partner", batches.size, step)
        yield mixed(query, other, share, partner), mixed(labels, labels, share, partner)


def _rate_at(lanes: Lanes[Params], batches: Batches, step: int) -> Tensor:
    if lanes.shape.decay_shape == "cosine":
        return annealed(lanes["learning_rate"], step, lanes.shape.steps)
    return image_training.rate_at(lanes, step / batches.per_epoch)


def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    f, batches, step = _encoder(lanes), Batches(lanes), int(s["step"][0])
    index = batches.at(step)
    now = _losses(lanes, f, s, batches, index, step)
    cosines = now.logits * lanes.column("tau")  # l s k
    return {
        "loss": now.total,
        "contrast_loss": now.contrast,
        "mixup_loss": now.mixup,
        "mu": confidence(lanes["m1"], lanes["m2"], step, lanes.shape.steps),
        "alpha": now.refined.alpha.mean(dim=1),
        "beta": now.refined.beta.mean(dim=1),
        "positive_similarity": cosines.diagonal(dim1=1, dim2=2).mean(dim=1),
        "key_similarity": cosines[:, :, batches.size :].mean(dim=(1, 2)),
        **feature_metrics(lanes, f, batches.views, s, last=step == lanes.shape.steps),
        **_quality(now, batches.data, index, s["key_samples"]),
    }


def _quality(now: Losses, data: Images, index: Tensor, key_samples: Tensor) -> dict[str, Tensor]:
    """Metrics of the labels, from the true classes of queries and keys."""
    (queries, keys), k = _classes(data, index, key_samples), len(data.classes)
    labels = now.refined.labels, contrast.one_hot(now.logits)
    refined, plain = (contrast.label_quality(each, queries, keys, k) for each in labels)
    return refined | {"one_hot_distance": plain["label_distance"]}


def weights(lanes: Lanes[Params], s: State) -> State:
    """The backbones, with the names and layout that torchvision's ResNets load."""
    return loadable(_encoder(lanes).backbone, s)


def _encoder(lanes: Lanes[Params]) -> Encoder:
    channels, height, width = loaded(lanes).size
    size = lanes.shape.view_size
    return encoder(lanes.shape, (channels, size or height, size or width))


_SMALL = {"samples": 60, "test_samples": 20, "batch": 16, "depth": 2, "width": 4, "embedding": 8, "dictionary": 40}
_SMALL |= {"neighbours": 5, "probe_epochs": 2, "steps": 20}
task = Task("self_labeling.sane", Params, METRICS, init, advance, measure, conflicts, data_of, weights, small=_SMALL)


def confidence(m1: Tensor, m2: Tensor, step: int, steps: int) -> Tensor:
    """μ_t = m₂ − (m₂ − m₁)·(cos(πt/T) + 1)/2: from m₁ at the start to m₂ at the end; (l)."""
    return m2 - (m2 - m1) * (math.cos(math.pi * step / steps) + 1) / 2


def annealed(rate: Tensor, step: int, steps: int) -> Tensor:
    """The learning rate with cosine decay to 0; (l)."""
    return rate * ((math.cos(math.pi * step / steps) + 1) / 2)
