"""SANE: contrastive learning whose labels the network refines, with queries that are mixed with positives.

Zhou, Xiong, Yuan, Hoi, Algorithm 1, in MoCo's frame: an encoder f is trained by SGD to tell which keys, encoded by its
moving average g, are of the same image as a query. The loss (Eq. 9) is (1 − λ)·L_c of the queries with one-hot labels
plus λ·L_c of virtual queries with labels over all keys as the query's positive sees them (Eqs. 5 and 8). Labels of
classes are not trained with. Claims: the refinery's p and q and momentum mixup each raise the accuracy of neighbours
and of a linear probe, λ near ½ is best, and momentum mixup beats vanilla mixup.

Which method a run is: `refinery: none, mixup: none` is MoCo on the shared key set (so is λ = 0, step for step);
`refinery: none` with a mixup is a row of Table 6; `mixup: none` are the rows of Table 4 without it, where the second
term has the query itself, or its strong view, with refined labels.

Readings. The positive's similarity to keys is of g's features, as Algorithm 1 computes no others: x̃ is then as similar
to itself as can be, which is why q is needed. θ and the partner k are drawn for each query anew, k from the whole
batch. Keys stay those of the weak positives when mixup takes strong views (steps 3 and 6). Vanilla mixup with strong
views mixes two strong queries: with one of them weak it would be momentum mixup. Where crops are of another size than
queries, the queries are scaled to it before they are mixed. Running statistics of batch norm are those of the plain
queries, like which the images are that features are wanted of; g, which is never evaluated, goes by those of its batch.
The paper says nothing of MoCo's batch norm over shuffled parts of a batch: here it is over the whole batch.
The rate follows its cosine step by step, decay is on all weights, incomplete batches are left out, ι is 1 − the
momentum of MoCo's own examples (0.01 for CIFAR-10, 0.001 for ImageNet). As the paper has it, z leaves out a part that
is off.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from mislabel.tasks.data.images import Images
from mislabel.tasks.images import image_training
from mislabel.tasks.images.derivatives import descend
from mislabel.tasks.images.image_training import Pictures
from mislabel.tasks.lanes import Lanes
from mislabel.tasks.parameters import knob, shape
from mislabel.tasks.self_labeling.batches import AUGMENTATIONS, Batches, crop_sizes, loaded, scaled
from mislabel.tasks.self_labeling.contrast import contrast, key_set, log_similarity, one_hot, one_hot_contrast, unit
from mislabel.tasks.self_labeling.encoders import ENCODERS, LAYERED, Encoder, encoder, loadable
from mislabel.tasks.self_labeling.evaluation import METRICS as OF_FEATURES
from mislabel.tasks.self_labeling.evaluation import Evaluation, evaluated, labels_given
from mislabel.tasks.self_labeling.keys import NOBODY, Dictionary, enqueued, random_dictionary
from mislabel.tasks.self_labeling.mixup import MIXUPS, beta, mixed, partners
from mislabel.tasks.self_labeling.quality import quality
from mislabel.tasks.self_labeling.refinery import REFINERIES, Refined, refined
from mislabel.tasks.task import Metric, State, Task

_TARGET, _VELOCITY = "target.", "velocity."


@dataclass(frozen=True, kw_only=True)
class Params(Evaluation, Pictures):
    steps: int = shape(2000, at_least=1, help="training steps T")
    frames: int = shape(11, at_least=2, help="how often metrics are measured, first and last step included")
    spacing: str = shape("linear", choices=("linear", "log"), help="how the measured steps are spaced")
    pixels: str = shape(
        "standardized", choices=("unit", "standardized"), help="pixels go from 0 to 1, or have mean 0 and deviation 1"
    )
    network: str = shape("convnet", choices=ENCODERS, help="backbone of the encoders")
    depth: int = shape(0, at_least=0, help="convolutions or blocks of a convnet, resnet9 or resnet20; 0: as usual")
    width: int = shape(0, at_least=0, help="channels of their first convolution; 0: as usual")
    stem: str = shape("small", choices=("small", "imagenet"), help="a ResNet's first layers: for small images or large")
    init_scale: float = knob(1.0, above=0, help="initial weights are multiplied by it")
    head_layers: int = shape(3, at_least=1, help="dense layers of the head")
    head_width: int = shape(0, at_least=0, help="neurons of its hidden layers; 0: as many as features")
    embedding: int = shape(128, at_least=2, help="dimension of queries and keys")
    augmentation: str = shape(
        "cifar10", choices=tuple(AUGMENTATIONS), help="weak views, as MoCo has them for this data"
    )
    smallest_crop: float = shape(0.0, at_least=0, at_most=1, help="least share of an image in a view; 0: as MoCo's")
    view_size: int = shape(0, at_least=0, help="height and width of views; 0: those of the images")
    dictionary: int = shape(4096, at_least=1, help="keys b beside those of the batch")
    refinery: str = shape("both", choices=REFINERIES, help="which of p and q refine the labels of virtual queries")
    mixup: str = shape("momentum", choices=MIXUPS, help="what queries are mixed with: nothing, queries or positives")
    mixup_views: str = shape(
        "same", choices=("same", "weak", "strong"), help="views for that: those already there, or further ones"
    )
    crops: str = shape(
        "", help='sizes of these further views, as in "224, 192, 160, 128, 96"; empty: that of all views'
    )
    decay_shape: str = shape("cosine", choices=("cosine", "drops"), help="the rate decays by a cosine to 0, or drops")
    optimizer: str = shape("momentum", choices=("sgd", "momentum"), help="plain steps, or steps with momentum")
    learning_rate: float = knob(0.03, above=0, help="learning rate at the start")
    weight_decay: float = knob(1e-4, at_least=0, help="weight decay")
    tau: float = knob(0.2, above=0, help="temperature τ of similarities")
    tau_prime: float = knob(0.8, above=0, at_most=1, help="sharpness τ′ of refined labels")
    m1: float = knob(0.0, at_least=0, help="confidence μ in refined labels at the start")
    m2: float = knob(1.0, at_least=0, help="confidence μ in refined labels at the end")
    kappa: float = knob(2.0, above=0, help="shares of a mix are Beta(κ, κ)")
    mixup_weight: float = knob(0.5, between=(0, 1), help="weight λ of the loss of virtual queries")
    iota: float = knob(0.01, above=0, at_most=1, help="share ι of the encoder that its moving average takes in a step")


def conflicts(params: Params) -> Iterable[str]:
    yield from image_training.conflicts(params)
    if params.network not in LAYERED and (params.depth or params.width):
        yield f"network: {params.network} has its own depth and width; leave them at 0"
    if params.network in LAYERED and params.stem == "imagenet":
        yield f"stem: {params.network} has one of its own; leave it at small"
    try:
        sizes = crop_sizes(params.crops)
    except ValueError:
        yield f'crops: {params.crops!r} is not a list of sizes, as in "224, 192, 160, 128, 96"'
        return
    if len(set(sizes)) < len(sizes):
        yield f"crops: {params.crops!r} names a size twice, and both would be the same view; name each once"
    if sizes and params.mixup_views == "same":
        yield "crops: views that are already there have their sizes; make mixup_views weak or strong"


METRICS = {
    "loss": Metric("L of Eq. 9, on the batch that comes next"),
    "contrast_loss": Metric("L_c of the queries with one-hot labels"),
    "mixup_loss": Metric("L_c of the virtual queries with refined labels"),
    **OF_FEATURES,
    "mu": Metric("confidence μ_t in refined labels"),
    "alpha": Metric("weight α of p in refined labels, mean over queries"),
    "beta": Metric("weight β of q in refined labels, mean over queries"),
    "positive_similarity": Metric("cosine of a query and its positive's key, mean"),
    "key_similarity": Metric("cosine of a query and a key of the dictionary, mean"),
    "label_distance": Metric(
        "‖ỹ − y*‖ of refined labels from ideal ones, which are even over keys of the query's class"
    ),
    "one_hot_distance": Metric("the same of one-hot labels"),
    "label_class_mass": Metric("what refined labels put on keys of the query's class"),
    "label_others_class_mass": Metric(
        "the same of what they put on other keys than the positive, as a share of it", may_be_absent=True
    ),
    "label_agreement": Metric("share of queries whose class has most of the refined label"),
    "label_entropy": Metric("entropy of refined labels, mean"),
    "label_confidence": Metric("largest entry of refined labels, mean"),
}


@dataclass(frozen=True)
class Losses:
    """What one step computes before it moves weights."""

    total: Tensor  # l
    contrast: Tensor  # l
    mixup: Tensor  # l
    positives: Tensor  # l s d: keys of this batch
    logits: Tensor  # l s k: log σ of the queries
    refined: Refined
    buffers: Mapping[str, Tensor]


def init(lanes: Lanes[Params]) -> State:
    f = _encoder(lanes)
    labels_given(lanes, loaded(lanes))
    w = f.init(lanes)
    dictionary = random_dictionary(lanes, lanes.shape.dictionary, f.dim)
    state = w | {f"{_TARGET}{name}": w[name].clone() for name in f.weights}
    if lanes.shape.optimizer == "momentum":
        state |= {f"{_VELOCITY}{name}": torch.zeros_like(w[name]) for name in f.weights}
    step = torch.zeros(len(lanes), dtype=torch.int64, device=lanes.device)
    return state | {"keys": dictionary.keys, "key_samples": dictionary.samples, "step": step}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    f, batches = _encoder(lanes), Batches(lanes)
    whole = any(params.mixup_weight for params in lanes.params)
    state = {name: tensor.clone() for name, tensor in s.items()}
    for step in range(start, stop):
        index = batches.at(step)
        w = {name: tensor.requires_grad_() for name, tensor in f.trained(state).items()}
        with torch.enable_grad():
            losses = _losses(lanes, f, state | w, batches, index, step, whole)
            # Lanes don't touch each other, so the derivative of the sum is that of each.
            grads = torch.autograd.grad(losses.total.sum(), list(w.values()))
        for tensor in w.values():
            tensor.requires_grad_(False)
        _descend(lanes, f, state, dict(zip(w, grads, strict=True)), step, batches)
        for name in f.weights:
            state[f"{_TARGET}{name}"].lerp_(state[name], lanes.column("iota", state[name].dim() - 1))
        held = enqueued(Dictionary(state["keys"], state["key_samples"]), losses.positives, index, step)
        state |= {"keys": held.keys, "key_samples": held.samples}
        state |= {name: tensor.detach() for name, tensor in losses.buffers.items()}
    return state | {"step": torch.full_like(s["step"], stop)}


def _losses(
    lanes: Lanes[Params], f: Encoder, state: State, batches: Batches, index: Tensor, step: int, whole: bool = True
) -> Losses:
    """Steps 2 to 9 of Algorithm 1; not `whole` where virtual queries have no weight in any lane."""
    images, tau, weight = batches.images(index), lanes["tau"], lanes["mixup_weight"]
    x = batches.views.weak(lanes, "query", images, step)
    x_tilde = batches.views.weak(lanes, "positive", images, step)
    seen = f.forward(state, x, training=True)
    with torch.no_grad():
        g = {name: state[f"{_TARGET}{name}"] for name in f.weights} | {name: state[name] for name in f.buffers}
        positives = unit(f.forward(g, x_tilde, training=True).outputs)
        keys = key_set(positives, state["keys"])
        mu = confidence(lanes["m1"], lanes["m2"], step, lanes.shape.steps)
        labels = refined(log_similarity(positives, keys, tau), lanes["tau_prime"], mu, lanes.shape.refinery)
    logits = log_similarity(unit(seen.outputs), keys, tau)
    plain = one_hot_contrast(logits)
    virtual = plain
    if lanes.shape.mixup == "none" and lanes.shape.mixup_views == "same":
        virtual = plain if lanes.shape.refinery == "none" else contrast(logits, labels.labels)
    elif whole:
        said = [
            contrast(log_similarity(unit(f.forward(state, x_prime, training=True).outputs), keys, tau), y_prime)
            for x_prime, y_prime in _virtual(lanes, batches, images, x, x_tilde, labels.labels, step)
        ]
        virtual = torch.stack(said).mean(dim=0)
    total = torch.lerp(plain, virtual, weight)
    return Losses(total, plain, virtual, positives, logits, labels, seen.buffers)


def _virtual(
    lanes: Lanes[Params], batches: Batches, images: Tensor, x: Tensor, x_tilde: Tensor, labels: Tensor, step: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Virtual queries x′ and their labels y′, one crop after the other (Eq. 8)."""
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


def _descend(
    lanes: Lanes[Params], f: Encoder, state: State, grads: Mapping[str, Tensor], step: int, batches: Batches
) -> None:
    p = lanes.shape
    rate = image_training.rate_at(lanes, step / batches.per_epoch)
    if p.decay_shape == "cosine":
        rate = annealed(lanes["learning_rate"], step, p.steps)
    velocity = None
    if p.optimizer == "momentum":
        velocity = {name: state[f"{_VELOCITY}{name}"] for name in f.weights}
    descend(f.trained(state), grads, rate, lanes["weight_decay"], lanes["momentum"], velocity)


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
        **evaluated(lanes, f, batches.views, s, last=step == lanes.shape.steps),
        **_quality(now, batches.data, index, s["key_samples"]),
    }


def _quality(now: Losses, data: Images, index: Tensor, key_samples: Tensor) -> dict[str, Tensor]:
    """By the true classes of queries and keys."""
    queries = data.train_y[index]  # l s
    held = torch.where(key_samples == NOBODY, NOBODY, data.train_y[key_samples])  # l b
    keys, k = torch.cat([queries, held], dim=1), len(data.classes)
    refined, plain = (quality(labels, queries, keys, k) for labels in (now.refined.labels, one_hot(now.logits)))
    return {
        "label_distance": refined.distance,
        "one_hot_distance": plain.distance,
        "label_class_mass": refined.class_mass,
        "label_others_class_mass": refined.others_class_mass,
        "label_agreement": refined.agreement,
        "label_entropy": refined.entropy,
        "label_confidence": refined.confidence,
    }


def weights(lanes: Lanes[Params], s: State) -> State:
    """The backbones, by the names and in the layout in which torchvision's ResNets load them."""
    return loadable(_encoder(lanes).backbone, s)


def _encoder(lanes: Lanes[Params]) -> Encoder:
    channels, height, width = loaded(lanes).size
    size = lanes.shape.view_size
    return encoder(lanes.shape, (channels, size or height, size or width))


task = Task(
    name="self_labeling.sane",
    version=1,
    params=Params,
    metrics=METRICS,
    init=init,
    advance=advance,
    measure=measure,
    conflicts=conflicts,
    data=image_training.data_of,
    weights=weights,
    small={
        "samples": 60,
        "test_samples": 20,
        "batch": 16,
        "depth": 2,
        "width": 4,
        "embedding": 8,
        "dictionary": 40,
        "neighbours": 5,
        "probe_epochs": 2,
        "steps": 20,
    },
)


def confidence(m1: Tensor, m2: Tensor, step: int, steps: int) -> Tensor:
    """μ_t = m₂ − (m₂ − m₁)·(cos(πt/T) + 1)/2: from m₁ at the start to m₂ at the end; (l)."""
    return m2 - (m2 - m1) * (math.cos(math.pi * step / steps) + 1) / 2


def annealed(rate: Tensor, step: int, steps: int) -> Tensor:
    """The learning rate, cosine decayed to 0; (l)."""
    return rate * ((math.cos(math.pi * step / steps) + 1) / 2)
