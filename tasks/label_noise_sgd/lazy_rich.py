"""Lazy to rich: label noise makes a wide network leave its linearization and shrinks its first layer (Figure 2).

Zhang, Zhou, Wang, Han, Huang, Suzuki, Yan, Figure 2. A WideResNet in NTK parametrization is trained on few images by
gradient descent, with and without label noise, along with its linearization around initialization. These trajectories
belong to one run and have the same initial weights and images. Without noise the network behaves like its linearization
(the lazy regime). With noise it leaves the linearization, and ‖W₁‖_F falls.

Readings: the text gives neither sizes nor rates nor σ, and defines the noise only for one output. Here two classes have
one output with targets -1 and 1; more classes have one output each, with targets 0 and 1. The loss is ½‖f − y‖²
(Equation 2), averaged over the images of a step. At every step, +σ or -σ is added to every target of every image, with
independent signs. Because signs differ between images, a step on all n images has noise of variance σ²/n, and norms
fall n times slower than with steps on single images.

The noise moves a network away from the noiseless linearization even if the network is lazy: the linearization that is
trained with the same noise (`noisy_linear`) moves just as much. Comparing with it separates the two effects:
`control_…` is the distance to it.

The norm of the first layer falls visibly if the layer is small, as the stem of a WideResNet is: layers that carry the
whole signal lose about the same sum of squares, whatever their size. The norm of a dense first layer on images hardly
changes. From a small initialization, where a network is rich without noise, noise makes the tangent kernel change less,
not more (`label-noise-sgd/beyond-images`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from mislabel.tasks.corruption import signed
from mislabel.tasks.images import image_training, readout
from mislabel.tasks.images.architectures import KINDS
from mislabel.tasks.images.build_network import NTK_HELP, NetworkParams, build, has_batch_norm
from mislabel.tasks.images.derivatives import gradients, linearized, sample_gradients
from mislabel.tasks.images.image_training import BATCH_HELP, PIXELS_HELP, SAMPLES_HELP, ImageTraining, data_of
from mislabel.tasks.images.network import Descent, Network
from mislabel.tasks.images.torchvision_resnets import RESNETS
from mislabel.tasks.lanes import Lanes, once
from mislabel.tasks.parameters import Value, knob, shape
from mislabel.tasks.task import Metric, State, Task

TRAJECTORIES = {
    "plain": "network without label noise",
    "noisy": "network with label noise",
    "linear": "linearization without label noise",
    "noisy_linear": "linearization with the same label noise",
}
_PART = 256


@dataclass(frozen=True, kw_only=True)
class Params(ImageTraining, NetworkParams):
    steps: int = shape(1000, at_least=1, help="steps of gradient descent (SGD if batch is not 0), for every trajectory")
    spacing: str = shape("linear", choices=("linear", "log"), help="spacing of the measured steps")
    samples: int = shape(64, at_least=0, help=SAMPLES_HELP)
    pixels: str = shape("standardized", choices=("unit", "standardized"), help=PIXELS_HELP)
    batch: int = shape(0, at_least=0, help=BATCH_HELP)
    network: str = shape("wide_resnet", choices=(*KINDS, *RESNETS), help="network; one without batch norm")
    parametrization: str = shape("ntk", choices=("standard", "ntk"), help=NTK_HELP)
    trained: str = shape("plain, noisy, linear", help=f"the trajectories to train, a list of {', '.join(TRAJECTORIES)}")
    probes: int = shape(16, at_least=1, help="training images on which the tangent kernel is measured")
    learning_rate: float = knob(0.1, above=0, help=f"{image_training.RATE_HELP}; the same for all trajectories")
    sigma: float = knob(
        1.0,
        at_least=0,
        help="σ: at every step, +σ or −σ is added to each target of each image, with independent signs; only in the "
        "noisy trajectories",
    )


_OF_EACH = {
    "train_loss": "½‖f − y‖², mean over the training images, with clean targets",
    "test_loss": "½‖f − y‖², mean over the test images",
    "test_error": "share of test images classified wrongly",
    "first_norm": "‖W₁‖_F, Frobenius norm of the first layer's weights",
    "first_norm_ratio": "‖W₁‖_F divided by its initial value",
    "distance": "distance of all weights from initialization, divided by their initial norm",
}
_OF_NETWORKS = {"kernel_change": "‖K − K₀‖_F/‖K₀‖_F of the tangent kernel K_ij = Σ_k ∇f_k(x_i)·∇f_k(x_j) on the probes"}
_OF_PAIRS = {
    "train_gap": "‖f − g‖/‖g‖ on the training images; g is the linearization without label noise",
    "test_gap": "‖f − g‖/‖g‖ on the test images; g is the linearization without label noise",
}
METRICS = {
    "farthest": Metric("largest distance (see plain_distance) over the trained trajectories"),
    **{
        f"{name}_{metric}": Metric(f"{what}: {words}", may_be_absent=True)
        for name, what in TRAJECTORIES.items()
        for metric, words in (
            _OF_EACH | ({} if name.endswith("linear") else _OF_NETWORKS) | ({} if name == "linear" else _OF_PAIRS)
        ).items()
    },
    "control_train_gap": Metric(
        "‖f − g‖/‖g‖ on the training images; f: noisy network, g: linearization with the same noise", may_be_absent=True
    ),
    "control_test_gap": Metric("the same on the test images", may_be_absent=True),
}


@dataclass(frozen=True)
class Start:
    """Initial weights and tangent kernel."""

    weights: tuple[Tensor, ...]  # in the network's order
    kernel: Tensor  # l q q


def init(lanes: Lanes[Params]) -> State:
    _start(lanes)
    state = image_training.initial_state(lanes, _network(lanes))
    shared = {"order": state.pop("order")} if lanes.shape.batch else {}
    return shared | {f"{name}.{own}": tensor for name in _names(lanes.shape.trained) for own, tensor in state.items()}


def advance(lanes: Lanes[Params], s: State, start: int, stop: int) -> State:
    network, train_x, targets = _network(lanes), image_training.loaded(lanes).train_x, _targets(lanes, "train")
    per_epoch = image_training.epoch_steps(lanes)
    decay = lanes["weight_decay"] if any(params.weight_decay for params in lanes.params) else None
    names = _names(lanes.shape.trained)
    s = {name: tensor.clone() for name, tensor in s.items()}
    own = {name: _own(s, name) for name in names}
    whole = None if lanes.shape.batch else image_training.scaled(lanes, train_x)
    for step in range(start, stop):
        index = image_training.chosen(lanes, s, step)
        x = image_training.scaled(lanes, image_training.shared_rows(train_x, index)) if whole is None else whole
        y = image_training.shared_rows(targets, index)  # l b k
        noisy_y = y + _noise(lanes, index, step, y.shape[2]) if any(map(_is_noisy, names)) else y
        rate = image_training.rate_at(lanes, step / per_epoch)
        for name, state in own.items():
            grads = _gradients(lanes, network, name, state, x, noisy_y if _is_noisy(name) else y)
            velocity = image_training.velocities(lanes, network, state)
            Descent(rate, decay, lanes["momentum"], velocity).update(network.trained(state), grads)
    return s


@torch.no_grad()
def measure(lanes: Lanes[Params], s: State) -> dict[str, Tensor]:
    network, start, names = _network(lanes), _start(lanes), _names(lanes.shape.trained)
    own = {name: network.trained(_own(s, name)) for name in names}
    outputs = {name: _all_outputs(lanes, network, name, weights) for name, weights in own.items()}
    first = dict(zip(network.weights, start.weights, strict=True))
    found: dict[str, Tensor] = {}
    for name, weights in own.items():
        wrong = readout.wrong(outputs[name]["test"], image_training.loaded(lanes).test_y)
        found[f"{name}_test_error"] = wrong.to(lanes.dtype).mean(dim=1)
        found[f"{name}_first_norm"] = network.first_norm(weights)
        found[f"{name}_first_norm_ratio"] = network.first_norm(weights) / network.first_norm(first)
        moved = {key: w - first[key] for key, w in weights.items()}
        found[f"{name}_distance"] = _length(moved) / _length(first)
        if not _is_linear(name):
            change = _kernel(lanes, network, weights) - start.kernel
            found[f"{name}_kernel_change"] = _norm(change) / _norm(start.kernel)
        for part, seen in outputs[name].items():
            found[f"{name}_{part}_loss"] = _loss(seen, _targets(lanes, part))
            if name != "linear" and "linear" in outputs:
                found[f"{name}_{part}_gap"] = _gap(seen, outputs["linear"][part])
            if name == "noisy" and "noisy_linear" in outputs:
                found[f"control_{part}_gap"] = _gap(seen, outputs["noisy_linear"][part])
    found["farthest"] = torch.stack([found[f"{name}_distance"] for name in names]).amax(dim=0)
    absent = torch.full_like(found["farthest"], torch.nan)
    return {name: found.get(name, absent) for name in METRICS}


def conflicts(params: Params) -> Iterator[str]:
    yield from image_training.conflicts(params)
    if has_batch_norm(params.network):
        yield f"network: {params.network} has batch norm, so outputs depend on the batch; use one without it"
    if params.autocast != "none" or params.compiled:
        yield "autocast, compiled: the linearization needs exact derivatives; leave them off"
    words = [word.strip() for word in params.trained.split(",")]
    if len(set(words)) < len(words) or not set(words) <= TRAJECTORIES.keys():
        yield f"trained: {params.trained!r} is not a list of {', '.join(TRAJECTORIES)}, each at most once"


def _names(trained: str) -> list[str]:
    words = {word.strip() for word in trained.split(",")}
    return [name for name in TRAJECTORIES if name in words]


def _is_noisy(name: str) -> bool:
    return name.startswith("noisy")


def _is_linear(name: str) -> bool:
    return name.endswith("linear")


def _own(s: State, name: str) -> dict[str, Tensor]:
    """The part of the state that belongs to a trajectory."""
    return {key.removeprefix(f"{name}."): tensor for key, tensor in s.items() if key.startswith(f"{name}.")}


def _network(lanes: Lanes[Params]) -> Network:
    data = image_training.loaded(lanes)
    return build(lanes.shape, data.size, readout.logits(len(data.classes)))


def _targets(lanes: Lanes[Params], which: str) -> Tensor:
    """The targets of all training or test images; (n k)."""
    data = image_training.loaded(lanes)
    y, classes = getattr(data, f"{which}_y"), len(data.classes)
    targets = 2 * y[:, None] - 1 if classes == 2 else functional.one_hot(y, classes)
    return targets.to(lanes.dtype)


def _noise(lanes: Lanes[Params], index: Tensor, step: int, outputs: int) -> Tensor:
    """The noise ±σ on the targets of these images at this step; (l b k)."""
    count = len(image_training.loaded(lanes).train_y)
    drawn = signed(lanes, "noise", lanes["sigma"], count, outputs, steps=range(step, step + 1))[:, 0]  # l n k
    return drawn.gather(1, index.long()[:, :, None].expand(-1, -1, outputs)) if lanes.shape.batch else drawn


def _gradients(
    lanes: Lanes[Params], network: Network, name: str, state: Mapping[str, Tensor], x: Tensor, y: Tensor
) -> dict[str, Tensor]:
    if not _is_linear(name):
        return gradients(network, state, x, lambda outputs: _loss(outputs, y))[0]
    first = dict(zip(network.weights, _start(lanes).weights, strict=True))
    weights = {key: w.detach().requires_grad_() for key, w in network.trained(state).items()}
    with torch.enable_grad():
        loss = _loss(linearized(network, first, weights, x), y).sum()
        return dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))


def _all_outputs(lanes: Lanes[Params], network: Network, name: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Outputs on all training and on all test images; (l n k) each."""
    data = image_training.loaded(lanes)
    first = dict(zip(network.weights, _start(lanes).weights, strict=True))

    def outputs(images: Tensor) -> Tensor:
        x = image_training.scaled(lanes, images)
        return linearized(network, first, weights, x) if _is_linear(name) else network.forward(weights, x).outputs

    images = {"train": data.train_x, "test": data.test_x}
    return {part: torch.cat([outputs(some) for some in torch.split(x, _PART)], dim=1) for part, x in images.items()}


@once
def _start(lanes: Lanes[Params]) -> Start:
    network = _network(lanes)
    weights = network.init(lanes)
    return Start(tuple(weights.values()), _kernel(lanes, network, weights))


def _kernel(lanes: Lanes[Params], network: Network, weights: Mapping[str, Tensor]) -> Tensor:
    """The tangent kernel on the probes, summed over outputs; (l q q)."""
    data = image_training.loaded(lanes)
    x = image_training.scaled(lanes, data.train_x[: lanes.shape.probes])
    kernel = torch.zeros(len(lanes), len(x), len(x), dtype=lanes.dtype, device=lanes.device)
    for k in range(readout.logits(len(data.classes))):
        for grads in sample_gradients(network, weights, x, partial(torch.select, dim=0, index=k)).values():
            rows = grads.flatten(2)  # l q d
            kernel.baddbmm_(rows, rows.mT)
    return kernel


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().sum(dim=2).mean(dim=1) / 2


def _gap(outputs: Tensor, reference: Tensor) -> Tensor:
    return _norm(outputs - reference) / _norm(reference)


def _norm(tensor: Tensor) -> Tensor:
    return tensor.flatten(1).square().sum(dim=1).sqrt()


def _length(weights: Mapping[str, Tensor]) -> Tensor:
    return _norm(torch.cat([w.flatten(1) for w in weights.values()], dim=1))


_SMALL: dict[str, Value] = {"classes": "0, 1", "samples": 8, "test_samples": 6}
_SMALL |= {"network": "fc", "depth": 1, "width": 6, "probes": 4}
task = Task("label_noise_sgd.lazy_rich", Params, METRICS, init, advance, measure, conflicts, data_of, small=_SMALL)
